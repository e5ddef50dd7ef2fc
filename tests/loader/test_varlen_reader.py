"""Variable-length rows read by the kernel equal those of record batches, within the budget, and damage is detected."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile import _kernel
from corgipile.errors import BadSparseRow, CorruptFile
from corgipile.loader import BufferedReader
from corgipile.loader.in_place import LayoutReader
from corgipile.loader.varlen import Varlen
from corgipile.loader.varlen_reader import VarlenReader
from corgipile.tables.row_mask import RowMask
from corgipile.tables.selection import MaskTable
from corgipile.tables.table import VarlenLayout

ROWS, BATCH = 1200, 170
ORDERS = ["no_shuffle", "block_only", "corgipile", "riffle", "balanced", "full", "sliding_window", "reservoir"]


def rows():
    random = np.random.default_rng(3)
    lengths = random.integers(0, 30, ROWS)
    lengths[::5] = 0
    ends, total = np.append(0, np.cumsum(lengths)), int(lengths.sum())
    wide = pa.LargeListArray.from_arrays(pa.array(ends), pa.array(random.standard_normal(total)))
    narrow = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(random.integers(0, 99, total), pa.int32()))
    text = [f"{i} grün " * int(length) for i, length in enumerate(lengths)]
    return pa.table(
        {
            "row": np.arange(ROWS),
            "label": (np.arange(ROWS) * 2 // ROWS).astype(np.int32),
            "narrow": narrow,
            "wide": wide,
            "text": text,
            "large": pa.array(text, pa.large_string()),
            "bytes": pa.array([one.encode() for one in text]),
        }
    )


def write(path, table, batch=BATCH):
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, batch)
    return path


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Return a file, and the same rows as three files and as a selection of a table."""
    folder, table = tmp_path_factory.mktemp("varlen"), rows()
    write(folder / "all.arrow", table)
    (folder / "parts").mkdir()
    for part in range(3):
        write(folder / f"parts/{part}.arrow", table.slice(part * 400, 400), 90)
    file = cp.open(folder / "all.arrow")
    picked = np.random.default_rng(1).random(ROWS) < 0.4
    return {
        "file": file,
        "files": cp.open(folder / "parts"),
        "picked": MaskTable(file, RowMask.of(picked)),
        "slice": cp.tables.slice(file, 33, -200),
        "columns": cp.tables.select(file, ["text", "label", "row"]),
    }


def batches(table, order, memory="60KB", **how):
    """Return a loader's rows in two epochs, and its reader."""
    with cp.Loader(table, batch_size=40, memory=memory, order=order, seed=4, format="arrow", **how) as loader:
        made = [batch.to_pylist() for _ in range(2) for batch in loader]
        return made, loader.feeder._reader()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["file", "files", "picked", "slice", "columns"])
def test_rows_are_those_of_record_batches(stored, name, order, monkeypatch):
    found, reader = batches(stored[name], order)
    assert type(reader) is VarlenReader
    monkeypatch.setattr(VarlenReader, "supports", staticmethod(lambda *_: False))
    expected, other = batches(stored[name], order)
    assert type(other) is not VarlenReader
    assert found == expected


def test_files_that_cannot_all_be_open_are_opened_in_turn(stored, monkeypatch):
    expected, _ = batches(stored["files"], "riffle")
    monkeypatch.setattr(LayoutReader, "hold", lambda self: False)
    found, reader = batches(stored["files"], "riffle")
    assert type(reader) is VarlenReader
    assert found == expected


def test_what_a_table_says_of_places(stored):
    names = ["narrow", "wide", "text", "large", "bytes", "row"]
    found = stored["files"].location(names).layout
    assert [Path(path).name for path in found.paths] == ["0.arrow", "1.arrow", "2.arrow"]
    assert {name: isinstance(column, VarlenLayout) for name, column in found.columns.items()} == {
        **dict.fromkeys(names, True),
        "row": False,
    }
    assert [found.columns[name].item for name in names[:5]] == [4, 8, 1, 1, 1]
    assert [found.columns[name].text for name in names[:5]] == [False, False, True, True, False]
    assert [found.columns[name].dtype.itemsize for name in names[:5]] == [4, 8, 4, 8, 4]
    assert stored["files"].layout(["narrow"]) is None
    assert cp.open(rows()).location(names) is None


