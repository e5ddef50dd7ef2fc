"""Batches in flight in one process: a pool of threads fetches runs of neighbouring rows."""

import os
import queue
import threading
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from torch.utils.data import get_worker_info

from corgipile.errors import BadArgument, FetchFailed
from corgipile.torch.huggingface import MappedDataset
from corgipile.torch.lookahead import Announced
from corgipile.torch.thread_pool import ThreadPool

__all__ = ["CLOSED", "BatchesInFlight", "fetch"]

MAX_RUN = 8  # rows per task: amortises the cost of a task, at ascending places
CLOSED = "this dataset was closed; make a new one"


class BatchesInFlight:
    """Holds a process's threads and the batches they fetch."""

    def __init__(self, source: Any, threads: int) -> None:
        self._source, self._threads, self._pool = source, threads, ThreadPool(threads)
        self._lock, self._closed = threading.Lock(), False
        self._begun: dict[tuple[int, int], BatchInFlight] = {}
        self._awaited: weakref.WeakSet[BatchInFlight] = weakref.WeakSet()

    def take(self, rows: Sequence[Any]) -> "BatchInFlight":
        """Return a batch in flight, begun now if need be; begin the announced ones and drop others."""
        with self._lock:
            if self._closed:
                raise BadArgument(CLOSED)
            batch = self._announced(rows) if isinstance(rows, Announced) else self._begin(rows)
            self._awaited.add(batch)
            return batch

    def _announced(self, rows: Announced) -> "BatchInFlight":
        worker = get_worker_info()
        stride = worker.num_workers if worker is not None else 1  # the batches between belong to other workers
        wanted: dict[tuple[int, int], Sequence[Any]] = {(rows.turn, rows.number): rows}
        for number, later in enumerate(rows.following[stride - 1 :: stride], 1):
            wanted[rows.turn, rows.number + stride * number] = later
        for name in self._begun.keys() - wanted:
            self._begun.pop(name).cancel()
        for name, later in wanted.items():
            if name not in self._begun:
                self._begun[name] = self._begin(later)
        return self._begun.pop((rows.turn, rows.number))

    def _begin(self, rows: Sequence[Any]) -> "BatchInFlight":
        return BatchInFlight(self._source, rows, self._pool, self._threads)

    def close(self, *, wait: bool = True) -> None:
        """Drop all batches and end the threads; a forked process has none to end."""
        if self._pool.process != os.getpid():
            return
        with self._lock:
            self._closed = True
            for batch in [*self._begun.values(), *self._awaited]:
                batch.cancel()
            self._begun.clear()
        self._pool.stop(wait=wait)


class BatchInFlight:
    """A batch in flight: its rows in runs of neighbours, which arrive as threads finish them."""

    def __init__(self, source: Any, rows: Sequence[Any], pool: ThreadPool, threads: int) -> None:
        self._source, self._rows, self._pool = source, list(rows), pool
        self._done: queue.SimpleQueue[tuple[list[int] | None, list[Any]]] = queue.SimpleQueue()
        self._cancelled = False
        try:
            order = _by_place(source, self._rows)
        except Exception as error:  # noqa: BLE001  # raised for the consumer
            self._runs: list[list[int]] = [[]]
            self._done.put((None, [error]))
            return
        run = source.run if isinstance(source, MappedDataset) else max(1, min(MAX_RUN, len(order) // threads))
        self._runs = [order[at : at + run] for at in range(0, len(order), run)]
        if callable(getattr(source, "hint", None)):
            pool.submit(self._announce)
        else:
            self._submit()

    def _submit(self) -> None:
        for run in self._runs:
            self._pool.submit(partial(self._fetch, run))

    def _announce(self) -> None:
        try:
            self._source.hint(np.asarray(self._rows))
        except BaseException as error:  # noqa: BLE001  # raised for the consumer
            self._done.put((None, [error]))
        self._submit()

    def _fetch(self, run: list[int]) -> None:
        if self._cancelled:
            return
        try:
            self._done.put((run, fetch(self._source, [self._rows[i] for i in run])))
        except BaseException as error:  # noqa: BLE001  # raised for the consumer
            self._done.put((None, [error]))

    def rows(self, *, unordered: bool) -> list[Any]:
        """Wait for all rows."""
        fetched: list[Any] = []
        places: list[int] = []
        try:
            for _ in self._runs:
                run, rows = self._done.get()
                if run is None:
                    raise rows.pop()  # a name would create a cycle through its traceback and all frames above
                fetched += rows
                places += run
        finally:
            self.cancel()
        if unordered:
            return fetched
        return [row for _, row in sorted(zip(places, fetched, strict=True), key=lambda pair: pair[0])]

    def cancel(self) -> None:
        """Stop fetching; whoever waits gets an error."""
        self._cancelled = True
        self._done.put((None, [BadArgument(CLOSED)]))


def _by_place(source: Any, rows: list[Any]) -> list[int]:
    """Return positions in a batch, sorted by the place of their rows; unsorted if rows are not numbers."""
    numbers = np.asarray(rows) if all(isinstance(row, int | np.integer) for row in rows) else np.zeros(len(rows))
    if len(rows) and numbers.dtype.kind in "iu" and callable(getattr(source, "offsets", None)):
        numbers = np.asarray(source.offsets(numbers))
    return [int(position) for position in np.argsort(numbers, kind="stable")]


def fetch(source: Any, rows: list[Any]) -> list[Any]:
    """Fetch rows together where the dataset can; if that fails, one by one, to name the failing row."""
    failures: list[Exception] = []
    if len(rows) > 1 and getattr(source, "__getitems__", None):
        try:
            fetched = list(source.__getitems__(rows))
        except Exception as error:  # noqa: BLE001  # the dataset's own, whatever it is
            failures.append(error)
        else:
            if len(fetched) != len(rows):
                raise FetchFailed(f"__getitems__ must return {len(rows)} rows for {_preview(rows)}, got {len(fetched)}")
            return fetched
    fetched = []
    for row in rows:
        try:
            fetched.append(source[row])
        except Exception as error:
            failures.clear()  # their tracebacks would form a cycle
            raise FetchFailed(f"row {row!r} failed: {type(error).__name__}: {error}") from error
    if failures:
        reason = f"{type(failures[0]).__name__}: {failures[0]}"
        raise FetchFailed(f"rows {_preview(rows)} failed together, but not one by one: {reason}") from failures.pop()
    return fetched


def _preview(rows: list[Any]) -> str:
    return ", ".join(map(repr, rows[:8])) + (", ..." if len(rows) > 8 else "")
