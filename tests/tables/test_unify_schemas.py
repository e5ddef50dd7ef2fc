"""Parts written separately by pandas or Spark form one table, or the error names a remedy."""

import logging
from itertools import permutations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.errors import BadSchema, BadValue
from corgipile.tables.encoded import unpack_shared
from corgipile.tables.unify_schemas import unify_schemas
from corgipile.testing import check_table

KINDS = pa.schema({"x": pa.float64(), "n": pa.int64(), "t": pa.string(), "v": pa.list_(pa.float64()), "y": pa.int64()})
ROWS = 60


def rows_of(seed, **other):
    rng = np.random.default_rng(seed)
    columns = {
        "x": rng.random(ROWS, np.float32),
        "n": rng.integers(0, 99, ROWS),
        "t": [f"t{i}" for i in range(ROWS)],
        "v": [[float(i)] * (i % 3) for i in range(ROWS)],
        "y": rng.integers(0, 2, ROWS),
    }
    return pa.table(columns | other).cast(KINDS)


def narrow(rows, **kinds):
    """Return rows with columns cast to other types; null columns have no cast."""
    for place, name in enumerate(rows.schema.names):
        if name in kinds:
            column = pa.nulls(len(rows)) if pa.types.is_null(kinds[name]) else rows[name].cast(kinds[name])
            rows = rows.set_column(place, name, column)
    return rows


def parts_of():
    """Return the parts as written, and the expected rows."""
    nothing = pa.nulls(ROWS)
    whole, other, empty = rows_of(1), rows_of(2), rows_of(3, t=nothing, v=nothing)
    parts = [
        narrow(KINDS.empty_table(), **dict.fromkeys(KINDS.names, pa.null())),
        whole,
        narrow(other, x=pa.float32(), n=pa.int32()).select(["y", "t", "v", "n", "x"]),
        narrow(empty, t=pa.null(), v=pa.null()),
    ]
    return parts, pa.concat_tables([whole, other, empty])


def write(path, rows):
    if path.suffix == ".parquet":
        pq.write_table(rows, path, row_group_size=25)
    else:
        with pa.ipc.new_file(path, rows.schema) as writer:
            writer.write_table(rows, max_chunksize=25)


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_parts_of_a_folder(tmp_path, caplog, suffix):
    parts, rows = parts_of()
    for number, part in enumerate(parts):
        write(tmp_path / f"{number}.{suffix}", part)
    with caplog.at_level(logging.INFO, "corgipile"):
        table = cp.open(tmp_path)
    assert table.schema.names == KINDS.names
    check_table(table, rows)
    assert f"0.{suffix}') has no rows and is left out" in caplog.text
    assert f"2.{suffix}'): column 'x' is read as double" in caplog.text
    check_table(cp.concat(sorted(tmp_path.iterdir())), rows)
    loader = cp.Loader(table.select(["x", "n", "y"]), batch_size=7, memory="1MB", seed=1)
    batches = list(loader)
    assert sorted(np.concatenate([batch["x"] for batch in batches]).tolist()) == sorted(rows["x"].to_pylist())
    model = cp.train(table, features=["x", "n"], label="y", epochs=1)
    assert model.history[0]["rows"] == 3 * ROWS


def test_parts_in_memory():
    parts, rows = parts_of()
    assert cp.open(parts).read(0, len(rows)).to_pylist() == rows.to_pylist()
    mixed = cp.mix([(part, 1.0) for part in parts[1:]])
    assert mixed.schema.types == KINDS.types


def test_columns_that_are_alike_keep_their_place(tmp_path):
    rows = rows_of(1).select(["x", "y"])
    write(tmp_path / "a.arrow", rows)
    write(tmp_path / "b.arrow", narrow(rows, x=pa.float32()))
    table = cp.open(tmp_path)
    assert table.layout(["y"]) is not None
    assert table.layout(["x"]) is None


def test_parts_that_are_unpacked(tmp_path):
    parts, rows = parts_of()
    for number, part in enumerate(parts[1:]):
        write(tmp_path / f"{number}.parquet", part)
    table = cp.open(tmp_path)
    for whole, expected in (
        (table, rows),
        (cp.concat([table.slice(5, 70), table.select(table.schema.names[::-1])]), [*rows.slice(5, 65).to_pylist()]),
    ):
        plain = unpack_shared(whole, whole.schema.names)
        assert plain is not whole
        found = plain.read(0, len(plain)).to_pylist()
        assert found[: len(expected)] == (expected if isinstance(expected, list) else expected.to_pylist())


def test_a_state_goes_on(tmp_path):
    parts, _ = parts_of()
    for number, part in enumerate(parts):
        write(tmp_path / f"{number}.parquet", part)

    def loader():
        return cp.Loader(cp.open(tmp_path).select(["x", "y"]), batch_size=10, memory="1MB", seed=3)

    first, coming = loader(), []
    for number, batch in enumerate(first):
        coming.append(batch["x"])
        if number == 5:
            state = first.state_dict()
    again = loader()
    again.load_state_dict(state)
    assert [batch["x"].tolist() for batch in again] == [batch.tolist() for batch in coming[6:]]


