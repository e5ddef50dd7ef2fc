"""The buffer releases rows after their visit."""

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import BadSchema, BadValue, BudgetTooSmall, RaggedRows
from corgipile.loader.buffer import Field, numbers
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.loader.selection import Selection
from corgipile.orders import CorgiPile, FullShuffle, Reservoir, Riffle, SlidingWindow

ROWS = 6000
TEXT = pa.table({"row": np.arange(ROWS), "text": [f"{i:06d}" * 20 for i in range(ROWS)]})


@pytest.mark.parametrize("order", [SlidingWindow(), Reservoir(), CorgiPile(), Riffle(), FullShuffle()])
def test_rows_of_varying_length_stay_within_the_budget(order):
    """Bounds resident arrays and batches, retired ones included, plus a fifth for offsets and rounding."""
    with BufferedReader(cp.open(TEXT), order=order, memory="100KB") as feeder:
        most = 0
        for visit in feeder.epoch(0):
            most = max(most, feeder.buffer.nbytes)
            assert [text[:6] for text in feeder.buffer.varlen.gather(visit)["text"].to_pylist()] == [
                f"{i:06d}" for i in feeder.buffer.dense("row")[visit]
            ]
    assert most < 1.2 * (100 << 10)


def test_ragged_rows_are_seen_where_they_lie():
    lists = [list(range(i, i + i % 4)) for i in range(500)]
    table = cp.open(pa.table({"row": np.arange(500), "k": pa.array(lists, pa.list_(pa.int32()))}))
    with BufferedReader(table, order=SlidingWindow(block=20, buffer=40)) as feeder:
        for visit in feeder.epoch(0):
            rows = feeder.buffer.dense("row")[visit]
            assert feeder.buffer.ragged("k")[1][visit].tolist() == [i % 4 for i in rows]
            varlen = feeder.buffer.varlen.gather(visit)["k"].to_pylist() if len(visit) else []
            assert varlen == [lists[i] for i in rows]


@pytest.mark.parametrize("order", ["no_shuffle", "full"])
def test_bad_rows_are_named(order):
    def read(column, **how):
        with BufferedReader(cp.open(pa.table({"x": column})), Selection(**how), order=order) as feeder:
            list(feeder.epoch(0))

    with pytest.raises(BadValue, match="row 5 of column 'x' is null"):
        read(pa.array([1.0, 1, 1, 1, 1, None]))
    with pytest.raises(RaggedRows, match="row 2 of column 'x' has 3 numbers, 2 are needed"):
        read(pa.array([[1, 2], [3, 4], [5, 6, 7]]), widths={"x": 2})
    with pytest.raises(BadSchema, match="'x' must hold numbers, got type string"):
        read(pa.array([["a"]]), widths={"x": 1}, casts={"x": np.float32})


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float32(), 3)])
def test_a_null_in_a_list_is_told_with_its_row(kind):
    lists = [[1.0, 2.0, 3.0]] * 700
    lists[681] = [1.0, None, 3.0]
    column = pa.array(lists, kind)
    field = Field("x", ("x",), np.dtype(np.float32), (3,))
    with pytest.raises(BadValue, match="row 681 of column 'x' holds a null"):
        numbers(column, field, 0, range(700))
    with pytest.raises(BadValue, match="row 1681 of column 'x' holds a null"):
        numbers(column.slice(600), field, 0, range(1600, 1700))


@pytest.mark.parametrize("form", ["numpy", "arrow"])
def test_rows_without_any_number_are_refused(form, tmp_path):
    table = pa.table({"row": range(10), "x": pa.array([[]] * 10, pa.list_(pa.float32(), 0))})
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as file:
        file.write_table(table)
    for given in (table, tmp_path / "a.arrow"):
        with pytest.raises(BadSchema, match=r"column 'x' is fixed_size_list.*\[0\]: its rows are empty; leave it out"):
            cp.Loader(given, batch_size=4, format=form)
        assert sum(len(batch["row"]) for batch in cp.Loader(given, batch_size=4, columns=["row"])) == 10


