"""A table in a store is planned without fetching it: its labels are read, once, and nothing is tried."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corgipile.planner import choose

ROWS = 40_000


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_only_labels_are_read(objects, kind):
    random = np.random.default_rng(0)
    columns = {f"x{i}": random.random(ROWS) for i in range(6)} | {"label": np.arange(ROWS) // 4000}
    table, path = pa.table(columns), objects.root / "bucket" / f"rows.{kind}"
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=10_000, compression="none", use_dictionary=False)
    else:
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=10_000)
    found = choose(f"s3://bucket/rows.{kind}", memory="1MB", batch_size=64)
    assert sum(line.sent for line in objects.log()) < path.stat().st_size / 3
    assert found.best.seconds is None
    assert (found.labels, found.best.deff <= 1.1) == ("label", True)
    assert found.best.reads > 0
