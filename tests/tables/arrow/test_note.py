"""The note before the footer saves reading batch metadata, and never yields wrong rows."""

import json
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile.errors import CorruptFile
from corgipile.tables.formats.arrow import metadata
from corgipile.tables.formats.arrow.file import ArrowFile
from corgipile.tables.formats.arrow.footer import read_footer
from corgipile.tables.formats.arrow.note import MARK, TAIL, apply_note, write_note
from corgipile.tables.io.files import File


def write(path, sizes, nulls=(), text=False):
    """Write record batches of these lengths; those in ``nulls`` have a null."""
    schema = pa.schema([("label", pa.int64()), ("text", pa.string()) if text else ("x", pa.list_(pa.float32(), 3))])
    at = 0
    with pa.ipc.new_file(path, schema) as writer:
        for i, size in enumerate(sizes):
            label = [None if i in nulls and k == 0 else at + k for k in range(size)]
            wide = ["a" * (at + k) for k in range(size)] if text else [[at + k] * 3 for k in range(size)]
            writer.write_batch(pa.record_batch([pa.array(label, pa.int64()), pa.array(wide, schema.types[1])], schema))
            at += size
    return path


def heads_read(monkeypatch):
    """Record the offsets of small reads."""
    seen = []
    gather = File.gather
    monkeypatch.setattr(File, "gather", lambda self, at, n: seen.append(np.asarray(at).tolist()) or gather(self, at, n))
    return seen


def put_note(path, text):
    """Insert a note with this text before the footer."""
    file = File(path)
    end = read_footer(file).end
    path.write_bytes(file.read(0, end) + text + TAIL.pack(len(text), MARK) + file.read(end, file.size - end))


def renote(path, said):
    """Replace the text of a note."""
    file = File(path)
    end = read_footer(file).end - TAIL.size
    length, _ = TAIL.unpack(file.read(end, TAIL.size))
    text = said.encode().ljust(length)
    assert len(text) == length
    with path.open("r+b") as out:
        out.seek(end - length)
        out.write(text)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=8), st.sets(st.integers(0, 7)), st.booleans())
def test_a_note_changes_nothing_but_the_way(tmp_path_factory, sizes, nulls, text):
    path = write(tmp_path_factory.mktemp("note") / "a.arrow", sizes, nulls, text)
    plain = ArrowFile(path)
    rows, places = plain.read(0, len(plain)).to_pylist(), plain.layout(["label"])
    write_note(path)
    table = ArrowFile(path)
    assert apply_note(File(path), read_footer(File(path))).rows.tolist() == sizes
    assert table.read(0, len(table)).to_pylist() == rows == pa.ipc.open_file(path).read_all().to_pylist()
    assert (table.layout(["label"]) is None) == (places is None)
    if places is not None:
        for name in ("starts", "files", "offsets"):
            assert np.array_equal(
                getattr(table.layout(["label"]).columns["label"], name), getattr(places.columns["label"], name)
            )


def test_heads_of_batches_that_are_alike_are_read_once(tmp_path, monkeypatch):
    path = write(tmp_path / "a.arrow", [100] * 20 + [50])
    write_note(path)
    seen = heads_read(monkeypatch)
    table = ArrowFile(path)
    assert len(table.layout(["label", "x"]).columns["x"].offsets) == 21
    blocks = read_footer(File(path)).blocks["offset"].tolist()
    assert set(chain(*seen)) == {blocks[0], blocks[20]}
    assert table.read(1990, 2010)["label"].to_pylist() == list(range(1990, 2010))


def test_heads_of_many_columns_are_read_a_few_at_a_time(tmp_path, monkeypatch):
    path = write(tmp_path / "a.arrow", [3] * 50)
    blocks = read_footer(File(path)).blocks
    monkeypatch.setattr(metadata, "MAX_BYTES_PER_READ", 7 * int(blocks["metadata"].max()))
    seen = heads_read(monkeypatch)
    assert len(ArrowFile(path).layout(["label"]).columns["label"].offsets) == 50
    assert max(map(len, seen)) == 7
    assert set(chain(*seen)) == set(blocks["offset"].tolist())


def test_batches_with_nulls_or_text_are_not_taken_for_alike(tmp_path):
    for name, options in {"nulls": {"nulls": {3}}, "text": {"text": True}}.items():
        path = write(tmp_path / name, [10] * 200, **options)
        before = ArrowFile(path).read(0, 2000).to_pylist()
        write_note(path)
        assert ArrowFile(path).read(0, 2000).to_pylist() == before


@pytest.mark.parametrize(
    "said",
    [
        "nonsense", "[1, 2]", "{}", '{"rows": 3, "alike": 1}',
        '{"rows": [[3, -1]], "alike": false}', '{"rows": [[2, 100], [0, 9], [1, 50]], "alike": true}',
        '{"rows": [[1e400, 1]], "alike": true}',
        '{"rows": [[3, 100]], "alike": true}',
    ],
)  # fmt: skip
def test_a_note_that_does_not_fit_is_passed_over(tmp_path, said):
    path = write(tmp_path / "a.arrow", [100, 100, 50])
    write_note(path)
    before = ArrowFile(path).read(0, 250).to_pylist()
    renote(path, said)
    assert apply_note(File(path), read_footer(File(path))).rows is None
    assert ArrowFile(path).read(0, 250).to_pylist() == before


@pytest.mark.parametrize(
    "text",
    [b"[" * 64_000, b'{"rows": ' * 7_000, json.dumps({"rows": [[1000, 1]], "alike": True}).encode().ljust(1 << 20)],
)
def test_a_deep_or_long_note_is_passed_over(tmp_path, text):
    path = write(tmp_path / "a.arrow", [1] * 1000)
    put_note(path, text)
    assert apply_note(File(path), read_footer(File(path))).rows is None
    assert ArrowFile(path).read(7, 9)["label"].to_pylist() == [7, 8]


@pytest.mark.parametrize("rows", [[[1, 100]], [[2, 100], [2, 50]]])
def test_a_note_of_more_or_fewer_batches_tells_a_damaged_footer(tmp_path, rows):
    path = write(tmp_path / "a.arrow", [100, 100, 50])
    write_note(path)
    renote(path, json.dumps({"rows": rows, "alike": False}))
    with pytest.raises(CorruptFile, match=r"the footer must name \d record batches of \d+ rows, got 3 batches"):
        ArrowFile(path)


def test_wrong_rows_are_an_error(tmp_path):
    path = write(tmp_path / "a.arrow", [100, 100, 50])
    write_note(path)
    renote(path, json.dumps({"rows": [[2, 100], [1, 51]], "alike": True}))
    with pytest.raises(CorruptFile, match="record batch 2 must have 51 rows, got 50"):
        ArrowFile(path).read(200, 250)


def test_whoever_rewrites_a_file_drops_its_note(tmp_path):
    path = write(tmp_path / "a.arrow", [100] * 3)
    write_note(path)
    assert MARK in path.read_bytes()
    rows = pa.ipc.open_file(path).read_all()
    with pa.ipc.new_file(tmp_path / "b.arrow", rows.schema) as writer:
        writer.write_table(rows.slice(1))
    assert MARK not in (tmp_path / "b.arrow").read_bytes()
    assert ArrowFile(tmp_path / "b.arrow").read(0, 299)["label"].to_pylist() == list(range(1, 300))
