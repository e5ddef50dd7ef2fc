"""Indexes of TFRecord files: explicit, stored and stale ones; damaged records raised or skipped."""

import pytest
from tfrecords import example, frame, names_in, numbered, rows_of, text_index, write

from corgipile import cli
from corgipile.errors import (
    BadArgument,
    BadSchema,
    BadValue,
    CorruptFile,
    MissingFile,
    RaggedRows,
)
from corgipile.tables import open as open_table
from corgipile.tables.formats.tfrecord import index as recordindex
from corgipile.tables.formats.tfrecord.table import TFRecordTable


def test_index_is_kept_and_rebuilt(tmp_path, monkeypatch):
    path = write(tmp_path / "a.tfrecord", [b"one", b"two"])
    scans = []
    scan = recordindex.scan
    monkeypatch.setattr(recordindex, "scan", lambda *args: scans.append(args) or scan(*args))
    assert [len(TFRecordTable(path)) for _ in range(2)] == [2, 2]
    assert len(scans) == 1
    assert names_in(tmp_path) == ["a.tfrecord", "a.tfrecord.corgipile-index.arrow"]
    write(path, [b"one", b"two", b"three"])
    assert len(TFRecordTable(path)) == 3
    assert len(scans) == 2


@pytest.mark.parametrize("end", [".idx", ".index"])
def test_text_indexes(tmp_path, monkeypatch, end):
    records = numbered(20)
    path = write(tmp_path / "a.tfrecord", records)
    text_index(path, records, end)
    monkeypatch.setattr(recordindex, "scan", None)
    assert open_table(path).read(3, 5).to_pylist() == rows_of([3, 4])
    assert open_table(tmp_path).take([7, 2]).to_pylist() == rows_of([7, 2])
    assert open_table(f"{tmp_path}/*").read(19, 20).to_pylist() == rows_of([19])
    (tmp_path / f"a.tfrecord{end}").rename(tmp_path / f"a{end}")
    assert len(open_table(f"{tmp_path}/*")) == 20
    (tmp_path / f"a{end}").rename(tmp_path / "places")
    assert len(open_table(path, index=tmp_path / "places")) == 20
    with pytest.raises(MissingFile, match="no index at"):
        open_table(path, index=tmp_path / "nowhere")
    with pytest.raises(BadArgument, match="does not mark bad records"):
        open_table(path, index=tmp_path / "places", on_bad="skip")
    first = len(frame(records[0]))
    for text in ("0 x\n", "0\n", "0 70\n0 70\n", "0 15\n", "-1 70\n", "0 9999999\n", "99999999999999999999 3\n"):
        (tmp_path / "places").write_text(text)
        with pytest.raises(CorruptFile, match=str(tmp_path)):
            open_table(path, index=tmp_path / "places")
    (tmp_path / "places").write_text(f"0 {first - 1}\n{first - 1} {path.stat().st_size - first + 1}\n")
    with pytest.raises(CorruptFile, match=r"record 0 at byte 0: its length differs from that in the index"):
        open_table(path, index=tmp_path / "places")


def test_a_text_index_of_another_state_is_refused(tmp_path):
    """An incomplete index is rejected, since appended records or truncated lines would be lost."""
    records = numbered(20)
    path = write(tmp_path / "a.tfrecord", records)
    size = path.stat().st_size
    text_index(path, records)
    index = tmp_path / "a.tfrecord.idx"
    lines = index.read_text().splitlines(keepends=True)
    index.rename(tmp_path / "places")
    for kept, end in ((20, size), (7, int(lines[7].split()[0])), (0, 0)):
        index.write_text("".join(lines[:kept]))
        (tmp_path / "places").write_text("".join(lines[:kept]))
        if kept == 20:
            path.write_bytes(path.read_bytes() + frame(records[0]))
        for options in ({}, {"index": tmp_path / "places"}):
            told = rf"the index must end with the file at byte \d+, got {end}: it is outdated.*`corgipile index`"
            with pytest.raises(CorruptFile, match=told):
                open_table(path, **options)
    assert cli.main(["index", str(path)]) == 0
    assert len(open_table(path)) == 21
    index.write_text("")
    assert len(open_table(write(path, []))) == 0


def test_a_text_index_leaves_records_out_where_it_is_asked_for(tmp_path):
    records = numbered(20)
    path = write(tmp_path / "a.tfrecord", records)
    text_index(path, records)
    index = tmp_path / "a.tfrecord.idx"
    lines = index.read_text().splitlines(keepends=True)
    for left in ([0], [3, 4, 11]):
        index.write_text("".join(line for i, line in enumerate(lines) if i not in left))
        table = open_table(path, index=index)
        assert table.read(0, len(table)).to_pylist() == rows_of(i for i in range(20) if i not in left)
        with pytest.raises(CorruptFile, match=r"omits bytes \d+ to \d+; .*pass index="):
            open_table(path)


