"""Concurrent: parallel by proof, not by clock; right in any process; errors name the row; nothing outlives it."""

import gc
import os
import pickle
import signal
import threading

import numpy as np
import pyarrow as pa
import pytest
from patience import PATIENCE, wait_for

from corgipile.errors import BadArgument, FetchFailed, ReadFailed
from corgipile.tables import open as open_table
from corgipile.testing import Counting, Failing, Slow

torch = pytest.importorskip("torch")
data = pytest.importorskip("torch.utils.data")
Concurrent = pytest.importorskip("corgipile.torch").Concurrent


class Rows:
    """A map-style dataset over a table, as a user would write it."""

    def __init__(self, table):
        self.table = table

    def __len__(self):
        return len(self.table)

    def __getitem__(self, row):
        return self.table.take(np.array([row])).column(0)[0].as_py()


class Meeting(list):
    """Rows of which each is given only when ``size`` of them are asked for at the same time."""

    def __init__(self, rows, size):
        super().__init__(rows)
        self.barrier = threading.Barrier(size, timeout=PATIENCE)

    def __getitem__(self, row):
        self.barrier.wait()
        return super().__getitem__(row)


class Gate(list):
    """Rows that wait at a gate, and tell that they are there."""

    def __init__(self, rows):
        super().__init__(rows)
        self.open, self.reached = threading.Event(), threading.Event()

    def __getitem__(self, row):
        self.reached.set()
        assert self.open.wait(PATIENCE)
        return super().__getitem__(row)


def numbers(rows=100):
    return open_table(pa.table({"row": pa.array(range(rows), pa.int64())}))


def batches(rows, size=10, seed=0):
    order = np.random.default_rng(seed).permutation(rows).tolist()
    return [order[at : at + size] for at in range(0, rows, size)]


def loaded(dataset, sampler, **options):
    return list(data.DataLoader(dataset, batch_sampler=sampler, collate_fn=list, **options))


def fetchers():
    return [thread for thread in threading.enumerate() if thread.name == "corgipile-fetch"]


def gone():
    """Wait until all threads have ended; daemons need a moment."""
    return wait_for(lambda: not fetchers(), "the end of all threads")


@pytest.fixture(autouse=True)
def nothing_outlives():
    yield
    assert gone()


@pytest.mark.parametrize("ahead", [None, 0, 1, 4, 64])
@pytest.mark.parametrize("threads", [1, 3, 32])
def test_rows_of_each_batch_come_once_in_the_order_asked_for(threads, ahead):
    wanted = batches(103)
    with Concurrent(Rows(numbers(103)), threads=threads, unordered=False) as rows:
        assert loaded(rows, wanted if ahead is None else rows.ahead(wanted, ahead)) == wanted


@pytest.mark.parametrize("ahead", [0, 3])
def test_unordered_batches_hold_the_same_rows(ahead):
    wanted = batches(103)
    with Concurrent(Rows(Slow(numbers(103), 0.001)), threads=8) as rows:
        came = loaded(rows, rows.ahead(wanted, ahead))
    assert [sorted(batch) for batch in came] == [sorted(batch) for batch in wanted]


def test_unordered_rows_come_as_they_arrive():
    class LateFirst(list):
        def __getitem__(self, row):
            if row == 0:
                assert last.wait(PATIENCE)
            value = super().__getitem__(row)
            if row == 3:
                last.set()
            return value

    for unordered in (True, False):
        last = threading.Event()
        with Concurrent(LateFirst(range(4)), threads=4, unordered=unordered) as rows:
            came = rows.__getitems__([0, 1, 2, 3])
        assert came == [0, 1, 2, 3] if not unordered else came[0] != 0


@pytest.mark.parametrize("size", [2, 8, 32])
def test_rows_are_fetched_at_the_same_time(size):
    """None would come unless ``size`` calls were under way together."""
    with Concurrent(Meeting(range(size), size), threads=size, unordered=False) as rows:
        assert rows.__getitems__(list(range(size))) == list(range(size))


def test_batches_ahead_are_fetched_while_the_first_is_waited_for():
    """Three batches of two rows meet, so all three are under way before the first is given."""
    with Concurrent(Meeting(range(6), 6), threads=6, unordered=False) as rows:
        assert loaded(rows, rows.ahead([[0, 1], [2, 3], [4, 5]], batches=2)) == [[0, 1], [2, 3], [4, 5]]


def test_no_more_threads_than_asked_for_and_none_before_they_are_needed():
    with Concurrent(Rows(numbers()), threads=3) as rows:
        assert not fetchers()
        loaded(rows, rows.ahead(batches(100), 4))
        assert len(fetchers()) == 3


def test_a_thread_gets_neighbours_in_ascending_order():
    table = Counting(numbers(64))
    with Concurrent(Rows(table), threads=1) as rows:
        assert rows.__getitems__(list(reversed(range(64)))) == list(range(64))
    assert table.runs == [(row, row + 1) for row in range(64)]


