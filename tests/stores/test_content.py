"""What content balance keeps of a table in a store lies on this machine."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import corgipile as cp
from corgipile.loader import row_tap, sampled_runs
from corgipile.loader.content import Content
from corgipile.orders import Riffle
from corgipile.tables.io import index_cache

ROWS = 3000


def write(path, seed=0):
    rng = np.random.default_rng(seed)
    table = pa.table({"x": np.sort(rng.normal(size=ROWS)), "label": rng.integers(0, 2, ROWS)})
    path.parent.mkdir(exist_ok=True)
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=500)
    return table


def vectors(source):
    table = cp.open(source)
    return Content(("x", "label"), "label")(table, table.cuts(50), "content")


def test_tables_in_a_store_are_kept_on_this_machine(objects, tmp_path, monkeypatch):
    monkeypatch.setenv(index_cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    made, whole = [], sampled_runs.SampledRuns.make_vectors
    monkeypatch.setattr(sampled_runs.SampledRuns, "make_vectors", lambda *given: made.append(given) or whole(*given))
    bucket = objects.root / "bucket"
    tables = [write(bucket / name) for name in ("rows.arrow", "parts/0.arrow", "parts/1.arrow")]
    for url, count in (("s3://bucket/rows.arrow", 1), ("s3://bucket/parts/*.arrow", 2)):
        made.clear()
        expected = vectors(pa.concat_tables(tables[:count]))
        for _ in range(2):
            assert (vectors(url) == expected).all()
        assert len(made) == 2
    changed = write(bucket / "rows.arrow", seed=1)
    assert (vectors("s3://bucket/rows.arrow") == vectors(changed)).all()
    assert sorted(path.name for path in bucket.iterdir()) == ["parts", "rows.arrow"]


def test_rows_of_a_store_that_pass_tell_blocks_apart(objects, tmp_path, monkeypatch):
    monkeypatch.setenv(index_cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    left, picked = [], row_tap.RowTap.picked
    monkeypatch.setattr(row_tap.RowTap, "picked", lambda self, of: left.append(len(self.missing)) or picked(self, of))
    rows = write(objects.root / "bucket" / "rows.arrow")
    pq.write_table(rows, objects.root / "bucket" / "rows.parquet", row_group_size=50)
    order = Riffle(balance="content", first_epoch="label", block=50, buffer=500, group=1)
    found = {}
    for source in ("s3://bucket/rows.parquet", rows):
        table = cp.open(source, spill="off") if isinstance(source, str) else cp.open(source)
        with cp.Loader(table, batch_size=32, order=order, memory=None) as loader:
            found[source is rows] = [np.concatenate([batch["x"] for batch in loader]) for _ in range(2)]
    assert left == [0]
    assert all((one == other).all() for one, other in zip(found[True], found[False], strict=True))