def damaged(path, records, at, byte=0xFF):
    """Write records with one byte of record 5 changed, at an offset in its frame."""
    data = bytearray(b"".join(map(frame, records)))
    data[sum(len(record) + 16 for record in records[:5]) + at] ^= byte
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("at", "bad", "why"),
    [(0, 5, "length"), (7, 5, "length"), (9, 5, "length"), (12, 5, "data"), (40, 5, "data"), (-1, 4, "data")],
)
def test_a_bad_record_is_told_or_left_out(tmp_path, manners, at, bad, why):
    path, records = tmp_path / "a.tfrecord", numbered(12)
    data = bytearray(b"".join(map(frame, records)))
    data[sum(len(record) + 16 for record in records[:5]) + at] ^= 0x81
    path.write_bytes(data)
    told = rf"a.tfrecord, record {bad} at byte \d+: the CRC of the {why} is wrong"
    for _ in range(2):
        with pytest.raises(CorruptFile, match=told):
            TFRecordTable(path)
    table = TFRecordTable(path, on_bad="skip")
    assert table.skipped == 1
    assert table.read(0, 11).to_pylist() == rows_of(i for i in range(12) if i != bad)
    manners(table)
    text_index(path, records)
    (tmp_path / "a.tfrecord.corgipile-index.arrow").unlink()
    table = TFRecordTable(path, decode=False)
    assert table.read(0, bad).column(0).to_pylist() == records[:bad]
    for ask in (lambda: table.read(3, 8), lambda: table.take([9, bad]), lambda: TFRecordTable(path)):
        with pytest.raises(CorruptFile, match=told):
            ask()
    assert open_table(path, on_bad="skip").skipped == 1


def test_several_bad_stretches(tmp_path):
    frames = [frame(record) for record in numbered(40)]
    frames[3] = frames[3][:20]  # the following records are located again
    frames[10] = b"rubbish" * 30
    frames[39] = frames[39][:-1]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(frames))
    table = TFRecordTable(path, on_bad="skip")
    left = [i for i in range(40) if i not in (3, 10, 39)]
    assert table.read(0, len(table)).to_pylist() == rows_of(left)
    assert table.skipped == 3
    with pytest.raises(
        CorruptFile, match=r"record 3 at byte \d+: the CRC of the data is wrong; skip bad records with on_bad=\"skip\""
    ):
        TFRecordTable(path)


def test_a_truncated_shard(tmp_path):
    path, records = tmp_path / "a.tfrecord", numbered(8)
    whole = b"".join(map(frame, records))
    for cut in (1, 20, len(whole) - 1, len(whole) - 30):
        path.write_bytes(whole[:cut])
        with pytest.raises(CorruptFile, match=r"record \d at byte \d+: the file is trunc"):
            TFRecordTable(path)
        assert TFRecordTable(path, on_bad="skip").skipped == 1
    text_index(path, records)
    (tmp_path / "a.tfrecord.corgipile-index.arrow").unlink()
    with pytest.raises(CorruptFile, match=r"the file is truncated, or the index is of another file"):
        TFRecordTable(path)
    path.write_bytes(whole)
    table = TFRecordTable(path)
    path.write_bytes(whole[:-30])
    for ask in (lambda: table.read(0, 8), lambda: table.take([7, 1])):
        with pytest.raises(CorruptFile, match=r"a.tfrecord.* the file has|a.tfrecord has \d+ bytes now"):
            ask()


def test_rows_that_do_not_fit_the_columns(tmp_path):
    path, rows = tmp_path / "a.tfrecord", numbered(200)
    for bad, error, message in [
        (example({"label": (3, [1])}), BadValue, "has no feature 'ids'"),
        (example({"ids": (3, [1]), "label": (2, [1.0]), "name": (1, [b""]), "x": (2, [1, 2])}), BadSchema,
         "feature 'label' must hold int values, got float"),
        (example({"ids": (3, [1]), "label": (3, [1, 2]), "name": (1, [b""]), "x": (2, [1, 2])}), RaggedRows,
         r"feature 'label' must have 1 values, got 2; .*features={'label': pyarrow.list_\(pyarrow.int64\(\)\)}"),
        (example({"ids": (3, [1]), "label": (3, [1]), "name": (1, [b""]), "x": (3, [])}), BadSchema, "got int"),
        (b"no message", CorruptFile, "is not a tensorflow.Example message"),
    ]:  # fmt: skip
        write(path, [*rows[:50], bad, *rows[50:]])
        table = TFRecordTable(path)
        with pytest.raises(error, match=rf"a.tfrecord, record 50 at byte \d+: .*{message}"):
            table.read(40, 60)
        with pytest.raises(error, match=r"record 50 at byte"):
            table.take([3, 50])
        skipping = TFRecordTable(path, on_bad="skip")
        assert skipping.skipped == 1
        assert skipping.read(0, len(skipping)).to_pylist() == rows_of(range(200))
        assert len(TFRecordTable(path, on_bad="skip", decode=False)) == 201
    assert TFRecordTable(path, features=["label"]).read(0, 50).column(0).to_pylist() == list(range(50))