def test_absurd_sizes_are_refused_before_any_memory_is_taken():
    kind = pa.list_(pa.list_(pa.float32(), 2**31 - 1), 2**31 - 1)
    table = pa.table({"x": pa.array([], kind)})
    for order in ("riffle", Riffle(block=1, buffer=100)):
        with pytest.raises(BudgetTooSmall):
            cp.Loader(table, batch_size=4, order=order)


VIEWS = {
    "string_view": pa.array(["a" * 2 * i for i in range(10)], pa.string_view()),
    "binary_view": pa.array([b"a" * 2 * i for i in range(10)], pa.binary_view()),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays(pa.array([4, 10], pa.int32()), pa.array([1.0, 2.0])),
}


@pytest.mark.parametrize("kind", ["string_view", "binary_view"])
@pytest.mark.parametrize("order", ["riffle", "full"])
def test_views_are_text(kind, order):
    column = VIEWS[kind]
    table = pa.table({"x": column, "deep": pa.StructArray.from_arrays([column], ["y"]), "row": range(10)})
    for batch in cp.Loader(table, batch_size=4, order=order):
        assert batch["x"].tolist() == [column[row].as_py() for row in batch["row"].tolist()]
        assert batch["deep"].tolist() == [{"y": column[row].as_py()} for row in batch["row"].tolist()]


@pytest.mark.parametrize("kind", ["run_end_encoded"])
@pytest.mark.parametrize("form", ["numpy", "arrow"])
def test_types_of_which_no_rows_are_picked_are_refused_at_once(kind, form):
    column = VIEWS[kind]
    table = pa.table({"x": column, "deep": pa.StructArray.from_arrays([column], ["y"]), "row": range(10)})
    for name in ("x", "deep"):
        with pytest.raises(BadSchema, match=rf"column '{name}' is .*{kind}.*leave it out by columns="):
            cp.Loader(table, batch_size=4, columns=[name, "row"], format=form)
    assert sum(len(batch["row"]) for batch in cp.Loader(table, batch_size=4, columns=["row"])) == 10


def test_unions_are_objects():
    union = pa.UnionArray.from_sparse(pa.array([0, 1] * 2, pa.int8()), [pa.array([1, 2, 3, 4]), pa.array(list("abcd"))])
    batch = next(iter(cp.Loader(pa.table({"x": union, "row": range(4)}), batch_size=4, order="no_shuffle")))
    assert batch["x"].tolist() == [1, "b", 3, "d"]


@pytest.mark.parametrize("order", ["riffle", "sliding_window", "full"])
def test_what_is_noted_of_slots_counts_against_the_memory(order):
    table = cp.open(pa.table({"word": ["a", "bc"] * 100_000}))
    with BufferedReader(table, order=order, memory="1MB") as feeder:
        assert max(feeder.buffer.nbytes for _ in feeder.epoch(0)) <= 1.2 * (1 << 20)


@pytest.mark.parametrize("order", ["sliding_window", "reservoir"])
def test_streams_of_rows_that_are_mostly_short_stay_within_the_budget(order, tmp_path):
    """No sampled row is long, and the rows that stay keep whole batches in memory."""
    lengths = np.where(np.arange(16_050) % 100 == 80, 96 << 10, 600)
    flat = np.zeros(lengths.max(), np.uint8).tobytes()
    batches = [
        pa.record_batch({"blob": pa.array([flat[:length] for length in some.tolist()])})
        for some in np.array_split(lengths, 50)
    ]
    with pa.ipc.new_file(str(tmp_path / "t.arrow"), batches[0].schema) as file:
        for batch in batches:
            file.write_batch(batch)
    with BufferedReader(cp.open(tmp_path / "t.arrow"), order=order, memory="10MB") as feeder:
        most = seen = 0
        for visit in feeder.epoch(0):
            most, seen = max(most, feeder.buffer.nbytes), seen + len(visit)
    assert seen >= len(lengths)
    assert most <= feeder.buffer.most
