"""Tables in a store with a cache: the second opening asks for next to nothing, and what changed is read anew."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile import cli
from corgipile.errors import BadArgument

pytest.importorskip("obstore")
ROWS = 12_000
MANNERS = {"batch_size": 500, "memory": "1MB", "seed": 3}


@pytest.fixture
def bucket(objects, tmp_path, monkeypatch):
    monkeypatch.setenv("CORGIPILE_CACHE", str(tmp_path / "indexes"))
    return objects.root / "bucket"


def rows(seed=0):
    numbers = np.random.default_rng(seed).random((ROWS, 10), np.float32)
    return pa.table({"x": list(numbers), "id": np.arange(ROWS), "label": np.arange(ROWS) * 3 // ROWS})


def write(path, table):
    """Write a table in the format that the name says."""
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=2000)
        return
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=1500)


def check(source, table, **options):
    """Read an epoch; its rows must be those of a table."""
    x, ids = np.stack(table["x"].to_numpy()), []
    with cp.Loader(cp.open(source, **options), **MANNERS) as loader:
        for batch in loader:
            assert np.array_equal(np.stack(batch["x"]), x[batch["id"]])
            ids.append(batch["id"])
    ids = np.concatenate(ids)
    assert np.array_equal(np.sort(ids), np.arange(ROWS))
    return ids


def fetched(objects):
    return sum(line.sent for line in objects.log())


@pytest.mark.parametrize(("name", "spill"), [("a.arrow", None), ("a.arrow", "off"), ("a.parquet", None)])
def test_what_was_read_once_is_not_asked_for_again(objects, bucket, tmp_path, name, spill):
    table, options = rows(), {"cache": tmp_path / "cache", "cache_size": "64MB", "spill": spill}
    write(bucket / name, table)
    size = (bucket / name).stat().st_size
    plain = check(f"s3://bucket/{name}", table, spill=spill)
    fetched(objects)
    assert np.array_equal(check(f"s3://bucket/{name}", table, **options), plain)
    fetched(objects)
    assert np.array_equal(check(f"s3://bucket/{name}", table, **options), plain)
    assert fetched(objects) <= 256 << 10 < size  # the tail that comes with the opening, asked for again if it is late
    other = rows(1)
    write(bucket / name, other)
    check(f"s3://bucket/{name}", other, **options)


def test_damage_of_the_cache_and_faults_of_the_store_go_unnoticed(objects, bucket, tmp_path):
    table, options = rows(), {"cache": tmp_path / "cache", "cache_size": "64MB", "spill": "off"}
    write(bucket / "a.arrow", table)
    objects.set(errors=0.05, truncated=0.05)
    check("s3://bucket/a.arrow", table, **options)
    (path,) = tmp_path.glob("cache/corgipile-*/*-0")
    held = bytearray(path.read_bytes())
    for at in range(9000, len(held), 100_000):
        held[at] ^= 1
    path.write_bytes(held)
    check("s3://bucket/a.arrow", table, **options)


def test_the_command_line_has_it_too(objects, bucket, tmp_path, capsys):
    write(bucket / "a.arrow", rows())
    cache = ["--cache", str(tmp_path / "cache"), "--cache-size", "64MB"]
    for _ in range(2):
        assert cli.main(["info", "s3://bucket/a.arrow", *cache]) == 0
        asked = fetched(objects)
    assert asked <= 256 << 10
    out = tmp_path / "b.arrow"
    assert cli.main(["convert", "s3://bucket/a.arrow", str(out), "--quiet", *cache]) == 0
    assert len(cp.open(out)) == ROWS
    assert cli.main(["info", "s3://bucket/a.arrow", "--cache-size", "64MB"]) == 2
    assert "cache_size='64MB' needs cache=" in capsys.readouterr().err


def test_said_at_the_opening(bucket, tmp_path):
    write(bucket / "a.arrow", rows())
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="cannot be written as a cache"):
        cp.open("s3://bucket/a.arrow", cache=tmp_path / "file")
    with pytest.raises(BadArgument, match="at least"):
        cp.open("s3://bucket/a.arrow", cache=tmp_path, cache_size="4KB")
