"""A small table with row numbers, and ways to run a DataLoader over it."""

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("torch")
ROWS = 1000


@pytest.fixture(scope="session")
def rows_table():
    rng = np.random.default_rng(0)
    features = rng.standard_normal((ROWS, 4)).astype(np.float32)
    return pa.table(
        {
            "row": np.arange(ROWS),
            "features": pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), 4),
            "label": (np.arange(ROWS) >= ROWS // 2).astype(np.int32),
        }
    )


@pytest.fixture(scope="session")
def path(rows_table, tmp_path_factory):
    path = tmp_path_factory.mktemp("torch") / "rows.arrow"
    with pa.ipc.new_file(str(path), rows_table.schema) as writer:
        writer.write_table(rows_table, max_chunksize=130)
    return str(path)
