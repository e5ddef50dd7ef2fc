"""One loader in several threads: batches are right or refused, and states are those of whole batches."""

import threading

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import BadArgument

ROWS = 12_000
KINDS = {
    "text": lambda row: f"{row} " * (row % 50 + 1),
    "fixed": lambda row: [float(row)] * 16,
    "wide": lambda row: str(row).encode() * 15_000,
}


@pytest.fixture(params=KINDS)
def made(request, tmp_path):
    """Return a function that makes a loader of a file, and a function that checks a row."""
    value, rows = KINDS[request.param], ROWS if request.param != "wide" else 200
    kinds = {"text": pa.string(), "fixed": pa.list_(pa.float32(), 16), "wide": pa.binary()}
    table = pa.table({"row": np.arange(rows), "value": pa.array(map(value, range(rows)), kinds[request.param])})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as out:
        out.write_table(table, max_chunksize=500)
    settings = {} if request.param == "wide" else {"order": "riffle", "memory": "1MB"}
    return lambda: cp.Loader(tmp_path / "a.arrow", batch_size=50, columns=["row", "value"], **settings), value


def together(*jobs):
    """Run each job in a thread, all at once; return their results or errors."""
    begin, results = threading.Barrier(len(jobs)), {}

    def run(at):
        begin.wait()
        try:
            results[at] = jobs[at]()
        except Exception as error:  # noqa: BLE001 - of whatever kind
            results[at] = error

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[at] for at in range(len(jobs))]


def rows_of(batches, value):
    """Return the rows of batches, each with a unique value."""
    rows = []
    for batch in batches:
        rows += batch["row"].tolist()
        for row, found in zip(batch["row"].tolist(), batch["value"], strict=True):
            assert found == value(row) if isinstance(found, str | bytes) else (found == value(row)).all()
    return rows


def test_batches_of_two_threads_are_right_or_refused(made):
    make, value = made
    for _ in range(8):
        loader = make()
        found = together(*[lambda loader=loader: rows_of(loader, value)] * 2)
        errors = [error for error in found if not isinstance(error, list)]
        assert len(errors) < 2, errors  # no errors if one thread was done before the other began
        for rows in (rows for rows in found if isinstance(rows, list)):
            assert sorted(rows) == list(range(len(loader.feeder.table)))
        for error in errors:
            assert isinstance(error, BadArgument), error
            assert "this iteration has ended" in str(error)


def test_the_iteration_that_began_first_is_refused(made):
    make, value = made
    loader = make()
    first = iter(loader)
    rows_of([next(first)], value)
    [rows] = together(lambda: rows_of(loader, value))
    assert sorted(rows) == list(range(len(loader.feeder.table)))
    [error] = together(lambda: next(first))
    assert isinstance(error, BadArgument), error


def test_states_of_another_thread_are_states_between_batches(made):
    make, value = made
    loader, over = make(), threading.Event()

    def states():
        found = []
        while not over.is_set() or not found:
            found.append(loader.state_dict())
        return found

    def iterate():
        try:
            return rows_of(loader, value)
        finally:
            over.set()

    found, rows = together(states, iterate)
    assert isinstance(rows, list), rows
    assert isinstance(found, list), found
    for state in found[:: max(1, len(found) // 8)]:
        again = make()
        again.load_state_dict(state)  # refuses positions inside a batch
        if state["epoch"] == 0:  # else the iteration was over
            assert rows_of(again, value) == rows[state["segments"][-1]["batches"][0] * 50 :]


def test_a_state_or_an_epoch_that_is_set_ends_the_iteration_under_way(made):
    make, value = made
    loader = make()
    for change in (lambda: loader.load_state_dict(loader.state_dict()), lambda: loader.set_epoch(0)):
        batches = iter(loader)
        next(batches)
        change()
        with pytest.raises(BadArgument, match="this iteration has ended"):
            next(batches)
    assert sorted(rows_of(loader, value)) == list(range(len(loader.feeder.table)))


def test_a_loader_closed_in_another_thread_ends_its_iteration(made):
    make, value = made
    loader = make()
    begun = threading.Event()

    def iterate():
        rows = []
        for batch in loader:
            rows += rows_of([batch], value)
            begun.set()
            closed.wait()
        return rows

    def close():
        begun.wait()
        loader.close()
        closed.set()

    closed = threading.Event()
    error, _ = together(iterate, close)
    assert isinstance(error, BadArgument), error
