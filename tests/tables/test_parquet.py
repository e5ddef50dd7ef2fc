import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile import Loader
from corgipile.errors import BudgetTooSmall, CorruptFile, UnknownFormat
from corgipile.orders import Riffle
from corgipile.tables import ParquetTable
from corgipile.tables.encoded import unpack_shared
from corgipile.tables.formats.parquet import table as parquet
from corgipile.tables.formats.parquet.lengths import lengths_of, step_of
from corgipile.tables.io.files import File


def write(path, rows, group=100, codec="snappy"):
    pq.write_table(rows, path, row_group_size=group, compression=codec)
    return path


def storable(rows):
    return rows.drop_columns(["nothing here"])


@given(seed=st.integers(0, 2**32), count=st.integers(0, 70), group=st.integers(1, 40), nulls=st.booleans())
@settings(max_examples=40, deadline=None)
def test_agrees_with_rows_written(folder, laws, rows_of, seed, count, group, nulls):
    rows = storable(rows_of(count, seed, nulls))
    laws(ParquetTable(write(folder / "law.parquet", rows, group)), rows, np.random.default_rng(seed))


def test_manners(tmp_path, manners, rows_of):
    manners(ParquetTable(write(tmp_path / "a.parquet", storable(rows_of(250, nulls=True)))))


def test_cuts_are_row_groups_merged(tmp_path, rows_of):
    table = ParquetTable(write(tmp_path / "a.parquet", storable(rows_of(250)), 20))
    assert table.cuts(1).tolist() == [*range(0, 250, 20), 250]
    assert table.cuts(60).tolist() == [0, 60, 120, 180, 240, 250]
    assert table.cuts(10**9).tolist() == [0, 250]
    assert table.layout(["label"]) is None


def test_row_groups_are_kept_a_while(tmp_path, monkeypatch, rows_of):
    table = ParquetTable(write(tmp_path / "a.parquet", storable(rows_of(300))))
    decoded = []
    decode = ParquetTable._decode
    monkeypatch.setattr(ParquetTable, "_decode", lambda self, i, names: decoded.append(i) or decode(self, i, names))
    for start in range(0, 120, 10):
        table.read(start, start + 10, ["label"])
    table.take(np.array([5, 105, 7]), ["label"])
    assert decoded == [0, 1]


def test_dotted_and_nested_names(tmp_path, rows_of):
    rows = storable(rows_of(10)).rename_columns(
        names := [f"{i}.{n}" for i, n in enumerate(storable(rows_of(1)).schema.names)]
    )
    table = ParquetTable(write(tmp_path / "a.parquet", rows))
    assert table.read(2, 5, names[7:9]).to_pylist() == rows.select(names[7:9]).slice(2, 3).to_pylist()


@pytest.fixture
def numbers(tmp_path):
    """Return a file of number columns, too large to be decoded whole, and its rows."""
    random = np.random.default_rng(1)
    rows = pa.table({f"x{i}": random.random(70_000) for i in range(5)} | {"label": random.integers(0, 2, 70_000) > 0})
    return write(tmp_path / "numbers.parquet", rows, 40_000), rows


@pytest.mark.parametrize(("decoders", "names"), [(1, 6), (2, 6), (4, 6), (4, 1)])
def test_numbers_are_unpacked_by_several_threads(numbers, monkeypatch, decoders, names):
    path, rows = numbers
    monkeypatch.setattr(parquet, "DECODERS", decoders)
    decoding = set()
    inner = parquet.coding.in_batches
    note = lambda *parts: decoding.add(threading.get_ident()) or inner(*parts)  # noqa: E731
    monkeypatch.setattr(parquet.coding, "in_batches", note)
    columns = rows.schema.names[-names:]
    assert (
        unpack_shared(ParquetTable(path), columns)
        .read(0, len(rows), columns)
        .equals(rows.select(columns).combine_chunks().to_batches()[0])
    )
    assert (threading.get_ident() in decoding) == (min(decoders, names) == 1)


@pytest.mark.parametrize("error", [pa.ArrowInvalid("page is damaged"), None])
def test_an_error_of_a_decoding_thread_reaches_the_caller(numbers, monkeypatch, error):
    def broken(file, names, *rest):
        for number, batch in enumerate(inner(file, names, *rest)):
            if number and "x1" in names:
                if error:
                    raise error
                return  # fewer rows than other columns
            yield batch

    path, rows = numbers
    monkeypatch.setattr(parquet, "DECODERS", 2)
    inner = parquet.coding.in_batches
    monkeypatch.setattr(parquet.coding, "in_batches", broken)
    with pytest.raises(CorruptFile, match="damaged" if error else "numbers.parquet"):
        unpack_shared(ParquetTable(path), rows.schema.names)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("corgipile-decoder")]


def test_page_headers_are_read_once(numbers, monkeypatch):
    path, rows = numbers
    table, seen, inner = ParquetTable(path), [], parquet.pages.page_bytes
    note = lambda file, chunk, *more: seen.append(chunk.data_page_offset) or inner(file, chunk, *more)  # noqa: E731
    monkeypatch.setattr(parquet.pages, "page_bytes", note)
    table.units(rows.schema.names)
    unpack_shared(table, rows.schema.names)
    assert len(seen) == len(set(seen)) > 0


