"""Ranges that come while others are decoded: every byte once, in order, and not too many at a time."""

import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from patience import PATIENCE

import corgipile as cp
from corgipile.tables import encoded
from corgipile.tables.io import remote
from corgipile.tables.io.arriving import DEFAULT_IN_FLIGHT, MIN_IN_FLIGHT, Arriving, in_flight_of, windows_of
from corgipile.tables.io.side_by_side import side_by_side

pytest.importorskip("obstore")
SIZE = 40 << 20
DATA = np.arange(SIZE // 4, dtype=np.int32).view(np.uint8)
PIECES = st.lists(st.lists(st.integers(0, 5 << 20), max_size=4), max_size=5)


class Fake:
    """An object of which it is known what was asked for, and how much of that nobody has let go."""

    def __init__(self):
        self.path, self.size = "s3://bucket/a", SIZE
        self.asked, self.lock = [], threading.Lock()

    def whole(self, start, stop):
        with self.lock:
            self.asked.append((start, stop))
        return DATA[start:stop]

    def read(self, offset, length):
        return self.whole(offset, offset + length).tobytes()


def groups_of(sizes):
    """Make groups of ranges one behind the other, every second one a little apart."""
    at, made = 0, []
    for group in sizes:
        offsets = []
        for size in group:
            offsets.append(at)
            at += size + (size % 2)
        made.append((np.array(offsets, np.int64), np.array(group, np.int64)))
    return made if at <= SIZE else []


@given(PIECES)
@example([[3750815, 4680180, 1374123]])  # of three side by side a window is read before its turn, and let go
def test_every_byte_comes_once(sizes):
    file, groups = Fake(), groups_of(sizes)
    arriving = Arriving(file, groups, in_flight_of(0))
    for offsets, lengths in groups:
        left = [(int(at), int(at + length)) for at, length in zip(offsets, lengths, strict=True)]
        while left:  # side by side
            for at, stop in left:
                some = min(stop - at, 700_000)
                assert arriving.read(at, some) == DATA[at : at + some].tobytes()
                assert sum(arriving._unread.values()) <= MIN_IN_FLIGHT + (4 << 20)
            left = [(at + 700_000, stop) for at, stop in left if stop - at > 700_000]
    wanted = sum(int(lengths.sum()) for _, lengths in groups)
    assert sum(stop - start for start, stop in file.asked) == wanted


def test_what_was_not_announced_is_read_too():
    arriving = Arriving(Fake(), [(np.array([100]), np.array([1000]))], MIN_IN_FLIGHT)
    assert arriving.read(0, 2000) == DATA[:2000].tobytes()
    assert arriving.read(150, 10) == DATA[150:160].tobytes()


def test_large_ranges_of_a_group_come_in_turn():
    found = windows_of([(np.array([0, 10 << 20]), np.array([4 << 20, 4 << 20]))], 4 << 20)
    assert (found[:4, 0] >> 20).tolist() == [0, 10, 1, 11]


def test_iterators_run_ahead_but_not_far():
    made = []

    def make(number):
        def items():
            for item in range(20):
                made.append((number, item))
                yield bytes(10)

        return items

    runs = side_by_side([make(number) for number in range(5)], 3, len, 30)
    first = next(runs)
    for number, _ in enumerate(first):
        assert sum(n == 0 for n, _ in made) <= number + 6
    assert sum(n == 1 for n, _ in made) <= 5
    assert [len([*run]) for run in runs] == [20] * 4


def test_an_error_comes_in_its_turn_and_threads_end():
    def bad():
        yield b"1"
        raise ValueError("bad")

    runs = side_by_side([lambda: iter([b"0"]), bad, lambda: iter([b"2"] * 1000)], 3, len, 4)
    assert [*next(runs)] == [b"0"]
    with pytest.raises(ValueError, match="bad"):
        list(next(runs))
    runs.close()
    for thread in threading.enumerate():
        if thread.name.startswith("corgipile-decoder"):
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_runs_that_are_read_in_turn_know_the_budget(monkeypatch):
    monkeypatch.setattr(remote, "is_remote", lambda table: True)
    runs, limit = [(0, 2), (2, 3), (3, 9)], in_flight_of(40 << 20)
    outside = remote.this_scan()

    def read(start, stop):
        return start, stop, remote.this_scan().in_flight, remote.this_scan().cache is not None

    assert limit == 10 << 20
    found = [(*one, remote.this_scan()) for one in remote.in_turn(None, read, runs, in_flight=limit)]
    assert found == [(*run, limit, True, outside) for run in runs]
    assert read(0, 1)[2:] == (DEFAULT_IN_FLIGHT, False)


@pytest.mark.parametrize("memory", [8 << 20, 40 << 20, None])
def test_unpacking_has_the_budget_of_its_reader(tmp_path, monkeypatch, memory):
    """Whatever was read before, and by whom."""
    limits = []

    class Noting(encoded.SpillWriter):
        def finish(self):
            limits.append(self.in_flight)
            return super().finish()

    monkeypatch.setattr(encoded, "SpillWriter", Noting)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": np.arange(1000.0), "y": np.arange(1000.0)}), path, row_group_size=100)
    parts = cp.concat([cp.open(path, spill=tmp_path), cp.open(path, spill=tmp_path)])
    encoded.unpack_shared(parts, ["x"], 100 << 20)
    encoded.unpack_shared(parts.select(["y"]), ["y"], memory)
    assert limits == [in_flight_of(100 << 20), in_flight_of(memory)]
