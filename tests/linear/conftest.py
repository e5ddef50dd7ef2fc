"""Generated tables, sorted by label like much stored data."""

import numpy as np
import pyarrow as pa
import pytest


def dense(x, y, name="features"):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(x).reshape(-1)), x.shape[1])
    return pa.table({name: lists, "label": y})


def sparse(x, y):
    lengths = np.count_nonzero(x, axis=1)
    starts = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    rows, columns = np.nonzero(x)
    lists = [pa.ListArray.from_arrays(starts, pa.array(part)) for part in (columns.astype(np.int32), x[rows, columns])]
    return pa.table({"features_k": lists[0], "features_v": lists[1], "label": y})


def made(rows=2000, width=6, classes=2, dtype=np.float32, seed=0):
    """Return rows sorted by class, with a tenth of the labels noisy."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, width)).astype(dtype)
    x[rng.random(x.shape) < 0.4] = 0
    score = x @ np.arange(1, width + 1) / width + rng.normal(0, 0.3, rows)
    y = np.digitize(score, np.quantile(score, np.arange(1, classes) / classes)) if classes else score
    order = np.argsort(y, kind="stable")
    return x[order], y[order]


@pytest.fixture
def make():
    """Return the functions that create rows and tables."""

    class Make:
        rows, dense, sparse = staticmethod(made), staticmethod(dense), staticmethod(sparse)

    return Make
