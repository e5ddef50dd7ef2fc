"""Dictionary columns and views: dictionaries are loaded once and counted once, not per row."""

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.errors import BudgetTooSmall, CorruptFile
from corgipile.loader.budget import columns_of
from corgipile.tables.encoded import unpack
from corgipile.tables.formats.arrow.dictionaries import Dictionaries
from corgipile.tables.io.files import describe, digest, legacy_fingerprints
from corgipile.tables.values import values as value_batch

ROWS = 3000


def stored(values, index=None, views=False, rows=ROWS):
    """Return a table with dictionaries like those of pandas and Polars, and its values."""
    draw = np.random.default_rng(len(values))
    values = values.cast(pa.string_view()) if views else values
    numbers = pa.array(draw.integers(0, len(values), rows), index or pa.int32(), mask=draw.random(rows) < 0.1)
    coded = pa.DictionaryArray.from_arrays(numbers, values)
    plain = values.cast(pa.string()) if views else values
    lists = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32)), coded)
    text = pa.array([f"{i}" * (i % 5) if i % 7 else None for i in range(rows)])
    held = {"x": np.arange(rows), "city": coded, "text": text.cast(pa.string_view()) if views else text}
    meant = {"x": np.arange(rows), "city": plain.take(numbers), "text": text}
    if not views:
        held["many"] = lists
        meant["many"] = pa.ListArray.from_arrays(lists.offsets, plain.take(numbers))
    return pa.table(held), pa.table(meant)


def write(path, rows, batch=ROWS, compression=None):
    if path.suffix == ".parquet":
        pq.write_table(rows, path, row_group_size=batch)
        return path
    with pa.ipc.new_file(path, rows.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as file:
        file.write_table(rows, batch)
    return path


def many(count, length=20):
    return pa.array([f"{i:0{length}}" for i in range(count)])


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from((many(3), many(200), pa.array([5, 3], pa.int8()), pa.array([0.5, 2.0]))),
    st.sampled_from((pa.uint8(), pa.int16(), pa.uint32(), pa.int64())),
    st.booleans(),
    st.sampled_from(((".arrow", None), (".arrow", "zstd"), (".parquet", None), ("", None))),
    st.sampled_from((700, ROWS)),
    st.lists(st.sampled_from(("x", "city", "text", "many")), min_size=1, unique=True),
)
def test_rows_keep_their_values(tmp_path_factory, values, index, views, kind, batch, columns):
    views = views and pa.types.is_string(values.type) and kind[0] != ".parquet"
    held, meant = stored(values, index, views)
    table = cp.open(write(tmp_path_factory.mktemp("d") / f"a{kind[0]}", held, batch, kind[1]) if kind[0] else held)
    columns = [name for name in columns if name in meant.column_names] or ["city"]
    meant, picks = meant.select(columns), np.random.default_rng(0).integers(0, ROWS, 50)
    for rows, found in (
        (slice(0, ROWS), table.read(0, ROWS, columns)),
        (slice(555, 717), table.read(555, 717, columns)),
    ):
        assert found.schema.types == [table.schema.field(name).type for name in columns]
        assert pa.Table.from_batches([value_batch(found)]).equals(meant[rows])
    assert pa.Table.from_batches([value_batch(table.take(picks, columns))]).equals(meant.take(picks))


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
def test_rows_are_the_same_unpacked(tmp_path, suffix, views):
    held, meant = stored(many(50), views=views and suffix == ".arrow")
    if views and suffix == ".parquet":
        held = held.set_column(2, "text", held["text"].cast(pa.string_view()))
    held = held.add_column(1, "more", held["text"])  # with its own buffers
    table = cp.open(write(tmp_path / f"a{suffix}", held, 700, "zstd"))
    for names in (["x", "city", "text"], ["text"], ["city"]):
        plain = unpack(table, names, tmp_path)
        assert pa.Table.from_batches([value_batch(plain.read(500, 1500, names))]).equals(meant.select(names)[500:1500])