def test_the_dataset_says_where_rows_lie_and_gives_several_at_once():
    class Location(list):
        asked, told = [], []

        def offsets(self, rows):
            return -rows

        def hint(self, rows):
            self.told.append(rows.tolist())

        def __getitems__(self, rows):
            self.asked.append(rows)
            return [self[row] for row in rows]

    placed = Location(range(16))
    with Concurrent(placed, threads=2) as rows:
        assert sorted(rows.__getitems__(list(range(16)))) == list(range(16))
    assert sorted(placed.asked) == [list(range(7, -1, -1)), list(range(15, 7, -1))]
    assert placed.told == [list(range(16))]


def test_keys_need_not_be_numbers():
    with Concurrent({"a": 1, "b": 2, ("c", 3): 4}, unordered=False) as rows:
        assert rows.__getitems__(["b", ("c", 3), "a"]) == [2, 4, 1]
        assert rows["a"] == 1
        assert rows.__getitems__([]) == []


@pytest.mark.parametrize("together", [False, True])
def test_a_failing_dataset_names_the_row(together):
    class Broken(list):
        def __getitem__(self, row):
            if row == 37:
                raise ZeroDivisionError("no such picture")
            return super().__getitem__(row)

    if together:
        Broken.__getitems__ = lambda self, rows: [self[row] for row in rows]
    with Concurrent(Broken(range(100)), threads=4) as rows:
        with pytest.raises(FetchFailed, match=r"row 37 failed: ZeroDivisionError: no such picture") as failure:
            loaded(rows, rows.ahead([list(range(20)), list(range(20, 60)), list(range(60, 100))], 2))
        assert isinstance(failure.value.__cause__, ZeroDivisionError)
        assert sorted(rows.__getitems__(list(range(30)))) == list(range(30))  # and it goes on after that
        with pytest.raises(FetchFailed, match="row 37 failed"):
            rows[37]


def test_rows_that_fail_only_together_are_named():
    class Together(list):
        short = False

        def __getitems__(self, rows):
            if self.short:
                return [self[row] for row in rows[1:]]
            raise MemoryError("too many")

    together = Together(range(10))
    with Concurrent(together, threads=1) as rows:
        with pytest.raises(FetchFailed, match=r"rows 3, 4 failed together, but not one by one: MemoryError: too many"):
            rows.__getitems__([3, 4])
        together.short = True
        with pytest.raises(FetchFailed, match=r"must return 2 rows for 3, 4, got 1"):
            rows.__getitems__([3, 4])


def test_a_failing_disk():
    with Concurrent(Rows(Failing(numbers(), after=15)), threads=4) as rows:
        with pytest.raises(
            FetchFailed, match=r"row \d+ failed: ReadFailed: .*read \d+ of rows .* failed on purpose"
        ) as at:
            loaded(rows, rows.ahead(batches(100), 2))
        assert isinstance(at.value.__cause__, ReadFailed)


@pytest.mark.parametrize("method", ["hint", "offsets"])
def test_a_dataset_that_cannot_say_what_it_promised_fails_the_batch_it_was_asked_about(method):
    class Deaf(list):
        pass

    def ask(self, rows):
        if 2 in rows:
            raise OSError("no device")
        return rows

    setattr(Deaf, method, ask)
    with Concurrent(Deaf(range(4)), unordered=False) as rows:
        batches = data.DataLoader(rows, batch_sampler=rows.ahead([[1, 0], [2, 3]], 1), collate_fn=list)
        came = iter(batches)
        assert next(came) == [1, 0]
        with pytest.raises(OSError, match="no device"):
            next(came)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # newer Pythons warn of forks where threads run
@pytest.mark.parametrize(("context", "workers", "ahead"), [("fork", 2, 0), ("fork", 2, 4), ("spawn", 1, 2)])
def test_worker_processes(context, workers, ahead):
    wanted = batches(60)
    with Concurrent([row * 3 for row in range(60)], threads=3, unordered=False) as rows:
        assert rows.__getitems__([5, 4]) == [15, 12]  # threads run before the fork
        options = {"num_workers": workers, "multiprocessing_context": context, "persistent_workers": True}
        loader = data.DataLoader(rows, batch_sampler=rows.ahead(wanted, ahead), collate_fn=list, **options)
        for _ in range(2):
            assert list(loader) == [[row * 3 for row in batch] for batch in wanted]
        assert rows.__getitems__([7]) == [21]


def test_errors_reach_the_main_process_as_they_are():
    """Workers send an error as its class and its text, and torch builds it again."""
    with Concurrent(list(range(60))) as rows:
        try:
            rows.__getitems__([3, 60])
        except FetchFailed:
            sent = pickle.loads(pickle.dumps(torch._utils.ExceptionWrapper(where="in a worker")))  # noqa: S301
    with pytest.raises(FetchFailed, match="row 60 failed: IndexError"):
        sent.reraise()


