"""Parts as they are staged: every row of the table on one rank, whatever is stopped, full or in the way."""

import errno
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import stagedrows
from hypothesis import given, settings
from hypothesis import strategies as st
from stagedrows import numbers, texts

import corgipile as cp
from corgipile.errors import BadArgument, BadSchema, BadValue, CorruptFile, MissingFile, WouldOverwrite, WriteFailed
from corgipile.exchange import places, restage, stage, staging

BYS = ("contiguous", "strided", "block", "balanced")


def row_numbers(table):
    return table.read(0, len(table))["row"].to_pylist()


def staged(table, folder, world, **options):
    """Return the row numbers of all parts."""
    label = "label" if options.get("by") == "balanced" else None
    return [stage(table, folder / f"{rank}", rank, world, label=label, **options) for rank in range(world)]


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([numbers, texts]), st.integers(1, 120), st.integers(1, 6), st.integers(1, 9), st.sampled_from(BYS)
)
def test_each_row_is_on_one_rank(tmp_path_factory, make, rows, world, unit, by):
    folder, table = tmp_path_factory.mktemp("staged"), make(rows)
    if rows < world:
        with pytest.raises(BadArgument, match=f"at least {world}, one per rank, got {rows}"):
            staged(table, folder, world, unit=unit, by=by)
        return
    parts = staged(table, folder, world, unit=unit, by=by)
    found = pa.concat_tables([pa.Table.from_batches([part.table.read(0, len(part.table))]) for part in parts])
    assert found.sort_by("row").equals(table)
    assert [part.header["units"] for part in parts] == sorted(part.header["units"] for part in parts) or world > 2
    new = max(1, world - 1)
    again = [restage([part.folder for part in parts], folder / f"new-{rank}", rank, new) for rank in range(new)]
    found = pa.concat_tables([pa.Table.from_batches([part.table.read(0, len(part.table))]) for part in again])
    assert found.sort_by("row").equals(table)
    shutil.rmtree(folder)


def test_how_rows_are_dealt(tmp_path):
    table = numbers(1001)
    runs = [row_numbers(part.table) for part in staged(table, tmp_path / "c", 4, unit=1)]
    assert [rows[0] for rows in runs] == [0, 250, 500, 750]
    every = [row_numbers(part.table) for part in staged(table, tmp_path / "s", 4, unit=1, by="strided")]
    assert [rows[:3] for rows in every] == [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]]
    first, other = (
        [row_numbers(part.table) for part in staged(table, tmp_path / f"b{seed}", 4, unit=10, by="block", seed=seed)]
        for seed in (1, 2)
    )
    assert first != other
    assert all(0.2 < np.mean(np.diff(rows) > 1) * 10 < 1.1 for rows in first)
    for part in staged(table, tmp_path / "l", 4, unit=1, by="balanced"):
        counts = np.bincount(np.asarray(part.table.read(0, len(part.table))["label"]))
        assert counts.min() >= 82
        assert counts.max() <= 85
    kinds = [
        part.table.read(0, len(part.table))["label"] for part in staged(texts(400), tmp_path / "t", 3, by="balanced")
    ]
    for value in (None, "0", "1", "2"):
        counts = [kind.to_pylist().count(value) for kind in kinds]
        assert max(counts) - min(counts) <= 2


def test_a_table_in_many_units_of_a_file_is_staged_by_a_few_chunks(tmp_path, monkeypatch):
    """Of Parquet, by all ways, with chunks smaller than the part, and rows that make no unit."""
    monkeypatch.setattr(staging, "CHUNK_BYTES", 4 << 10)
    monkeypatch.setattr(staging, "FLUSH_BYTES", 9 << 10)
    table = texts(3001)
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=300)
    for by in BYS:
        told, label = [], "label" if by == "balanced" else None
        tell = told.append
        part = stage(
            tmp_path / "t.parquet", tmp_path / by, 1, 3, by=by, unit=7, label=label,
            progress=lambda *at, tell=tell: tell(at),
        )  # fmt: skip
        rows = row_numbers(part.table)
        assert part.table.read(0, len(rows)) == pa.table(table.take(rows)).to_batches()[0]
        assert told[0] == (0, len(rows))
        assert told[-1] == (len(rows), len(rows))
        assert len(told) > 5
        part.verify()


@pytest.mark.parametrize("make", [numbers, texts])
def test_all_of_a_part_was_flushed_to_the_device(tmp_path, monkeypatch, make):
    """A file is synchronised after its last write, a folder after its last new name."""
    flushed = {}

    def recorded(synchronise, handle):
        synchronise(handle)
        facts = os.fstat(handle)
        folder = stat.S_ISDIR(facts.st_mode)
        flushed[facts.st_ino] = {entry.name for entry in os.scandir(handle)} if folder else facts.st_mtime_ns

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, partial(recorded, getattr(os, name)))
    parts = staged(make(300), tmp_path, 2, unit=3)
    again = restage([part.folder for part in parts], tmp_path / "again", 0, 1)
    for folder in (Path(part.folder) for part in (*parts, again)):
        for path in (folder, *folder.rglob("*")):
            found = flushed.get(path.stat().st_ino, set())
            if path.is_dir():
                assert {inner.name for inner in path.iterdir()} <= found, path
            else:
                assert path.stat().st_mtime_ns == found, path


