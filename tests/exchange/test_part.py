"""A rank's part on disk: a table as others are, whole after any stop, and clear about what is wrong."""

import errno
import resource
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import BadArgument, BadValue, CorruptFile, MissingFile, StateMismatch, WouldOverwrite, WriteFailed
from corgipile.exchange import LocalPart, places
from corgipile.testing import check_table

NUMBERS = pa.table({"row": np.arange(103), "y": np.arange(103, dtype=np.float32) / 2})
TEXTS = pa.table({"row": np.arange(103), "text": [None if at % 7 == 0 else "x" * at for at in range(103)]})


def swapped(part, slots):
    """Exchange units of a part among themselves, as they would come from others."""
    free = part.begin(len(slots))
    data, lengths = part.places.read(part.live[slots])
    part.places.write(free.tolist(), np.split(data, np.cumsum(lengths)[:-1]))
    part.prepare(slots, free)


@pytest.mark.parametrize("table", [NUMBERS, TEXTS], ids=["numbers", "texts"])
@pytest.mark.parametrize("unit", [1, 8])
def test_parts_are_tables_of_all_rows(tmp_path, table, unit):
    parts = [LocalPart.create(table, tmp_path / f"{rank}", rank, 3, unit=unit) for rank in range(3)]
    found = pa.concat_tables([pa.Table.from_batches([part.table.read(0, len(part.table))]) for part in parts])
    assert found.sort_by("row").equals(table)
    swapped(parts[1], np.array([0, 2]))
    parts[1].commit()
    part = LocalPart(tmp_path / "1").table
    rows = pa.Table.from_batches([part.read(0, len(part))])
    assert sorted(rows["row"].to_pylist()) == sorted(parts[1].table.read(0, len(part))["row"].to_pylist())
    check_table(part, rows)
    loader = cp.Loader(part, order="riffle", batch_size=7, columns=["row"])
    assert sorted(np.concatenate([batch["row"] for batch in loader]).tolist()) == sorted(rows["row"].to_pylist())


def test_a_step_is_taken_wholly_or_not_at_all(tmp_path):
    part = LocalPart.create(NUMBERS, tmp_path / "p", 0, 1, unit=1)
    rows = part.table.read(0, 103)
    before = part.table.fingerprint
    for stop in ("begun", "written", "prepared", "committed"):
        at = LocalPart(tmp_path / "p")
        if stop == "begun":
            at.places.write(at.begin(5).tolist(), [bytes(12)] * 5)
        elif stop == "written":
            at.places.write(at.begin(7).tolist(), [bytes(12)] * 7)
            (tmp_path / "p" / "manifest-next.json.new").write_text("{")
        else:
            swapped(at, np.arange(0, 103, 9))
        if stop == "committed":
            at.commit()
        found = LocalPart(tmp_path / "p")
        assert found.epoch == (stop == "committed")
        assert sorted(found.table.read(0, 103)["row"].to_pylist()) == rows["row"].to_pylist()
        assert (found.table.fingerprint == before) == (stop != "committed")
    assert found.standing == (1, -1, 0)
    found.go_back()
    assert found.standing == (0, 1, -1)
    assert found.table.read(0, 103) == rows
    found.commit()
    assert found.epoch == 1
    found.begin(0)
    assert found.standing == (1, -1, -1)


def test_what_is_wrong_is_said(tmp_path, monkeypatch):
    with pytest.raises(MissingFile, match=r"holds no part of a table: LocalPart\.create"):
        LocalPart(tmp_path)
    with pytest.raises(BadArgument, match="103 rows for 200 ranks"):
        LocalPart.create(NUMBERS, tmp_path / "a", 3, 200)
    with pytest.raises(BadArgument, match="in_place needs columns of numbers"):
        LocalPart.create(TEXTS, tmp_path / "a", 0, 2, in_place=True)
    nulls = pa.table({"x": [1, None, 3]})
    with pytest.raises(BadValue, match="'x' has nulls"):
        LocalPart.create(nulls, tmp_path / "n", 0, 1)
    assert LocalPart.create(nulls, tmp_path / "n2", 0, 1, in_place=False).table.read(0, 3)["x"].to_pylist() == [
        1,
        None,
        3,
    ]
    part = LocalPart.create(NUMBERS, tmp_path / "p", 0, 2)
    with pytest.raises(WouldOverwrite, match="holds a part already"):
        LocalPart.create(NUMBERS, tmp_path / "p", 0, 2)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(WouldOverwrite, match="holds other files"):
        LocalPart.create(NUMBERS, tmp_path / "mine", 0, 2)
    live = tmp_path / "p" / part.said["live"]
    live.write_bytes(live.read_bytes()[:-1] + b"\x01")
    with pytest.raises(CorruptFile, match="its checksum is another"):
        LocalPart(tmp_path / "p")
    manifest = tmp_path / "p" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 9'))
    with pytest.raises(StateMismatch, match="is of version 9; this corgipile reads 1"):
        LocalPart(tmp_path / "p")
    manifest.write_text("{")
    with pytest.raises(CorruptFile, match="is damaged"):
        LocalPart(tmp_path / "p")


@pytest.mark.parametrize("table", [NUMBERS, TEXTS], ids=["numbers", "texts"])
def test_a_full_disk_is_an_error_and_the_copy_can_be_made_again(tmp_path, table, monkeypatch):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
        with pytest.raises(WriteFailed, match="File too large") as failed:
            LocalPart.create(table, tmp_path / "p", 0, 1, unit=8)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert failed.value.errno == errno.EFBIG
    assert len(LocalPart.create(table, tmp_path / "p", 0, 1, unit=8).table) == 103
    monkeypatch.setattr(places.shutil, "disk_usage", lambda _: SimpleNamespace(free=9))
    with pytest.raises(WriteFailed, match=r"are needed, 9 B are free"):
        LocalPart.create(table, tmp_path / "q", 0, 1)
