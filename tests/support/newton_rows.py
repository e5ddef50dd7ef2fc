"""Tables for tests of Newton's method, and derivatives of the losses."""

import warnings

import numpy as np
import pyarrow as pa

import corgipile as cp
from corgipile.errors import ConvergenceWarning

ROWS = 600


def table(x, y, **more):
    return pa.table({f"x{at}": x[:, at] for at in range(x.shape[1])} | {"label": y} | more)


def rows(seed=0, width=4):
    """Return correlated features far from 0, and scores of a few units."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(ROWS, width)) @ (np.eye(width) + 0.5)
    return z * np.logspace(-1, 1, width) + np.arange(width) * 20, z @ np.linspace(1, -0.5, width), rng


def labels(kind, score, rng):
    if kind == "poisson":
        return rng.poisson(np.exp(score / 2 + 1))
    if kind in ("linear", "huber", "huber:0.5"):
        return 100 + score + rng.standard_t(3, len(score))
    if kind in ("softmax", "ovr_logistic"):
        return np.digitize(score + 2 * rng.logistic(size=len(score)), [-1, 1])
    return (score + 2 * rng.logistic(size=len(score)) > 0).astype(np.int64)


KINDS = ("linear", "logistic", "poisson", "softmax", "ovr_logistic", "squared_hinge", "huber:0.5")


def fit(*args, **named):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        return cp.train(*args, solver="newton", **named)


def weights(model):
    return np.hstack([model.intercept[:, None], model.coef])


def slopes(model, x, y):
    """Return the derivative of each row's loss by its scores."""
    kind, _, delta = model.kind.partition(":")
    margin = x @ model.coef.T + model.intercept
    if kind == "softmax":
        share = np.exp(margin - margin.max(axis=1, keepdims=True))
        slope = share / share.sum(axis=1, keepdims=True) - (y[:, None] == model.classes)
    elif len(model.classes):
        sides = np.where(y[:, None] == (model.classes if len(model.coef) > 1 else model.classes[1:]), 1.0, -1.0)
        hinge = -2 * sides * np.maximum(0, 1 - sides * margin)
        slope = hinge if kind == "squared_hinge" else -sides / (1 + np.exp(sides * margin))
    else:
        off = (np.exp(margin) if kind == "poisson" else margin) - y[:, None]
        slope = np.clip(off, -float(delta), float(delta)) if delta else off
    return slope
