"""Files partly cached in memory return equal bytes, and system errors are translated."""

import errno
import pickle

import numpy as np
import pytest

from corgipile.errors import CorruptFile, ReadFailed
from corgipile.tables.io.files import CachedTail, File, InMemory, readable, sample_size, sampled_among

DATA = np.random.default_rng(0).bytes(1000)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(DATA)
    return File(path)


@pytest.mark.parametrize("last", [0, 1, 100, 999, 1000, 5000])
def test_the_end_in_memory_reads_what_the_file_does(file, last):
    ending = CachedTail(file, last)
    for start, stop in ((0, 8), (0, 1000), (895, 905), (900, 1000), (901, 950), (990, 1000), (1000, 1000)):
        assert ending.read(start, stop - start) == DATA[start:stop]
    found = ending.gather(np.array([899, 3]), np.array([4, 5]))
    assert found.tobytes() == DATA[899:903] + DATA[3:8]
    assert (ending.size, ending.content) == (file.size, file.content)


@pytest.mark.parametrize("kind", [CachedTail, InMemory])
def test_bytes_beyond_the_file_are_refused(file, kind):
    part = kind(file)
    for start, length in ((998, 3), (-1, 2), (1001, 0)):
        with pytest.raises(CorruptFile, match="bytes"):
            part.read(start, length)


def test_a_file_in_memory_reads_what_the_file_does(file):
    whole = InMemory(file)
    for start, stop in ((0, 8), (3, 1000), (8, 16), (1000, 1000)):
        assert bytes(whole.read(start, stop - start)) == DATA[start:stop]


def test_what_cannot_be_read_is_told_without_a_number():
    with pytest.raises(ReadFailed) as caught, readable("t.parquet"):
        raise PermissionError(errno.EACCES, "Permission denied")
    assert str(caught.value) == "t.parquet: Permission denied"
    assert caught.value.errno == errno.EACCES
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - made a moment ago
    assert str(again) == str(caught.value)


@pytest.mark.parametrize(
    ("offset", "length"), [(-1, 2), (0, -1), (1 << 62, 1 << 62), ((1 << 63) - 1, 1), (0, 1 << 62), (9, 1)]
)
def test_ranges_of_a_damaged_index_are_refused_before_allocation(tmp_path, offset, length):
    (tmp_path / "a").write_bytes(b"123456789")
    file = File(str(tmp_path / "a"))
    for gather in (file.gather, file.gather_bytes):
        with pytest.raises(CorruptFile, match="the file has 9"):
            gather(np.array([0, offset]), np.array([1, length]))


def test_samples_of_a_file_are_divided_only_among_the_files_of_its_table():
    with sampled_among(4):
        assert sample_size(400) == 100
        with sampled_among(5):
            assert sample_size(400) == 20
    assert sample_size(400) == 400
