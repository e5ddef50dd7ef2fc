"""Rows for every loss, and the SGD kernel fitted to them."""

import numpy as np

from corgipile.linear.features import Features
from corgipile.linear.sgd import SGD
from corgipile.linear.sparse import Sparse
from corgipile.losses import LOSSES, NAMES, loss_of

SET = [f"{loss.name}:0.3" for loss in LOSSES if loss.takes]
KINDS = [*NAMES, *SET, "hinges"]  # hinges: an svm of several classes
MARGINS = [kind for kind in [*NAMES, *SET] if not loss_of(kind).per_class]
NUMBERS = [kind for kind in MARGINS if loss_of(kind).numbers]
TWO = [kind for kind in MARGINS if not loss_of(kind).numbers]
CLASSES = {kind: [0, 1, 2] for kind in ("softmax", "hinges", "ovr_logistic")}
CLASSES |= {"svm": [-1, 1], **{kind: [] for kind in NUMBERS}}
CLASSES |= {kind: [0, 1] for kind in TWO if kind not in CLASSES}
KINKS = [kind for kind in KINDS if kind.startswith(("svm", "hinges", "quantile"))]  # the derivative jumps


def where(place):
    return f"place {place}"


def sparse_rows(x):
    """Return the nonzero entries of rows in the kernel's form, and the arrays that own them."""
    rows, columns = np.nonzero(x)
    indices, values = columns.astype(np.int32), np.ascontiguousarray(x[rows, columns])
    lengths = np.count_nonzero(x, axis=1).astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    at = (indices.ctypes.data + starts * 4).astype(np.uint64)
    return Sparse(at, (values.ctypes.data + starts * x.itemsize).astype(np.uint64), lengths), (indices, values)


def made(kind, rows, width, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, width)).astype(dtype)
    x[rng.random(x.shape) < 0.3] = 0
    signal = x.sum(axis=1) + rng.normal(0, 0.3, rows)
    if kind in NUMBERS:
        return x, rng.poisson(np.exp(signal / 4)) if loss_of(kind).not_negative else signal.astype(dtype)
    if len(CLASSES[kind]) > 2:
        return x, np.digitize(signal, [-0.4, 0.4]).astype(np.int64)
    return x, np.where(signal > 0, CLASSES[kind][1], CLASSES[kind][0]).astype(np.int64)


def sgd(kind, width, dtype, *, sparse=False, **settings):
    inputs = Features(("x",), sparse=sparse, width=width, dtype=np.dtype(dtype), lists=True)
    return SGD("svm" if kind == "hinges" else kind, inputs, np.array(CLASSES[kind]), **settings)


def fit(model, x, y, *, rate=0.1, epochs=2, cuts=(), weights=None):
    rows, kept = sparse_rows(x) if model.inputs.sparse else (np.ascontiguousarray(x), None)
    for _ in range(epochs):
        model.begin(rate)
        for visit in np.split(np.arange(len(x), dtype=np.int32), cuts):
            model.learn(rows, y, np.ascontiguousarray(visit), where, weights)
        figures = model.flush()
    del kept
    return *model.weights(), figures