KILLED = """
import os, signal, sys
sys.path.insert(0, {support!r})
import stagedrows
from corgipile.exchange import places, staging
staging.CHUNK_BYTES, staging.FLUSH_BYTES = 2 << 10, 5 << 10
left = int(sys.argv[1])
for kind in (places.Slots, places.Files):
    def counted(self, at, data, starts, lengths, write=kind.write):
        global left
        left -= 1
        if left < 0:
            half = max(1, len(at) // 2)  # some of it is there, unnoted
            write(self, at[:half], data, starts[:half], lengths[:half])
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, at, data, starts, lengths)
    kind.write = counted
staging.stage(getattr(stagedrows, sys.argv[2])(2000), sys.argv[3], 1, 2, unit=3, by="strided")
"""


@pytest.mark.parametrize("make", [numbers, texts])
def test_what_was_killed_goes_on(tmp_path, make):
    """At random points; then bytes that were noted are damaged, which is found, too."""
    script = KILLED.format(support=str(Path(stagedrows.__file__).parent))
    whole = stage(make(2000), tmp_path / "whole", 1, 2, unit=3, by="strided")
    for point in np.random.default_rng(0).choice(7, 2, replace=False).tolist():
        words = [sys.executable, "-c", script, str(point), make.__name__, str(tmp_path / "p")]
        killed = subprocess.run(words, capture_output=True, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        with pytest.raises(MissingFile, match="is incomplete"):
            cp.open(tmp_path / "p")
    noted = (tmp_path / "p" / "staging-sums").stat().st_size // 4
    damaged = tmp_path / "p" / ("slots" if make is numbers else "units/1")
    if noted:
        data = damaged.read_bytes()
        damaged.write_bytes(data[:90] + bytes([data[90] ^ 4]) + data[91:])
    told = []
    part = stage(make(2000), tmp_path / "p", 1, 2, unit=3, by="strided", progress=lambda *at: told.append(at))
    assert told[0][0] == (3 if noted else 0) or (make is numbers and told[0][0] < 3 * noted)
    part.verify()
    rows = len(whole.table)
    assert part.table.read(0, rows) == whole.table.read(0, rows)
    assert {path.name for path in part.folder.iterdir()} == {path.name for path in whole.folder.iterdir()}
    assert (stage(make(2000), tmp_path / "p", 1, 2, unit=3, by="strided").live == part.live).all()  # which does nothing


def test_what_is_there_is_not_written_over(tmp_path):
    table = numbers(100)
    pq.write_table(table, tmp_path / "t.parquet")
    part = stage(table, tmp_path / "p", 0, 2)
    for options, what in (({"unit": 5}, "another unit"), ({"by": "block"}, "another by")):
        with pytest.raises(WouldOverwrite, match=f"holds a part with {what}"):
            stage(table, tmp_path / "p", 0, 2, **options)
    with pytest.raises(WouldOverwrite, match="with another rows"):
        stage(numbers(101), tmp_path / "p", 0, 2)
    (tmp_path / "begun").mkdir()
    shutil.copy(tmp_path / "p" / "manifest.json", tmp_path / "begun" / "staging.json")
    with pytest.raises(WouldOverwrite, match="an unfinished part with another rank"):
        stage(table, tmp_path / "begun", 1, 2)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(WouldOverwrite, match="holds other files"):
        stage(table, tmp_path / "mine", 0, 2)
    with pytest.raises(WriteFailed, match=r"Not a directory|File exists"):
        stage(table, tmp_path / "mine" / "letter.txt", 0, 2)
    (tmp_path / "tables").mkdir()
    shutil.move(tmp_path / "t.parquet", tmp_path / "tables")
    with pytest.raises(WouldOverwrite, match="a source: name a folder elsewhere"):
        stage(tmp_path / "tables", tmp_path / "tables" / "part", 0, 2)
    with pytest.raises(WouldOverwrite, match="a source: name a folder elsewhere"):
        restage([part.folder, stage(table, tmp_path / "q", 1, 2).folder], part.folder / "new", 0, 1)
    with staging._lock(tmp_path / "begun"):
        shutil.copy(tmp_path / "p" / "manifest.json", tmp_path / "begun" / "staging.json")
        with pytest.raises(WouldOverwrite, match="locked by another process that stages into"):
            stage(table, tmp_path / "begun", 0, 2)


def test_what_is_wrong_is_said(tmp_path):
    table = numbers(100)
    for options, what in (
        ({"by": "sorted"}, "by must be"),
        ({"by": "balanced"}, "label must be given for by='balanced' only"),
        ({"label": "label"}, "label must be given for by='balanced' only"),
        ({"rank": 2}, "rank must be from 0 to world - 1"),
        ({"in_place": True, "table": texts(9)}, "in_place needs numeric columns"),
        ({"table": numbers(0)}, "at least 2, one per rank, got 0"),
        ({"folder": "s3://bucket/part"}, "only local files are written"),
    ):
        given = {"table": table, "folder": tmp_path / "x", "rank": 0, "world": 2} | options
        with pytest.raises(BadArgument, match=what):
            stage(**given)
    with pytest.raises(BadArgument, match="at most 65,536 values"):
        stage(pa.table({"label": np.arange(70_000)}), tmp_path / "x", 0, 2, by="balanced", label="label")
    with pytest.raises(BadSchema, match="cannot be compared"):
        stage(pa.table({"label": [[1], [2]]}), tmp_path / "x2", 0, 2, by="balanced", label="label")
    nulls = pa.table({"x": [1, None, 3]})
    with pytest.raises(BadValue, match="'x' must have no nulls"):
        stage(nulls, tmp_path / "n", 0, 1)
    assert stage(nulls, tmp_path / "n2", 0, 1, in_place=False).table.read(0, 3)["x"].to_pylist() == [1, None, 3]


def test_parts_of_an_epoch_are_restaged(tmp_path):
    table = numbers(60)
    parts = staged(table, tmp_path, 3, unit=1)
    for part in parts:
        part.begin(0)
        part.prepare(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint32))
    for part in parts[:2]:
        part.commit()  # the third was stopped before it
    folders = [part.folder for part in parts]
    new = restage(folders[::-1], tmp_path / "new", 0, 1, unit=2)
    assert (new.epoch, parts[2].epoch) == (1, 0)
    assert sorted(row_numbers(new.table)) == list(range(60))
    with pytest.raises(BadArgument, match=r"parts must be all 3, got 2, ranks \[1\] are missing"):
        restage([folders[0], folders[2]], tmp_path / "no", 0, 1)
    with pytest.raises(BadArgument, match="a rank is repeated"):
        restage([*folders, folders[0]], tmp_path / "no", 0, 1)
    with pytest.raises(BadArgument, match="one table and world, got several"):
        restage([*folders[:2], stage(numbers(61), tmp_path / "other", 2, 3).folder], tmp_path / "no", 0, 1)
    with pytest.raises(BadArgument, match="parts must name those of all old ranks"):
        restage([], tmp_path / "no", 0, 1)
    slots = folders[1] / "slots"
    slots.write_bytes(slots.read_bytes()[:-2] + b"ab")
    with pytest.raises(CorruptFile, match="1: unit 19 is damaged"):
        restage(folders, tmp_path / "no", 1, 3)
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("make", [numbers, texts])
def test_a_full_disk_is_an_error_and_staging_goes_on(tmp_path, make, monkeypatch):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1200, limits[1]))
        with pytest.raises(WriteFailed, match="File too large") as failed:
            stage(make(103), tmp_path / "p", 0, 1, unit=50)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert failed.value.errno == errno.EFBIG
    assert "Staged units are kept" in str(failed.value)
    assert len(stage(make(103), tmp_path / "p", 0, 1, unit=50).table) == 103
    monkeypatch.setattr(places.shutil, "disk_usage", lambda _: SimpleNamespace(free=9))
    with pytest.raises(WriteFailed, match=r"are needed, 9 B are free"):
        stage(make(103), tmp_path / "q", 0, 1)
    assert not (tmp_path / "q").exists()