@pytest.mark.parametrize("column", [pa.array(["a", None] * 50), pa.array([[1, None]] * 100), pa.array([["a"]] * 100)])
def test_other_rows_go_through_record_batches(tmp_path, column):
    table = cp.open(write(tmp_path / "a.arrow", pa.table({"x": column})))
    assert table.location(["x"]) is None
    made, reader = batches(table, "riffle")
    assert type(reader) is not VarlenReader
    assert sorted(str(row["x"]) for batch in made[: len(made) // 2] for row in batch) == sorted(
        map(str, column.to_pylist())
    )


@pytest.mark.parametrize("kind", [pa.int32(), pa.float32(), pa.float64()])
def test_lists_of_one_length_beside_text_are_read_as_numbers(tmp_path, kind):
    """Their values are read, not their offsets."""
    lists = pa.array([[i, i + 1, i + 2] for i in range(300)], pa.list_(kind))
    path = write(tmp_path / "a.arrow", pa.table({"x": lists, "text": [f"{i}" for i in range(300)]}))
    with cp.Loader(path, batch_size=100, order="no_shuffle") as loader:
        assert np.concatenate([batch["x"] for batch in loader]).tolist() == lists.to_pylist()


def test_a_mix_takes_nulls_of_one_file_and_none_of_another(tmp_path, stored):
    nulls = pa.table({"text": [None if i % 3 else f"{i}" * 40 for i in range(300)], "row": np.arange(300) + ROWS})
    other = cp.open(write(tmp_path / "nulls.arrow", nulls))
    mixed = cp.mix([(cp.tables.select(stored["file"], ["text", "row"]), 1), (other, 1)])
    made, _ = batches(mixed, "corgipile", "200KB")
    known = {row["row"]: row["text"] for row in rows().to_pylist()} | {
        row["row"]: row["text"] for row in nulls.to_pylist()
    }
    seen = [row for batch in made for row in batch]
    assert {type(row["text"]) for row in seen} == {str, type(None)}
    assert all(row["text"] == known[row["row"]] for row in seen)


@pytest.mark.parametrize("order", ORDERS)
def test_rows_stay_within_the_budget_and_are_let_go(stored, order):
    table = cp.tables.select(stored["file"], ["row", "label", "text"])
    with BufferedReader(table, order=order, memory="80KB") as feeder:
        least, most = feeder.buffer.nbytes, 0
        for visit in feeder.epoch(0):
            most = max(most, feeder.buffer.nbytes)
            taken = feeder.buffer.varlen.sizes(visit).sum()
            assert taken <= feeder.buffer.nbytes - least
    assert isinstance(feeder._reader(), VarlenReader)
    assert most < 1.4 * (80 << 10)


def test_few_rows_of_many_bundles_are_copied_together(stored, monkeypatch):
    copied = []
    original = Varlen._copy_rows
    monkeypatch.setattr(Varlen, "_copy_rows", lambda self, old: copied.append(old) or original(self, old))
    made, reader = batches(stored["file"], "reservoir", "300KB")
    assert isinstance(reader, VarlenReader)
    assert any((old < -1).any() for old in copied)
    known = rows().to_pylist()
    assert all(row == known[row["row"]] for batch in made for row in batch)


def broken(path, name, change):
    """Write rows after changing bytes of a column's offsets or items."""
    table = pa.table({name: rows()[name], "label": rows()["label"]})
    write(path, table)
    column = cp.open(path).location([name]).layout.columns[name]
    data = bytearray(path.read_bytes())
    change(data, column)
    path.write_bytes(data)
    return path


def offset(row, value):
    """Return a function that moves a row's end in the second record batch."""

    def change(data, column):
        wide = column.dtype.itemsize
        at = int(column.offsets[1]) + wide * (row + 1)
        data[at : at + wide] = value(column).to_bytes(wide, "little", signed=True)

    return change


FLAWS = {
    "falls": offset(7, lambda column: 1),
    "negative": offset(7, lambda column: -5),
    "far": offset(7, lambda column: int(column.counts[1]) + 1),
    "farther": offset(7, lambda column: (1 << (8 * column.dtype.itemsize - 1)) - 1),
}


@pytest.mark.parametrize("flaw", FLAWS)
@pytest.mark.parametrize("name", ["narrow", "wide", "text", "large", "bytes"])
@pytest.mark.parametrize("order", ["no_shuffle", "riffle", "full"])
def test_damaged_offsets_are_refused(tmp_path, flaw, name, order):
    path = broken(tmp_path / "a.arrow", name, FLAWS[flaw])
    with pytest.raises(CorruptFile, match=r"a\.arrow"):
        batches(cp.open(path), order)


@pytest.mark.parametrize("name", ["text", "large"])
def test_bytes_that_are_no_text_are_refused(tmp_path, name):
    def change(data, column):
        data[int(column.items[2])] = 0xFF

    path = broken(tmp_path / "a.arrow", name, change)
    with pytest.raises(CorruptFile, match=r"a\.arrow"):
        batches(cp.open(path), "riffle")


@pytest.mark.parametrize("order", ["no_shuffle", "corgipile", "full"])
def test_a_file_cut_short_while_it_is_read(tmp_path, order):
    path = write(tmp_path / "a.arrow", rows())
    with cp.Loader(cp.open(path), batch_size=40, memory="60KB", order=order) as loader:
        epoch = iter(loader)
        next(epoch)
        assert isinstance(loader.feeder._reader(), VarlenReader)
        with path.open("r+b") as file:
            file.truncate(int(path.stat().st_size * 0.3))
        with pytest.raises(CorruptFile, match=r"a\.arrow"):
            list(epoch)


def test_sparse_models_are_the_same_and_errors_name_row_and_file(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    places = np.sort(np.argsort(random.random((ROWS, 60)), axis=1)[:, :9].astype(np.int32), axis=1)
    values = random.standard_normal((ROWS, 9)).astype(np.float32)
    label = (values.sum(axis=1) > 0).astype(np.int32)

    def table(places):
        ends = np.arange(0, 9 * ROWS + 1, 9, dtype=np.int32)
        columns = {"x_k": pa.ListArray.from_arrays(ends, places.ravel())}
        return pa.table({**columns, "x_v": pa.ListArray.from_arrays(ends, values.ravel()), "label": label})

    path = write(tmp_path / "a.arrow", table(places))
    how = {"features": "x", "epochs": 2, "learning_rate": 0.1, "memory": "64KB", "seed": 1}
    found = {order: cp.train(path, order=order, **how).coef.tobytes() for order in ORDERS}
    places[701, 3] = places[701, 2]
    bad = write(tmp_path / "bad.arrow", table(places))
    with pytest.raises(BadSparseRow, match=r"row 701 of .*bad\.arrow.* repeat or fall"):
        cp.train(bad, order="riffle", **how)
    monkeypatch.setattr(VarlenReader, "supports", staticmethod(lambda *_: False))
    assert found == {order: cp.train(path, order=order, **how).coef.tobytes() for order in ORDERS}


def token_file(folder):
    """Write documents of numbers and text; return the file and its rows."""
    random = np.random.default_rng(5)
    tokens = [random.integers(0, 9, length).tolist() for length in random.integers(0, 400, 3000)]
    table = pa.table({"tokens": pa.array(tokens, pa.list_(pa.int32())), "text": [f"{i}" * 9 for i in range(3000)]})
    return write(folder / "tokens.arrow", table, 500), table


def tokens_of(batch, form):
    """Return a batch's lists of numbers."""
    return batch["tokens"].to_pylist() if form == "arrow" else [row.tolist() for row in batch["tokens"]]


@pytest.mark.parametrize("form", ["numpy", "torch", "arrow"])
def test_batches_that_are_held_stay_while_memory_is_reused(tmp_path, monkeypatch, form):
    if form == "torch":
        pytest.importorskip("torch")
    monkeypatch.setattr("corgipile.loader.groups.GATHER_BYTES", 32 << 10)  # several groups
    path, table = token_file(tmp_path)
    with cp.Loader(path, batch_size=20, memory="1MB", format=form, order="riffle") as loader:
        held = [(batch, tokens_of(batch, form)) for at, batch in enumerate(loader) if at % 3 == 0 or at > 140]
        assert all(tokens_of(batch, form) == rows for batch, rows in held)
        del held
        seen = [row for batch in loader for row in tokens_of(batch, form)]
    assert sorted(seen) == sorted(table["tokens"].to_pylist())


@pytest.mark.parametrize("form", ["numpy", "arrow"])
def test_groups_and_bundles_reuse_memory(tmp_path, monkeypatch, form):
    made = []
    empty = np.empty
    monkeypatch.setattr("corgipile.loader.groups.GATHER_BYTES", 32 << 10)
    path, _ = token_file(tmp_path)
    with cp.Loader(path, columns=["tokens"], batch_size=20, memory="1MB", format=form, order="riffle") as loader:
        for _ in loader:
            pass
        pool = loader._source._lender._pool
        monkeypatch.setattr(pool, "_make", lambda shape, kind: made.append(shape) or empty(shape, kind))
        bundles = loader.feeder.buffer.varlen._bundles
        freed = _kernel.bundles_look(bundles)[3]
        read = sum(
            batch["tokens"].nbytes if form == "arrow" else 4 * sum(map(len, batch["tokens"])) for batch in loader
        )
        assert pool._arrays
        assert len(made) < 3  # a group may be larger than those of the first epoch
        assert _kernel.bundles_look(bundles)[3] - freed < read / 2


def test_groups_across_steps_nulls_and_large_batches(tmp_path, monkeypatch):
    """A column may turn to one with nulls within a group, and a batch may exceed the memory that is reused."""
    monkeypatch.setattr("corgipile.loader.groups.GATHER_BYTES", 1 << 10)
    lists = [[i] * (i % 50) for i in range(600)]
    table = pa.table({"x": pa.array([None if i == 450 else one for i, one in enumerate(lists)], pa.list_(pa.int64()))})
    path = write(tmp_path / "a.arrow", table, 70)
    with cp.Loader(path, batch_size=37, memory="200KB", format="arrow", order="no_shuffle") as loader:
        assert [row for batch in loader for row in batch["x"].to_pylist()] == table["x"].to_pylist()
    with cp.Loader(path, batch_size=37, memory="200KB", order="no_shuffle") as loader:
        rows = [row for batch in loader for row in batch["x"]]
    assert [None if row is None else list(row) for row in rows] == table["x"].to_pylist()


def test_a_step_that_visits_the_whole_buffer_is_sized_in_parts(monkeypatch):
    """Sizing rows takes a few dozen bytes each, beside the budget."""
    sized, inner = [], Varlen.sizes
    monkeypatch.setattr(Varlen, "sizes", lambda self, visit: sized.append(len(visit)) or inner(self, visit))
    rows = pa.table({"text": [f"row {i}" for i in range(40_000)]})
    loader = cp.Loader(rows, order="corgipile", batch_size=64, memory="8MB")
    seen = [text for batch in loader for text in batch["text"]]
    assert sorted(seen) == sorted(rows["text"].to_pylist())
    assert sum(sized) >= 40_000
    assert max(sized) <= 8192