def test_workers_fetch_ahead_what_they_will_be_asked_for(monkeypatch):
    """Worker 1 of 2 gets every other batch: with four ahead of it, two are its own."""
    info = type("Info", (), {"num_workers": 2})
    monkeypatch.setattr("corgipile.torch.in_flight.get_worker_info", lambda: info)
    gate = Gate(range(8))
    with Concurrent(gate, threads=8) as rows:
        announced = list(rows.ahead([[row] for row in range(8)], 4))
        gate.open.set()
        rows.__getitems__(announced[1])
        (here,) = rows._in_flight.values()
        assert [number for _, number in here._begun] == [3, 5]
        rows.__getitems__(announced[3])
        assert [number for _, number in here._begun] == [5, 7]


def test_pickled_it_is_the_same_without_its_threads():
    with Concurrent(list(range(10)), threads=3, unordered=False) as rows:
        rows.__getitems__([1])
        with pickle.loads(pickle.dumps(rows)) as again:  # noqa: S301
            assert (again.threads, again.unordered, len(again)) == (3, False, 10)
            assert again.__getitems__([3, 1]) == [3, 1]


def test_a_new_pass_forgets_what_the_last_one_had_ahead():
    wanted = batches(100)
    with Concurrent(Rows(numbers()), unordered=False) as rows:
        sampler = rows.ahead(wanted, 4)
        loader = data.DataLoader(rows, batch_sampler=sampler, collate_fn=list)
        assert next(iter(loader)) == wanted[0]
        assert list(loader) == wanted
        (here,) = rows._in_flight.values()
        assert not here._begun


def test_dropped_without_close_it_ends_its_threads():
    rows = Concurrent(Rows(numbers()))
    rows.__getitems__([1, 2])
    assert fetchers()
    del rows
    gc.collect()
    assert gone()


def test_closing_wakes_who_waits_and_ends_everything():
    gate = Gate(range(100))
    rows, caught = Concurrent(gate, threads=2), []

    def wait():
        try:
            rows.__getitems__(list(range(100)))
        except BadArgument as error:
            caught.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert gate.reached.wait(PATIENCE)

    pool = rows._process_batches()._pool

    def open_once_closed():
        wait_for(lambda: pool._stopped)
        gate.open.set()

    threading.Thread(target=open_once_closed).start()
    rows.close()
    waiting.join(PATIENCE)
    assert caught == ["this dataset was closed; make a new one"]
    assert gone()
    rows.close()
    for ask in (lambda: rows.__getitems__([1]), lambda: rows[1], lambda: next(iter(rows))):
        with pytest.raises(BadArgument, match="was closed; make a new one"):
            ask()


def test_all_rows_one_by_one():
    with Concurrent(list(range(0, 30, 3))) as rows:
        assert list(rows) == [row for row in rows] == list(range(0, 30, 3))  # noqa: C416 - both are asked
        assert 27 in rows
        assert 28 not in rows


def test_an_interrupt_is_not_kept_waiting():
    """One that comes just before a thread waits wakes it at the next signal only: that is Python's own way."""
    gate, caught, raised = Gate(range(10)), threading.Event(), []

    def once(*_):
        if not raised:
            raised.append(True)
            raise KeyboardInterrupt

    def interrupt():
        gate.reached.wait(PATIENCE)
        while not caught.wait(0.1):
            os.kill(os.getpid(), signal.SIGINT)

    usual = signal.signal(signal.SIGINT, once)
    thread = threading.Thread(target=interrupt)
    with Concurrent(gate, threads=2) as rows:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            rows.__getitems__([1, 2, 3])
        caught.set()
        thread.join()
        signal.signal(signal.SIGINT, usual)
        gate.open.set()
        assert sorted(rows.__getitems__([4, 5])) == [4, 5]


def test_bad_arguments():
    for threads in (0, "4", 2.5, None):
        with pytest.raises(BadArgument, match=f"threads must be a whole number of 1 to 1024, got {threads!r}"):
            Concurrent([1], threads=threads)
    with pytest.raises(BadArgument, match="must be a map-style dataset with __getitem__, got int"):
        Concurrent(3)

    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter([1])

        def __getitem__(self, row):
            return row

    with pytest.raises(BadArgument, match="must be a map-style dataset with __getitem__, got Stream"):
        Concurrent(Stream())
    with pytest.raises(BadArgument, match="batches must be a whole number of 0 to 64, got -1"):
        Concurrent([1]).ahead([[0]], -1)


def test_a_torch_subset_of_it_fetches_in_parallel():
    with Concurrent(Meeting(range(8), 4), threads=4, unordered=False) as rows:
        assert data.Subset(rows, [6, 1, 3, 2]).__getitems__([3, 0, 1, 2]) == [2, 6, 1, 3]
        assert torch.utils.data.default_collate(rows.__getitems__([0, 1, 2, 3])).tolist() == [0, 1, 2, 3]