@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
def test_a_row_is_as_large_as_its_values(tmp_path, suffix):
    held, meant = (rows.drop_columns(["many"]) for rows in stored(many(1000, 40)))
    row = meant.nbytes / ROWS
    table = cp.open(write(tmp_path / f"a{suffix}", held))
    assert 0.5 * row < columns_of(table, ["x", "city", "text"]).row_bytes < 2 * row
    with cp.Loader(table, batch_size=100, columns=["x", "city"], memory="256KB", format="torch") as loader:
        rows = dict(pair for batch in loader for pair in zip(batch["x"].tolist(), batch["city"], strict=True))
    assert [rows[i] for i in range(ROWS)] == meant["city"].to_pylist()


def test_a_dictionary_is_read_once_and_counts_once(tmp_path, monkeypatch):
    reads, read = [], Dictionaries._read_all
    monkeypatch.setattr(Dictionaries, "_read_all", lambda self: reads.append(1) or read(self))
    table = cp.open(write(tmp_path / "a.arrow", stored(many(ROWS, 100))[0].drop_columns(["many"]), 100))
    size = many(ROWS, 100).nbytes
    assert table.shared_bytes(["x"]) == 0
    assert not reads
    assert table.shared_bytes(["x", "city"]) == size
    assert cp.open([tmp_path / "a.arrow"] * 3).shared_bytes(["city"]) == 3 * size
    with pytest.raises(BudgetTooSmall):
        cp.Loader(table, batch_size=10, memory=f"{size}B")
    with cp.Loader(table, batch_size=10, columns=["x", "city"], memory=f"{2 * size}B", order="full") as loader:
        assert sum(len(batch["x"]) for batch in loader) == ROWS
    assert len(reads) == 1 + 3


def test_states_of_such_tables_still_belong_to_them(tmp_path):
    held, _ = stored(many(3))
    path = write(tmp_path / "a.arrow", held)
    status = path.stat()
    said = f"{path.name} {status.st_size} {status.st_mtime_ns}"
    with legacy_fingerprints():
        assert cp.open(path).fingerprint == digest(said, describe(held.schema), str(ROWS))


def test_a_number_that_no_value_has_is_an_error(tmp_path):
    held, _ = stored(many(3), pa.int64())
    path = write(tmp_path / "a.arrow", held)
    data = path.read_bytes()
    place = data.index(held["city"].chunk(0).indices.buffers()[1].to_pybytes())
    path.write_bytes(data[:place] + (77).to_bytes(8, "little") + data[place + 8 :])
    with pytest.raises(CorruptFile):
        cp.open(path).read(0, ROWS)


@pytest.mark.parametrize("name", ["write_ipc", "write_parquet"])
def test_files_as_polars_writes_them(tmp_path, name):
    city = [f"{i % 40}" * 9 for i in range(ROWS)]
    frame = pl.DataFrame({"x": range(ROWS), "text": city, "city": pl.Series(city, dtype=pl.Categorical)})
    getattr(frame, name)(tmp_path / "a.arrow")
    with cp.Loader(tmp_path / "a.arrow", batch_size=64, memory="2MB") as loader:
        rows = {x: pair for batch in loader for x, *pair in zip(*batch.values(), strict=True)}
    assert [rows[i] for i in range(ROWS)] == [[one, one] for one in city]
    assert cp.reshuffle(tmp_path / "a.arrow", tmp_path / "b.arrow") == ROWS
    assert sorted(cp.open(tmp_path / "b.arrow").read(0, ROWS)["text"].to_pylist()) == sorted(city)


def test_files_with_dictionaries_of_their_own_are_one_table(tmp_path):
    for i, index in enumerate((pa.int8(), pa.int8())):
        write(tmp_path / f"{i}.arrow", stored(many(3 + i), index)[0])
    table = cp.open([tmp_path / "0.arrow", tmp_path / "1.arrow"])
    read = [stored(many(3 + i))[1]["city"].to_pylist() for i in range(2)]
    assert table.read(0, 2 * ROWS, ["city"]).column(0).to_pylist() == read[0] + read[1]