def test_parts_without_rows_of_the_same_columns_stay():
    rows = pa.table({"x": [1], "y": [2]})
    assert len(cp.open([rows.slice(1), rows, rows.slice(1).select(["y", "x"])]).tables) == 3
    assert len(cp.open([rows.slice(1), rows.slice(1)])) == 0


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ((pa.float64(), pa.string()), "column 'x' is string; in .* it is double: .*convert PART NEW --types x=double"),
        ((pa.int8(), pa.uint64()), "column 'x' is uint64; in .* it is int8"),
        ((pa.bool_(), pa.int64()), "it is bool: .*convert PART NEW --types x=int64"),
        ((pa.int64(), pa.bool_()), "it is int64: .*convert PART NEW --types x=int64"),
        ((pa.float32(), pa.list_(pa.float32())), "it is float: .*convert PART NEW --types x=float"),
        ((pa.list_(pa.int8()), pa.list_(pa.float32())), "rewrite one of them with the type of the other$"),
        ((pa.dictionary(pa.int8(), pa.string(), ordered=True), pa.string()), "rewrite categories as text .*x=string`$"),
    ],
)
def test_types_that_differ(kinds, message):
    with pytest.raises(BadSchema, match=message):
        cp.open([pa.table({"x": pa.nulls(1, kind)}) for kind in kinds])


WIDER = [
    ([pa.int32(), pa.float64()], pa.float64()),
    ([pa.float32(), pa.int32()], pa.float64()),
    ([pa.int16(), pa.float32()], pa.float32()),
    ([pa.uint32(), pa.int8()], pa.int64()),
    ([pa.uint8(), pa.int8(), pa.uint16()], pa.int32()),
    ([pa.uint16(), pa.uint32()], pa.uint32()),
    ([pa.int64(), pa.float64()], pa.float64()),
    ([pa.float32(), pa.int16(), pa.uint64()], pa.float64()),
]


@pytest.mark.parametrize(("kinds", "wanted"), WIDER, ids=str)
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_numbers_have_the_smallest_type_that_keeps_all(tmp_path, kinds, wanted, suffix):
    values = {kind: [0, 1, 100] if pa.types.is_floating(kind) else _ends(kind) for kind in kinds}
    for number, kind in enumerate(kinds):
        write(tmp_path / f"{number}.{suffix}", pa.table({"x": pa.array(values[kind], kind)}))
    table = cp.open(tmp_path)
    assert table.schema.field("x").type == wanted
    check_table(table, pa.table({"x": pa.array([one for kind in kinds for one in values[kind]], wanted)}))


def _ends(kind):
    bits = min(kind.bit_width, 53)  # a double's
    return [-(1 << bits - 1), 1, (1 << bits - 1) - 1] if pa.types.is_signed_integer(kind) else [0, 1, (1 << bits) - 1]


@pytest.mark.parametrize(
    "kinds",
    [
        (pa.int8(), pa.uint8(), pa.float16()),
        (pa.int16(), pa.uint16(), pa.float32()),
        (pa.int64(), pa.uint64(), pa.float64()),
    ],
)
def test_the_order_of_parts_makes_no_difference_to_their_type(kinds):
    tables = [cp.tables.MemoryTable(pa.table({"x": pa.array([1], kind)})) for kind in kinds]
    for order in permutations(tables):
        assert {str(table.schema.field("x").type) for table in unify_schemas(order)} == {str(kinds[-1])}


def test_the_part_that_differs_is_the_one_that_is_named():
    kinds = [pa.float32(), pa.int32(), pa.string(), pa.float64()]
    with pytest.raises(BadSchema, match=r"column 'x' is string; in .* it is double: .* --types x=double"):
        cp.open([pa.table({"x": pa.array([1]).cast(kind)}) for kind in kinds])


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()])
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_whole_numbers_that_double_does_not_keep_are_an_error_once_read(tmp_path, kind, suffix):
    large = [(1 << 53) + 1, None, 5, 1 << 53]
    parts = [pa.table({"x": pa.array(large, kind), "y": [1.0] * 4}), pa.table({"x": [0.5, None], "y": [2.0, 3.0]})]
    for number, part in enumerate(parts):
        write(tmp_path / f"{number}.{suffix}", part)
    table = cp.open(tmp_path)
    assert table.schema.field("x").type == pa.float64()
    assert table.read(1, 6).column("x").to_pylist() == [None, 5, 1 << 53, 0.5, None]
    assert table.read(0, 6, ["y"]).num_rows == 6
    with pytest.raises(BadValue, match=r"column 'x' has 9007199254740993, which double, .*, cannot hold"):
        table.take(np.array([5, 0]), ["x"])
    with pytest.raises(BadValue, match="column 'x' has 9007199254740993"):
        cp.convert(table, tmp_path / "all.arrow")
    assert not (tmp_path / "all.arrow").exists()


