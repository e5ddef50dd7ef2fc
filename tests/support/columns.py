"""Rows with columns of all sorts of types."""

import numpy as np
import pyarrow as pa


def make_rows(rows, seed=0, nulls=False):
    """Make columns of all sorts of types."""
    rng = np.random.default_rng(seed)

    def holes(values):
        return [None if nulls and rng.random() < 0.2 else value for value in values]

    numbers = rng.standard_normal((rows, 3)).astype(np.float32)
    columns = {
        "features": pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), 3),
        "label": pa.array(rng.integers(0, 3, rows)),
        "small": pa.array(holes(rng.integers(0, 100, rows).tolist()), pa.uint8()),
        "flag": pa.array(holes((rng.random(rows) < 0.5).tolist()), pa.bool_()),
        "text": pa.array(holes(["é" * int(k) for k in rng.integers(0, 5, rows)]), pa.string()),
        "image": pa.array(holes([bytes(int(k)) for k in rng.integers(0, 9, rows)]), pa.large_binary()),
        "features_k": pa.array(holes([list(range(int(k))) for k in rng.integers(0, 6, rows)]), pa.list_(pa.int32())),
        "words": pa.array(
            holes([["a", None, "bc"][: int(k)] for k in rng.integers(0, 4, rows)]), pa.large_list(pa.string())
        ),
        "pair": pa.array(
            holes([{"x": int(k), "y": [float(k), None]} for k in rng.integers(0, 9, rows)]),
            pa.struct([("x", pa.int64()), ("y", pa.list_(pa.float64(), 2))]),
        ),
        "map": pa.array(holes([[("k", int(k))] for k in rng.integers(0, 9, rows)]), pa.map_(pa.string(), pa.int64())),
        "when": pa.array(holes(rng.integers(0, 10**6, rows).tolist()), pa.timestamp("us")),
        "fixed": pa.array(holes([b"abc"] * rows), pa.binary(3)),
        "half": pa.array(rng.standard_normal(rows).astype(np.float16)),
        "money": pa.array(holes([None if k == 0 else int(k) for k in rng.integers(0, 9, rows)]), pa.decimal128(12, 2)),
        "nothing here": pa.nulls(rows),
    }
    return pa.table(columns)
