"""A table in a store is planned without fetching it: its labels are read, once, and nothing is tried."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corgipile.planner import choose, measure, probed
from corgipile.tables import open as open_table

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


@pytest.fixture
def bucket(objects, tmp_path, monkeypatch):
    """Give a server that holds a table of which a probe is worth while, and a folder for what is found."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(measure, "MIN_FILE_BYTES", 1 << 20)
    table = pa.table({"x": np.random.default_rng(0).random(1 << 20), "label": np.arange(1 << 20) >> 17})
    with pa.ipc.new_file(str(objects.root / "bucket" / "rows.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=1 << 17)
    return objects


def test_a_bucket_is_probed_when_asked_and_at_a_known_cost(bucket):
    plain = choose("s3://bucket/rows.arrow", memory="1MB", batch_size=64)
    assert (plain.probe, plain.best.seconds) == (None, None)  # requests are paid for
    before = len(bucket.log())
    found = choose("s3://bucket/rows.arrow", memory="1MB", batch_size=64, probe=True)
    asked = bucket.log()[before:]
    assert 0 < len(asked) - before <= measure.MAX_REQUESTS
    assert sum(line.sent for line in asked) < measure.MAX_REQUEST_BYTES + (32 << 20)
    assert found.probe.place.endswith("s3://bucket")
    assert {cell.nbytes for cell in found.probe.cells} <= set(measure.REMOTE_SIZES)
    assert all(cell.rate > 0 and not cell.sequential for cell in found.probe.cells)
    assert found.best.seconds == found.best.cold > 0
    asked = len(bucket.log())
    again = choose("s3://bucket/rows.arrow", memory="1MB", batch_size=64)
    assert again.probe == found.probe  # remembered
    assert len(bucket.log()) - asked <= before


def test_a_bucket_that_answers_with_errors_is_not_known(bucket, monkeypatch):
    table = open_table("s3://bucket/rows.arrow")
    monkeypatch.setattr(measure._Bucket, "_place", lambda *_: (Refusing(), 0, 1))
    assert probed(table, fresh=True) is None


class Refusing:
    """A file that cannot be read."""

    def whole(self, start, stop):
        raise PermissionError(13, f"bytes {start} to {stop} are refused")
