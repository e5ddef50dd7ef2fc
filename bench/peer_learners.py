"""Peer learners: each reads its rows from a file, fits, and scores validation rows, in its own environment."""
# ruff: noqa: PLC0415 - each imports its own library

import contextlib
import importlib
import itertools
import os
import time
from functools import partial
from pathlib import Path

import numpy as np

CLOCK = time.process_time if os.environ.get("BENCH_CLOCK") == "cpu" else time.perf_counter


def arrays(path, part):
    """Load features and labels; sparse ones lie in three arrays."""
    y = np.load(f"{path}-{part}-y.npy")
    if not Path(f"{path}-{part}-indptr.npy").exists():
        return np.load(f"{path}-{part}-x.npy"), y
    from scipy.sparse import csr_matrix

    data, indices, starts = (np.load(f"{path}-{part}-{name}.npy") for name in ("data", "indices", "indptr"))
    return csr_matrix((data, indices, starts), (len(y), int(np.load(f"{path}-width.npy")))), y


def from_file(path):
    """Read our file in the fastest way we know: dense features are scaled, sparse ones are not."""
    import pyarrow as pa

    table = pa.ipc.open_file(pa.memory_map(f"{path}.arrow")).read_all()
    y, names = table["label"].to_numpy(), [name for name in table.column_names if name != "label"]
    if names == ["features_k", "features_v"]:
        from scipy.sparse import csr_matrix

        keys, values = (table[name].combine_chunks() for name in names)
        parts = values.values.to_numpy(), keys.values.to_numpy(), keys.offsets.to_numpy()
        return csr_matrix(parts, (len(y), int(np.load(f"{path}-width.npy")))), y
    if names == ["features"]:
        return scaled(table["features"].combine_chunks().flatten().to_numpy().reshape(len(y), -1), 0), y
    columns = np.stack([table[name].to_numpy() for name in names], dtype=np.float32, casting="same_kind")
    return np.ascontiguousarray(scaled(columns, 1).T), y  # a column is scaled sooner where it lies in one piece


def scaled(x, rows):
    """Return features with mean 0 and standard deviation 1; ``rows`` is their axis."""
    x = x - x.mean(axis=rows, keepdims=True)
    spread = np.sqrt(np.einsum("ij,ij->i" if rows else "ij,ij->j", x, x) / x.shape[rows])
    spread[spread == 0] = 1
    x /= np.expand_dims(spread, rows)
    return x


def score(y, said, regression):
    """Return accuracy or R2, in points."""
    if regression:
        return 100 * (1 - float(((y - said) ** 2).sum() / ((y - y.mean()) ** 2).sum()))
    return 100 * float((y == said).mean())


def sklearn(name, path, regression, classes, *, whole, alpha=None, c=None, epochs=5, seed=0):
    """Fit SGDClassifier, SGDRegressor or LIBLINEAR."""
    from sklearn.linear_model import LogisticRegression, SGDClassifier, SGDRegressor
    from sklearn.multiclass import OneVsRestClassifier

    start = CLOCK()
    x, y = from_file(path) if whole else arrays(path, "train")
    if name == "liblinear":
        model = LogisticRegression(solver="liblinear", C=c)
        model = OneVsRestClassifier(model) if classes > 2 else model
    else:
        how = {"max_iter": epochs, "tol": None, "alpha": alpha, "random_state": seed}
        model = SGDRegressor(**how) if regression else SGDClassifier(loss="log_loss", **how)
    model.fit(x, y)
    seconds = CLOCK() - start
    x_test, y_test = arrays(path, "test")
    return seconds, score(y_test, model.predict(x_test), regression)


def vw(path, regression, classes, *, rate=0.5, passes=1):
    """Run Vowpal Wabbit over its own text format."""
    from vowpalwabbit import Workspace

    for leftover in (f"{path}.cache", f"{path}.model"):
        Path(leftover).unlink(missing_ok=True)
    many = f"--oaa {classes} " if classes > 2 else ""
    how = "" if regression else f"{many}--loss_function logistic"
    cached = f"-k --cache_file {path}.cache --passes {passes} --holdout_off" if passes > 1 else ""
    start = CLOCK()
    Workspace(f"-d {path}-train.vw {how} -l {rate} -b 18 {cached} -f {path}.model --quiet").finish()
    seconds = CLOCK() - start
    Workspace(f"-t -d {path}-test.vw -i {path}.model -p {path}.said --quiet").finish()
    said, y = np.loadtxt(f"{path}.said"), np.load(f"{path}-test-y.npy")
    said = said if regression else said - 1 if classes > 2 else said > 0
    return seconds, score(y, said, regression)


def river(path, regression, classes, *, whole, rate=0.01):
    """Learn row by row from dictionaries, in one pass."""
    from river import linear_model, optim

    start = CLOCK()
    x, y = from_file(path) if whole else arrays(path, "train")
    model = (linear_model.LinearRegression if regression else linear_model.LogisticRegression)(optim.SGD(rate))
    for row, target in zip(dictionaries(x), y.tolist(), strict=True):
        model.learn_one(row, target if regression else bool(target))
    seconds = CLOCK() - start
    x_test, y_test = arrays(path, "test")
    said = [model.predict_one(row) for row in dictionaries(x_test)]
    del classes
    return seconds, score(y_test, np.array(said, float), regression)


def dictionaries(x):
    """Yield rows in River's form."""
    if isinstance(x, np.ndarray):
        yield from (dict(enumerate(row)) for row in x.tolist())
        return
    ends = itertools.pairwise(x.indptr.tolist())
    yield from (dict(zip(x.indices[a:b].tolist(), x.data[a:b].tolist(), strict=True)) for a, b in ends)


def gblinear(path, regression, classes, *, whole, penalty=0.0, rounds=10):
    """Boost linear models of XGBoost, in one thread."""
    import xgboost

    goal = "reg:squarederror" if regression else "multi:softmax" if classes > 2 else "binary:logistic"
    how = {"booster": "gblinear", "objective": goal, "lambda": penalty, "nthread": 1, "verbosity": 0}
    start = CLOCK()
    x, y = from_file(path) if whole else arrays(path, "train")
    many = {"num_class": classes} if classes > 2 else {}
    model = xgboost.train(how | many, xgboost.DMatrix(x, y), rounds)
    seconds = CLOCK() - start
    x_test, y_test = arrays(path, "test")
    said = model.predict(xgboost.DMatrix(x_test))
    return seconds, score(y_test, said if regression or classes > 2 else said > 0.5, regression)


def learner(path, regression, classes):
    """Return the fit function of a peer by name and settings; libraries are imported before timing.

    With ``whole`` it starts from our file, else from prepared arrays, scaled if dense. ``path``: rows of another file.
    """
    libraries = "pyarrow", "scipy.sparse", "sklearn.linear_model", "vowpalwabbit", "river.linear_model", "xgboost"
    for library in libraries:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)

    def run(peer, settings, whole=False, path=path, **_):
        if peer == "vw":
            seconds, points = vw(path, regression, classes, **settings)
        else:
            fit = {"river": river, "gblinear": gblinear}.get(peer) or partial(sklearn, peer)
            seconds, points = fit(path, regression, classes, whole=whole, **settings)
        return {"seconds": seconds, "score": points}

    return run
