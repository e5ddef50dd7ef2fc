"""A small label-sorted table in every format that loaders read."""

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp

ROWS, FEATURES = 1000, 5


def columns(rows=ROWS):
    rng = np.random.default_rng(0)
    features = rng.standard_normal((rows, FEATURES)).astype(np.float32)
    lengths = rng.integers(0, 6, rows)
    tokens = [np.arange(n, dtype=np.int32) + i for i, n in enumerate(lengths)]
    return pa.table(
        {
            "features": pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), FEATURES),
            "label": pa.array((np.arange(rows) >= rows // 2).astype(np.int32)),
            "row": pa.array(np.arange(rows)),
            "tokens": pa.array(tokens, pa.list_(pa.int32())),
            "text": pa.array([f"row {i}" for i in range(rows)]),
        }
    )


def write_arrow(path, table, batch=130, **options):
    with pa.ipc.new_file(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=batch)
    return str(path)


@pytest.fixture(scope="session")
def rows_table():
    return columns()


@pytest.fixture(scope="session", params=["location", "compressed", "memory"])
def table(request, rows_table, tmp_path_factory):
    """Fixed-width columns only: read in place, decoded, or in memory."""
    fixed = rows_table.select(["features", "label", "row"])
    if request.param == "memory":
        return cp.open(fixed)
    path = tmp_path_factory.mktemp("tables") / f"{request.param}.arrow"
    return cp.open(write_arrow(path, fixed, compression="zstd" if request.param == "compressed" else None))


@pytest.fixture(scope="session")
def mixed(rows_table, tmp_path_factory):
    """Tables with additional list and text columns."""
    return cp.open(write_arrow(tmp_path_factory.mktemp("tables") / "mixed.arrow", rows_table))
