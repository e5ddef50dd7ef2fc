"""A rank's part on disk: whole after any stop, and clear about what is wrong."""

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import CorruptFile, MissingFile, StateMismatch
from corgipile.exchange import LocalPart, stage
from corgipile.exchange.places import sums_of
from corgipile.testing import check_table

NUMBERS = pa.table({"row": np.arange(103), "y": np.arange(103, dtype=np.float32) / 2})
TEXTS = pa.table({"row": np.arange(103), "text": [None if at % 7 == 0 else "x" * at for at in range(103)]})


def swapped(part, slots):
    """Exchange units of a part among themselves, as they would come from others."""
    free = part.begin(len(slots))
    data, lengths = part.places.read(part.live[slots])
    starts = np.cumsum(lengths) - lengths
    part.places.write(free, data, starts, lengths)
    part.prepare(slots, free, sums_of(data, starts, lengths))


@pytest.mark.parametrize("table", [NUMBERS, TEXTS], ids=["numbers", "texts"])
@pytest.mark.parametrize("unit", [1, 8])
def test_parts_are_tables_of_all_rows(tmp_path, table, unit):
    parts = [stage(table, tmp_path / f"{rank}", rank, 3, unit=unit) for rank in range(3)]
    found = pa.concat_tables([pa.Table.from_batches([part.table.read(0, len(part.table))]) for part in parts])
    assert found.sort_by("row").equals(table)
    swapped(parts[1], np.array([0, 2]))
    parts[1].commit()
    parts[1].verify()
    part = cp.open(tmp_path / "1")
    rows = pa.Table.from_batches([part.read(0, len(part))])
    assert sorted(rows["row"].to_pylist()) == sorted(parts[1].table.read(0, len(part))["row"].to_pylist())
    check_table(part, rows)
    loader = cp.Loader(part, order="riffle", batch_size=7, columns=["row"])
    assert sorted(np.concatenate([batch["row"] for batch in loader]).tolist()) == sorted(rows["row"].to_pylist())


def test_a_step_is_taken_wholly_or_not_at_all(tmp_path):
    part = stage(NUMBERS, tmp_path / "p", 0, 1, unit=1)
    rows = part.table.read(0, 103)
    before = part.table.fingerprint
    for stop in ("begun", "written", "prepared", "committed"):
        at = LocalPart(tmp_path / "p")
        if stop in ("begun", "written"):
            free = at.begin(5)
            at.places.write(free, np.zeros(60, np.uint8), np.arange(5) * 12, np.full(5, 12))
        if stop == "written":
            (tmp_path / "p" / "manifest-next.json.new").write_text("{")
        elif stop != "begun":
            swapped(at, np.arange(0, 103, 9))
        if stop == "committed":
            at.commit()
        found = LocalPart(tmp_path / "p")
        found.verify()
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


def test_what_is_damaged_is_said(tmp_path):
    with pytest.raises(MissingFile, match="has no finished part of a table: write it by corgipile partition"):
        LocalPart(tmp_path)
    part = stage(NUMBERS, tmp_path / "p", 0, 2)
    slots = tmp_path / "p" / "slots"
    data = slots.read_bytes()
    slots.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    with pytest.raises(CorruptFile, match="unit 3 is damaged"):
        part.verify()
    slots.write_bytes(data[:-1])
    with pytest.raises(CorruptFile, match="is damaged"):
        part.verify()
    live = tmp_path / "p" / part.header["live"]
    kept = live.read_bytes()
    live.write_bytes(kept[:-1] + b"\x01")
    with pytest.raises(CorruptFile, match="their checksum differs"):
        LocalPart(tmp_path / "p")
    live.write_bytes(kept)
    manifest = tmp_path / "p" / "manifest.json"
    text = manifest.read_text()
    for old, new, error in (
        ('"version": 2', '"version": 9', "must have version 2, got 9"),
        ('"unit": 1', '"unit": 2', "checksum differs"),
        ("{", "", "is damaged"),
    ):
        assert old in text
        manifest.write_text(text.replace(old, new))
        with pytest.raises((StateMismatch, CorruptFile), match=error):
            cp.open(tmp_path / "p")
