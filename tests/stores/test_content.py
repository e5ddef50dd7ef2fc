"""What content balance keeps of a table in a store lies on this machine."""

import numpy as np
import pyarrow as pa

import corgipile as cp
from corgipile.loader import sampled_runs
from corgipile.loader.content import Content
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