def test_bad_files(tmp_path, rows_of):
    path = write(tmp_path / "a.parquet", storable(rows_of(30)))
    data = path.read_bytes()
    for broken, error, message in [
        (b"", UnknownFormat, "is not a Parquet file: it does not begin with b'PAR1'"),
        (data[:-10], CorruptFile, "is truncated: it does not end with b'PAR1'"),
        (b"PAR1", CorruptFile, "is truncated"),
        (data[:50] + data[150:], CorruptFile, "does not decode"),
    ]:
        path.write_bytes(broken)
        with pytest.raises(error, match=message):
            ParquetTable(path).read(0, 30)


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_damaged_files_never_crash(folder, damage, survives, rows_of, codec):
    data = write(folder / "whole.parquet", storable(rows_of(40, nulls=True)), 15, codec).read_bytes()

    @given(broken=damage(data))
    @settings(max_examples=200, deadline=None, derandomize=True)
    def check(broken):
        survives(folder / "broken.parquet", broken, "parquet")

    check()


@pytest.fixture(scope="module")
def categories(tmp_path_factory):
    """Return a table with many more categories than rows, in two row groups."""
    path = tmp_path_factory.mktemp("categories") / "a.parquet"
    names = pa.array([f"user {i:06}" for i in range(150_000)])
    numbers = pa.array([7, None, 140_000, 3, 7, 9], pa.int32())
    users = pa.DictionaryArray.from_arrays(numbers, names)
    sizes = pa.DictionaryArray.from_arrays(numbers.fill_null(0).cast(pa.int32()), names, ordered=True)
    rows = pa.table(
        {
            "user": users, "size": sizes, "text": pa.array(list("abcdef"), pa.large_string()),
            "at": pa.array(range(6), pa.timestamp("us", "Europe/Zurich")), "label": range(6),
        }
    )  # fmt: skip
    pq.write_table(rows, path, row_group_size=4)
    return path, rows


@pytest.mark.parametrize("names", [["user"], ["text", "user", "at"], ["user", "size"], ["size"]], ids=str)
@pytest.mark.parametrize("spill", [None, "off"])
def test_categories_of_many_values_are_what_was_written(categories, names, spill):
    path, rows = categories
    table = ParquetTable(path, spill)
    assert pa.Table.from_batches([table.read(0, 6, names)]).to_pylist() == rows.select(names).to_pylist()
    assert table.read(1, 3, names).schema.types == [rows.schema.field(name).type for name in names]
    assert table.take(np.array([5, 2]), names).to_pylist() == rows.take([5, 2]).select(names).to_pylist()


def test_of_categories_only_the_values_of_rows_are_decoded(categories):
    table = ParquetTable(categories[0])
    [batch] = table._batches(["user", "label"], range(1))
    assert len(batch.column(0).dictionary) == 3
    [batch] = table._batches(["size"], range(1))  # ordered as the dictionary
    assert len(batch.column(0).dictionary) == 150_000
    width = table.units(["user"])
    assert 11 <= width.each <= 24  # a value and its offset, not all values
    assert 150_000 * (2 * 15 + 16) <= width.dictionary <= 150_000 * (3 * 15 + 16)


@pytest.mark.parametrize("balance", [None, "label", "content"])
def test_a_budget_below_a_dictionary_is_refused_before_it_is_decoded(tmp_path, monkeypatch, balance):
    names = pa.array([f"user {i:07}" for i in range(400_000)])
    users = pa.DictionaryArray.from_arrays(pa.array(np.arange(4, dtype=np.int32)), names)
    pq.write_table(pa.table({"user": users, "label": range(4)}), path := tmp_path / "a.parquet")
    monkeypatch.setattr(ParquetTable, "_decoded_batches", lambda *_: pytest.fail("rows were decoded"))
    with pytest.raises(BudgetTooSmall, match=r"would take \d+\.?\d* MB while .* give memory='\d+\.?\d*MB'"):
        Loader(path, memory="4MB", order=Riffle(balance=balance))
    monkeypatch.undo()
    assert sum(len(batch["label"]) for batch in Loader(path, memory="60MB", order=Riffle(balance=balance))) == 4


@given(seed=st.integers(0, 2**32), nulls=st.booleans(), new=st.booleans())
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "lz4", "zstd"])
@settings(max_examples=12, deadline=None)
def test_lengths_of_values_that_share_prefixes(folder, codec, seed, nulls, new):
    rng = np.random.default_rng(seed)
    lengths = (rng.integers(0, 9, 700) * rng.choice([0, 1, 1000], 700)).tolist()
    values = ["ab"[row % 2] * length if not nulls or row % 3 else None for row, length in enumerate(lengths)]
    coding = {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY", "data_page_size": 20_000}
    pq.write_table(
        pa.table({"x": values}), folder / "a.parquet", compression=codec, data_page_version="2.0" if new else "1.0",
        write_batch_size=33 if seed % 2 else 50, **coding,  # after the first value: full packs of 32, or not
    )  # fmt: skip
    found = lengths_of(File(folder / "a.parquet"), pq.read_metadata(folder / "a.parquet"), 0, 0, 0)
    sizes = np.array([len(value or "") for value in values])
    assert found.ends[-1] == len(values)
    assert found.total == sizes.sum()
    for part, longest in zip(np.split(sizes, found.ends[:-1]), found.longest, strict=True):
        assert part.max() <= longest <= 2 * part.max()
    start, room = int(rng.integers(700)), int(rng.integers(1, 50_000))
    step = step_of([found], start, 700, room)
    assert step == 1 or sizes[start : start + step].sum() <= room


def test_damaged_page_headers_state_nothing(tmp_path):
    path, rng = write(tmp_path / "a.parquet", pa.table({"x": ["a" * 100] * 50}), codec="none"), np.random.default_rng(0)
    metadata, data = pq.read_metadata(path), path.read_bytes()
    begin = metadata.row_group(0).column(0).dictionary_page_offset
    for _ in range(200):
        damaged = bytearray(data)
        for at in rng.integers(begin, begin + 60, 3):
            damaged[at] = rng.integers(256)
        path.write_bytes(damaged)
        assert lengths_of(File(path), metadata, 0, 0, 5).longest.min() >= 0