def test_a_column_of_nulls_is_of_any_type():
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([5, 6]))
    for column in (runs, pa.array([[1], None, [2]], pa.list_view(pa.int8()))):
        table = cp.concat([pa.table({"x": pa.nulls(2)}), pa.table({"x": column})])
        assert table.read(0, 5).column(0).to_pylist() == [None, None, *column.to_pylist()]
        assert table.take(np.array([4, 0]), ["x"]).column(0).to_pylist() == [column[2].as_py(), None]


TOGETHER = {
    "categories": (pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int16(), pa.string()), pa.string()),
    "categories and text": (pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.large_string()),
    "empty lists": (pa.list_(pa.null()), pa.list_(pa.string()), pa.list_(pa.string())),
    "wide lists": (pa.large_list(pa.string()), pa.list_(pa.large_string()), pa.large_list(pa.large_string())),
}


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("case", TOGETHER)
def test_text_and_lists_that_are_written_apart_are_of_one_type(tmp_path, case, suffix):
    *kinds, wanted = TOGETHER[case]
    values = [f"t{i % 7}" for i in range(ROWS)] if wanted.num_fields == 0 else [["a"] * (i % 3) for i in range(ROWS)]
    empty = [[], None] * (ROWS // 2)
    columns = [empty if kind == pa.list_(pa.null()) else values for kind in kinds]
    (tmp_path / "in").mkdir()
    for number, (column, kind) in enumerate(zip(columns, kinds, strict=True)):
        write(tmp_path / "in" / f"{number}.{suffix}", pa.table({"x": pa.array(column, kind), "y": list(range(ROWS))}))
    rows = pa.table({"x": pa.array(columns[0] + columns[1], wanted), "y": [*range(ROWS), *range(ROWS)]})
    check_table(cp.open(tmp_path / "in"), rows)
    cp.convert(tmp_path / "in", tmp_path / "all.arrow")
    check_table(cp.open(tmp_path / "all.arrow"), rows)


def test_parts_without_labels_are_trained_on(tmp_path):
    """For rows without any label pandas writes lists of nulls."""
    for number, tags in enumerate([[[], []], [["a"], ["b", "a"]], [["b"], []]]):
        write(tmp_path / f"{number}.parquet", pa.table({"x": [0.5, 1.5], "tags": tags}))
    assert cp.train(tmp_path, labels="tags", epochs=1).labels == ["a", "b"]


def test_parts_of_integers_and_floats_are_trained_on(tmp_path):
    rows = rows_of(1).select(["x", "n", "y"])
    write(tmp_path / "a.parquet", narrow(rows, n=pa.int32()))
    write(tmp_path / "b.parquet", narrow(rows, n=pa.float64()))
    model = cp.train(tmp_path, features=["x", "n"], label="y", epochs=1, memory="1MB")
    assert model.history[0]["rows"] == 2 * ROWS


def test_nothing_is_alike():
    assert unify_schemas([]) == []
    first, other = cp.open(pa.table({"x": [1]})), cp.open(pa.table({"y": [1]}))
    assert unify_schemas([first, other]) == [first, other]


@pytest.mark.parametrize(
    "kinds", [(pa.int64(), pa.float64()), (pa.float32(), pa.float64()), (pa.null(), pa.float64())], ids=str
)
def test_parts_of_other_types_are_unpacked_of_the_columns_that_are_read(tmp_path, kinds):
    for number, kind in enumerate(kinds):
        x = pa.array([None if pa.types.is_null(kind) else at % 5 for at in range(3_000)], kind)
        rows = pa.table({"x": x, "z": np.arange(3_000.0), "label": np.arange(3_000) % 2})
        pq.write_table(rows, tmp_path / f"{number}.parquet")  # like pandas: one row group
    table = cp.open(tmp_path)
    visited = [batch["z"] for batch in cp.Loader(table, batch_size=100, columns=["z", "label"], memory="32KB")]
    assert sorted(np.concatenate(visited).tolist()) == np.repeat(np.arange(3_000.0), 2).tolist()
    assert cp.train(table, features=["z"], epochs=1, memory="32KB", standardize=True).coef.shape == (1, 1)


def test_parts_in_another_order_and_plain_ones_are_unpacked_of_the_columns_that_are_read(tmp_path):
    rows = pa.table({"x": np.arange(3_000.0), "z": np.arange(3_000), "label": np.arange(3_000) % 2})
    pq.write_table(rows, tmp_path / "0.parquet")
    pq.write_table(rows.select(["label", "z", "x"]), tmp_path / "1.parquet")
    write(tmp_path / "2.arrow", rows)
    for table in (
        cp.open(tmp_path / "*.parquet"),
        cp.open([tmp_path / f"{name}" for name in ("2.arrow", "1.parquet")]),
    ):
        visited = [batch["z"] for batch in cp.Loader(table, batch_size=100, columns=["z", "label"], memory="32KB")]
        assert sorted(np.concatenate(visited).tolist()) == np.repeat(np.arange(3_000), 2).tolist()