FULL = """
import sys
import pyarrow as pa
from corgipile.errors import WriteFailed
from corgipile.exchange import stage
rows = pa.table({"text": ["x"] * 300 + ["y" * 40_000] * 60 + ["x"] * 1500})
for attempt in range(2):
    try:
        stage(rows, sys.argv[1] + "/p", 0, 1, unit=30)
    except WriteFailed as error:
        print(error)
    rows_small = pa.table({"x": range(1 << 17)})
    try:
        stage(rows_small, sys.argv[1] + "/q", 0, 1)
    except WriteFailed as error:
        print(error)
"""


def test_a_small_file_system_that_is_full(tmp_path):
    """Long rows that no sample saw fill it midway; what surely has no room is not begun."""
    if not Path("/usr/bin/unshare").exists():
        pytest.skip("there is no unshare, with which a file system is mounted for one process")
    mount = f'mount -t tmpfs -o size=1m tmpfs "{tmp_path}" && exec "{sys.executable}" -c "$0" "{tmp_path}"; exit 77'
    done = subprocess.run(
        ["/usr/bin/unshare", "-rm", "sh", "-c", mount, FULL], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no file system may be mounted here: {done.stderr.strip()[-80:]}")
    first, second, *again = done.stdout.splitlines()
    assert "No space left on device. Staged units are kept" in first
    assert "are free" in second
    assert "/q" in second
    assert len(again) == 2
