"""Ranges of mapped Arrow data hold the bytes of the rows asked for, whatever the type."""

import ctypes
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")
mapped = pytest.importorskip("corgipile.torch.mmap")

COLUMNS = {
    "int": pa.array([5, None, 7, 8, 2**40, -1] * 5, pa.int64()),
    "float": pa.array(np.arange(30), pa.float32()),
    "bool": pa.array([True, False, None] * 10),
    "text": pa.array(["", "a", None, "four", "é", "long" * 9] * 5),
    "bytes": pa.array([b"x" * i for i in range(30)], pa.large_binary()),
    "fixed": pa.array([bytes([i] * 3) for i in range(30)], pa.binary(3)),
    "vector": pa.array([[i, i + 1] for i in range(30)], pa.list_(pa.int16(), 2)),
    "list": pa.array([list(range(i % 4)) for i in range(30)], pa.list_(pa.int32())),
    "words": pa.array([["ab"] * (i % 3) for i in range(30)], pa.large_list(pa.string())),
    "struct": pa.array([{"a": i, "b": "s" * i} for i in range(30)]),
    "class": pa.array(["cat", "dog", "cat"] * 10).dictionary_encode(),
    "none": pa.nulls(30),
}
TABLE = pa.table(COLUMNS)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The table as record batches of different lengths, mapped from a file."""
    path = tmp_path_factory.mktemp("mapped") / "rows.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, TABLE.schema) as writer:
        for start, stop in ((0, 1), (1, 12), (12, 12), (12, 30)):
            writer.write_table(TABLE.slice(start, stop - start))
    source = pa.memory_map(str(path))
    return path, pa.ipc.open_stream(source).read_all()


def pieces(rows, numbers):
    """Return the bytes of the ranges of some rows, one list of parts a row, nothing left out."""
    found = [[] for _ in numbers]
    for ranges in rows.ranges(np.array(numbers, np.int64)):
        for part, address, length in zip(found, ranges.address.tolist(), ranges.length.tolist(), strict=True):
            part.append(ctypes.string_at(address, length) if length else b"")
    return found


EXPECTED = {
    "int": lambda value: [np.int64(value).tobytes()],
    "float": lambda value: [np.float32(value).tobytes()],
    "text": lambda value: [value.encode()],
    "bytes": lambda value: [value],
    "fixed": lambda value: [value],
    "vector": lambda value: [np.array(value, np.int16).tobytes()],
    "list": lambda value: [np.array(value, np.int32).tobytes()],
    "words": lambda value: ["".join(value).encode()],
    "struct": lambda value: [np.int64(value["a"]).tobytes(), value["b"].encode()],
}


@pytest.mark.parametrize("sliced", [False, True])
@pytest.mark.parametrize("column", COLUMNS)
def test_ranges_hold_the_values(stored, column, sliced):
    table = stored[1].slice(5, 20) if sliced else stored[1]
    rows = mapped.Mapped(table.to_batches(), [column], [])
    numbers = np.random.default_rng(0).permutation(len(table)).tolist()
    for number, parts in zip(numbers, pieces(rows, numbers), strict=True):
        value = table.column(column)[number].as_py()
        if column in EXPECTED and value is not None:
            assert set(EXPECTED[column](value)) <= set(parts)
        assert all(len(part) <= 300 for part in parts)


def test_offsets_and_validity_are_asked_for_before_they_are_read(stored):
    rows = mapped.Mapped(stored[1].to_batches(), ["text"], [])
    lengths = [ranges.length.tolist() for ranges in rows.ranges(np.array([3, 5]))]
    assert lengths == [[1, 1], [8, 8], [4, 36]]


def test_extension_types_are_their_storage():
    class Tagged(pa.ExtensionType):
        def __init__(self):
            super().__init__(pa.int64(), "corgipile.tagged")

        def __arrow_ext_serialize__(self):
            return b""

    array = pa.ExtensionArray.from_storage(Tagged(), pa.array([7, 8, 9]))
    rows = mapped.Mapped([pa.record_batch([array], names=["x"])], ["x"], [])
    assert pieces(rows, [2])[0][-1] == np.int64(9).tobytes()


def test_types_that_are_not_known_have_no_ranges():
    views = pa.array(["a", "b" * 40], pa.string_view())
    rows = mapped.Mapped([pa.record_batch([views], names=["x"])], ["x"], [])
    assert pieces(rows, [1]) == [[b""]]
    assert list(mapped.Mapped([], ["x"], []).ranges(np.zeros(0, np.int64))) == []


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not show its mappings")
def test_the_files_mapping_is_found_and_advised(stored):
    path, table = stored
    (start,), (length,) = mapped.mappings([str(path)])
    address = table.column("int").chunk(0).buffers()[1].address
    assert start <= address < start + length
    assert not len(mapped.mappings([]).address)
    assert not len(mapped.mappings(["/nowhere"]).address)
    rows = mapped.Mapped(table.to_batches(), list(COLUMNS), [str(path)])
    try:
        assert "rr" in flags(start)
        rows.hint(np.array([29, 0, 12]))
        rows.now(np.array([29, 0, 12]))
    finally:
        rows.close()
    assert "rr" not in flags(start)


def flags(start):
    """Return the flags of a mapping; rr: just what is touched is read."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    next(line for line in lines if line.startswith(f"{start:x}-"))
    return next(line for line in lines if line.startswith("VmFlags:")).split()


@settings(max_examples=100)
@given(st.lists(st.integers(0, 2**63 - 1), max_size=5), st.integers(0, 3))
def test_wrong_addresses_are_an_error_not_a_fault(addresses, what):
    address = np.array(addresses, np.int64)
    assert mapped._kernel.advise(address, np.full_like(address, 10), what) >= 0


def test_advice_that_is_none():
    one = np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="must have the same length"):
        mapped._kernel.advise(one, np.zeros(2, np.int64), 0)
    with pytest.raises(ValueError, match="advice must be 0 to 3"):
        mapped._kernel.advise(one, one, 4)
