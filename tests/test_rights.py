"""Owner and mode of files: kept where one is replaced, never broader than the table that a file describes."""

import os
import stat

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.conversion import convert
from corgipile.outputs import Kind, replacing
from corgipile.tables.formats.tfrecord.index import index_file

OWNER = 1234 if os.geteuid() == 0 else os.geteuid()
TABLE = pa.table({"x": np.arange(2000.0), "label": np.arange(2000) % 2})
TEXT = "".join(f"{row},{row % 2}\n" for row in range(2000))


@pytest.fixture(autouse=True)
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path):
    return oct(stat.S_IMODE(path.stat().st_mode))


def hidden(path, to=0o600):
    """Let nobody else read a file or folder, which is another user's where we may give it away."""
    path.chmod(to)
    os.chown(path, OWNER, -1)
    return path


WRITERS = {
    "model": lambda path: cp.train(TABLE, epochs=1).save(path / "a.json", overwrite=True),
    "arrow": lambda path: convert(TABLE, path / "a.arrow", overwrite=True),
    "parquet": lambda path: convert(TABLE, path / "a.parquet", overwrite=True),
    "tfrecord": lambda path: convert(TABLE, path / "a.tfrecord", overwrite=True),
    "numbered": lambda path: convert(TABLE, path / "a-%d.tar", overwrite=True),
    "reshuffle": lambda path: cp.reshuffle(TABLE, path / "a.arrow", overwrite=True),
}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("to", [0o600, 0o640])
def test_a_file_that_is_replaced_keeps_owner_and_mode(tmp_path, kind, to):
    WRITERS[kind](tmp_path)
    [path] = tmp_path.iterdir()
    assert mode(path) == "0o644"
    hidden(path, to)
    WRITERS[kind](tmp_path)
    assert [mode(path), path.stat().st_uid] == [oct(to), OWNER]


def test_a_file_is_never_broader_while_it_is_written(tmp_path):
    path, kind = tmp_path / "a", Kind("list", lambda _: True)
    path.write_text("old")
    hidden(path)
    with replacing(path, kind) as temporary:
        assert mode(temporary) == "0o600"
    for table, umask, expected in ((0o644, 0o022, 0o644), (0o644, 0o077, 0o600), (0o600, 0o022, 0o600)):
        path.chmod(table)
        os.umask(umask)
        with replacing(tmp_path / "index", kind, of=path) as temporary:
            assert stat.S_IMODE(temporary.stat().st_mode) & ~expected & 0o077 == 0
        assert mode(tmp_path / "index") == oct(expected)
        (tmp_path / "index").unlink()


def test_an_index_that_is_broader_than_its_table_is_narrowed(tmp_path):
    kind, path = Kind("list", lambda _: True), tmp_path / "index"
    (tmp_path / "table").write_text("rows")
    hidden(tmp_path / "table")
    path.write_text("old")
    with replacing(path, kind, of=tmp_path / "table"):
        pass
    assert mode(path) == "0o600"


def test_a_folder_that_is_replaced_keeps_owner_and_mode(tmp_path):
    goal = tmp_path / "mds"
    convert(TABLE, goal, to="mds")
    for path in (goal, *goal.iterdir()):
        hidden(path, 0o700 if path.is_dir() else 0o600)
    convert(TABLE, goal, to="mds", overwrite=True)
    assert [mode(goal), goal.stat().st_uid] == ["0o700", OWNER]
    assert {(mode(path), path.stat().st_uid) for path in goal.iterdir()} == {("0o600", OWNER)}


def test_what_lies_beside_a_table_is_no_broader(tmp_path):
    csv, tar, records = tmp_path / "a.csv", tmp_path / "a.tar", tmp_path / "a.tfrecord"
    csv.write_text("x,label\n" + TEXT)
    for path in (tar, records):
        convert(TABLE, path)
    for path in (csv, tar, records):
        cp.open(hidden(path))
    index_file(str(records))
    convert(pa.table({"x": np.arange(40_000.0), "y": np.arange(40_000.0)}), tmp_path / "b.arrow")
    cp.Loader(hidden(tmp_path / "b.arrow"), batch_size=16, memory="64KB", order=cp.orders.Riffle(balance="content"))
    found = {path.name: (mode(path), path.stat().st_uid) for path in tmp_path.iterdir()}
    assert len(found) >= 7
    assert set(found.values()) == {("0o600", OWNER)}, found


def test_what_is_kept_for_a_user_is_theirs_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("CORGIPILE_CACHE", str(tmp_path / "cache"))
    for part in (1, 2):
        convert(pa.table({"x": np.arange(20_000.0) * part}), tmp_path / f"{part}.arrow")
    rows = cp.open([tmp_path / "1.arrow", tmp_path / "2.arrow"])
    cp.Loader(rows, batch_size=16, memory="64KB", order=cp.orders.Riffle(balance="content"))
    found = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert found
    assert {mode(path) for path in found} == {"0o600"}
