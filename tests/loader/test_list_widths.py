"""List columns of one length become arrays of (rows, length) in every format; others stay lists."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.errors import BadArgument, BadSchema, BadValue, MissingColumn, RaggedRows
from corgipile.orders import Riffle

ROWS, WIDTH = 5000, 7


def lists(values, kind=None):
    offsets = pa.array(np.arange(len(values) + 1) * WIDTH, pa.int64() if kind else pa.int32())
    return (pa.LargeListArray if kind else pa.ListArray).from_arrays(offsets, pa.array(values.ravel()))


@pytest.fixture
def rows():
    values = np.arange(ROWS * WIDTH, dtype=np.float64).reshape(ROWS, WIDTH)
    return pa.table(
        {
            "row": np.arange(ROWS),
            "x": lists(values),
            "large": lists(values.astype(np.int16), "large"),
            "tokens": pa.array([list(range(i % 3 + 1)) for i in range(ROWS)], pa.list_(pa.int32())),
            "s_k": lists(values.astype(np.int32)),
            "s_v": lists(values),
        }
    )


def written(rows, form, path):
    if form == "parquet":
        pq.write_table(rows, path / "a.parquet", row_group_size=1500)
        return path / "a.parquet"
    if form == "two files":
        return [
            written(part, "parquet", (path / str(i), (path / str(i)).mkdir())[0])
            for i, part in enumerate((rows[:2000], rows[2000:]))
        ]
    if form == "memory":
        return rows
    options = pa.ipc.IpcWriteOptions(compression=form if form == "zstd" else None)
    with pa.ipc.new_file(str(path / "a.arrow"), rows.schema, options=options) as file:
        file.write_table(rows, max_chunksize=1500)
    return path / "a.arrow"


@pytest.mark.parametrize("form", ["parquet", "arrow", "zstd", "memory", "two files"])
def test_even_lists_are_arrays(rows, form, tmp_path):
    seen = []
    for batch in cp.Loader(cp.open(written(rows, form, tmp_path)), batch_size=64, memory="1MB", seed=3):
        assert batch["x"].dtype == np.float64
        assert np.array_equal(batch["x"], batch["row"][:, None] * WIDTH + np.arange(WIDTH))
        assert np.array_equal(batch["large"], batch["x"].astype(np.int16))
        assert [len(one) for one in batch["tokens"]] == (batch["row"] % 3 + 1).tolist()
        for name in ("s_k", "s_v"):
            assert batch[name].dtype == object
        seen += batch["row"].tolist()
    assert sorted(seen) == list(range(ROWS))


@pytest.mark.parametrize("workers", [0, 2])
def test_even_lists_are_tensors(rows, workers, tmp_path):
    torch, data = pytest.importorskip("torch"), pytest.importorskip("corgipile.torch")
    path = written(rows, "parquet", tmp_path)
    batch = next(iter(cp.Loader(path, batch_size=64, format="torch")))
    assert batch["x"].shape == (64, WIDTH)
    assert isinstance(batch["s_k"], tuple | list)
    dataset = data.CorgiPileDataset(path, batch_size=64)
    batches = list(torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers))
    assert all(batch["x"].shape == (len(batch["row"]), WIDTH) for batch in batches)
    ragged = data.CorgiPileDataset(path, batch_size=64, widths={})
    assert len(next(iter(ragged))["x"]) == 64
    assert not torch.is_tensor(next(iter(ragged))["x"])


def test_what_the_rest_of_an_epoch_holds_does_not_change_the_shape(rows):
    torch, data = pytest.importorskip("torch"), pytest.importorskip("corgipile.torch")
    lengths = np.full(ROWS, WIDTH)
    lengths[:3] = 1  # only the first rows are short: the rest of the epoch looks even
    offsets = pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32))
    table = pa.table({"row": np.arange(ROWS), "x": pa.ListArray.from_arrays(offsets, pa.array(np.ones(lengths.sum())))})
    dataset = data.CorgiPileDataset(table, batch_size=10, order="no_shuffle", columns=["row", "x"])
    batches = iter(dataset)
    next(batches)
    state = dataset.state_dict(1)
    again = data.CorgiPileDataset(table, batch_size=20, order="no_shuffle", columns=["row", "x"])
    again.load_state_dict(json.loads(json.dumps(state)))
    assert not torch.is_tensor(next(iter(again))["x"])


def test_arrow_batches_keep_the_type(rows):
    batch = next(iter(cp.Loader(cp.open(rows), batch_size=64, format="arrow")))
    assert batch.schema.field("x").type == pa.list_(pa.float64())
    batch = next(iter(cp.Loader(cp.open(rows), batch_size=64, format="arrow", widths={"x": WIDTH})))
    assert batch.schema.field("x").type == pa.list_(pa.float64(), WIDTH)


def uneven(at, length):
    """Make a table whose sampled rows have one length."""
    lengths = np.full(ROWS, WIDTH)
    lengths[at] = length
    offsets = pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32))
    return pa.table({"x": pa.ListArray.from_arrays(offsets, pa.array(np.arange(float(lengths.sum()))))})


@pytest.mark.parametrize("length", [0, WIDTH - 1, WIDTH + 1])
def test_a_ragged_row_is_named_with_a_way_to_read_it(length, tmp_path):
    table = cp.open(written(uneven(1234, length), "arrow", tmp_path))
    with pytest.raises(
        RaggedRows, match=rf"row 1234 of column 'x' has {length} numbers, 7 are needed.*give widths={{}}"
    ):
        list(cp.Loader(table, batch_size=64))
    seen = [len(row) for batch in cp.Loader(table, batch_size=64, widths={}) for row in batch["x"]]
    assert sorted(seen) == sorted([WIDTH] * (ROWS - 1) + [length])


def test_of_parquet_all_row_groups_are_counted(tmp_path):
    path = written(uneven(1234, WIDTH - 1), "parquet", tmp_path)
    assert next(iter(cp.Loader(path, batch_size=64)))["x"].dtype == object


@pytest.mark.parametrize("at", [0, ROWS // 2, ROWS - 1])
def test_rows_looked_at_that_differ_leave_lists(at):
    assert next(iter(cp.Loader(cp.open(uneven(at, 2)), batch_size=64)))["x"].dtype == object


def test_nulls_and_empty_lists_leave_lists():
    for row in (None, [], [None]):
        table = pa.table({"x": pa.array([row] * 9, pa.list_(pa.float32()))})
        assert next(iter(cp.Loader(cp.open(table), batch_size=4)))["x"].dtype == object
    late = pa.table({"x": pa.array([[1.0]] * 100 + [[None]] + [[1.0]] * 399, pa.list_(pa.float32()))})
    with pytest.raises(BadValue, match="row 100 of column 'x' holds a null"):
        list(cp.Loader(cp.open(late), batch_size=4))


def test_wide_even_rows_are_read_one_by_one(tmp_path):
    values = np.arange(40 * 5000, dtype=np.float64).reshape(40, 5000)
    column = pa.ListArray.from_arrays(pa.array(np.arange(41, dtype=np.int32) * 5000), pa.array(values.ravel()))
    path = written(pa.table({"x": column}), "arrow", tmp_path)
    loader = cp.Loader(path, batch_size=4, memory="1MB")
    assert loader.feeder.unbuffered
    seen = np.concatenate([batch["x"] for batch in loader])
    assert np.array_equal(seen[np.argsort(seen[:, 0])], values)


def test_states_of_lists_go_on_as_arrays(rows):
    order, table = Riffle(block=50, buffer=1000), cp.open(rows)
    before, after = (cp.Loader(table, batch_size=64, order=order, widths=widths) for widths in ({}, None))
    batches = iter(before)
    for _ in range(10):
        next(batches)
    after.load_state_dict(before.state_dict())
    for old, new in zip(batches, after, strict=True):
        assert np.array_equal(np.stack(old["x"]), new["x"])


def test_mistakes(rows):
    table = cp.open(rows)
    with pytest.raises(BadArgument, match="widths must be a dictionary"):
        cp.Loader(table, widths=["x"])
    with pytest.raises(BadArgument, match=r"widths\['x'\]"):
        cp.Loader(table, widths={"x": 0})
    with pytest.raises(BadSchema, match="column 'row' is int64"):
        cp.Loader(table, widths={"row": 3})
    with pytest.raises(MissingColumn, match="no column 'z'"):
        cp.Loader(table, widths={"z": 3})
    with pytest.raises(MissingColumn, match="no column 'z'"):
        cp.Loader(table, columns=["z"])
    with pytest.raises(BadArgument, match="list of names"):
        cp.Loader(table, columns="x")
    with pytest.raises(RaggedRows, match="row 0 of column 'x' has 7 numbers, 3 are needed"):
        list(cp.Loader(table, widths={"x": 3}, order="no_shuffle"))
