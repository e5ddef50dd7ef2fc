"""Rows of map-style datasets fetched by many threads, in any order, several batches ahead (RINAS)."""

import os
import queue
import threading
import weakref
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from corgipile.errors import BadArgument, FetchFailed
from corgipile.torch.ahead import Ahead, Announced
from corgipile.torch.crew import Crew
from corgipile.torch.huggingface import MappedDataset, is_hugging_face

__all__ = ["Concurrent"]

MOST_THREADS = 1024
RUN = 8  # rows a thread fetches one after the other: what a task costs is shared, and places ascend
CLOSED = "this dataset was closed; make a new one"


class Concurrent(Dataset[Any]):
    """Fetches the rows of a batch in parallel, and those of batches to come, from any map-style dataset.

    PyTorch's DataLoader asks a dataset that has ``__getitems__`` for a whole batch. Here a pool of threads answers:
    each fetches a few rows at neighbouring places and preprocesses them, as the dataset's ``__getitem__`` does. RINAS
    takes one thread per row; fewer threads with sorted rows are faster: they cost less, and the device seeks less.

    The dataset may offer more, and is then asked for it: ``__getitems__(rows)`` returns several rows at once;
    ``offsets(rows)`` says where rows lie, so that they are fetched in this order; ``soon(rows)`` begins to fetch rows
    without waiting for them. A ``datasets.Dataset`` of Hugging Face gets all of this.

    Args:
        dataset: A map-style dataset whose ``__getitem__`` may be called from several threads at a time.
        threads: Threads of each process, started when first needed.
        unordered: Let the rows of a batch come in the order in which they arrive, which differs from run to run;
            else they come in the order asked for.

    Attributes:
        dataset: The dataset as it was given.

    Raises:
        FetchFailed: The dataset raised; the message names the row, the cause is the dataset's own error.

    Example:
        >>> from torch.utils.data import BatchSampler, DataLoader, SequentialSampler
        >>> with Concurrent([i * i for i in range(10)], threads=4, unordered=False) as squares:
        ...     sampler = BatchSampler(SequentialSampler(squares), batch_size=4, drop_last=False)
        ...     for batch in DataLoader(squares, batch_sampler=squares.ahead(sampler, batches=2)):
        ...         print(batch.tolist())
        [0, 1, 4, 9]
        [16, 25, 36, 49]
        [64, 81]
    """

    def __init__(self, dataset: Any, threads: int = 32, unordered: bool = True) -> None:
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
            raise BadArgument(f"a map-style dataset with __getitem__ is needed, got {type(dataset).__name__}")
        if not 1 <= threads <= MOST_THREADS:
            raise BadArgument(f"threads must be 1 to {MOST_THREADS}, got {threads}")
        self.dataset, self.threads, self.unordered = dataset, threads, unordered
        self._source = MappedDataset(dataset) if is_hugging_face(dataset) else dataset
        self._closed = False
        self._under_way: dict[int, _UnderWay] = {}

    def __reduce__(self) -> tuple[type["Concurrent"], tuple[Any, int, bool]]:
        return Concurrent, (self.dataset, self.threads, self.unordered)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, row: Any) -> Any:
        return _fetch(self._source, [row])[0]

    def __getitems__(self, rows: Sequence[Any]) -> list[Any]:
        """Return the rows of a batch; batches announced by `ahead` are begun with."""
        return self._here().take(rows).rows(unordered=self.unordered)

    def ahead(self, batch_sampler: Iterable[Any], batches: int = 4) -> Ahead:
        """Return a batch sampler that lets this dataset begin with batches before they are asked for.

        Args:
            batch_sampler: Yields lists of row numbers.
            batches: Batches in flight beside the one waited for; of all worker processes together, so give at least as
                many as there are workers.
        """
        return Ahead(batch_sampler, batches)

    def _here(self) -> "_UnderWay":
        """Return what is under way in this process: threads do not survive a fork."""
        if self._closed:
            raise BadArgument(CLOSED)
        process = os.getpid()
        if process not in self._under_way:
            mine = self._under_way.setdefault(process, _UnderWay(self._source, self.threads))
            weakref.finalize(self, mine.close, wait=False)
        return self._under_way[process]

    def close(self) -> None:
        """Forget what is under way and end the threads of this process."""
        self._closed = True
        if (mine := self._under_way.pop(os.getpid(), None)) is not None:
            mine.close()
        if self._source is not self.dataset:
            self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _UnderWay:
    """The threads of one process and the batches they fetch."""

    def __init__(self, source: Any, threads: int) -> None:
        self._source, self._threads, self._crew = source, threads, Crew(threads)
        self._lock, self._closed = threading.Lock(), False
        self._flights: dict[tuple[int, int], _Flight] = {}
        self._awaited: weakref.WeakSet[_Flight] = weakref.WeakSet()

    def take(self, rows: Sequence[Any]) -> "_Flight":
        """Return a batch's flight, begun now if it was not ahead; begin with those announced and forget others."""
        with self._lock:
            if self._closed:
                raise BadArgument(CLOSED)
            flight = self._announced(rows) if isinstance(rows, Announced) else self._begin(rows)
            self._awaited.add(flight)
            return flight

    def _announced(self, rows: Announced) -> "_Flight":
        worker = get_worker_info()
        stride = worker.num_workers if worker is not None else 1  # the batches between go to the other workers
        wanted: dict[tuple[int, int], Sequence[Any]] = {(rows.turn, rows.number): rows}
        for number, later in enumerate(rows.following[stride - 1 :: stride], 1):
            wanted[rows.turn, rows.number + stride * number] = later
        for name in self._flights.keys() - wanted:
            self._flights.pop(name).cancel()
        for name, later in wanted.items():
            if name not in self._flights:
                self._flights[name] = self._begin(later)
        return self._flights.pop((rows.turn, rows.number))

    def _begin(self, rows: Sequence[Any]) -> "_Flight":
        return _Flight(self._source, rows, self._crew, self._threads)

    def close(self, *, wait: bool = True) -> None:
        """Forget all batches and end the threads."""
        with self._lock:
            self._closed = True
            for flight in [*self._flights.values(), *self._awaited]:
                flight.cancel()
            self._flights.clear()
        self._crew.stop(wait=wait)


class _Flight:
    """One batch under way: its rows in runs of neighbours, which come as threads have them."""

    def __init__(self, source: Any, rows: Sequence[Any], crew: Crew, threads: int) -> None:
        self._source, self._rows, self._crew = source, list(rows), crew
        self._done: queue.SimpleQueue[tuple[list[int], list[Any] | BaseException]] = queue.SimpleQueue()
        self._cancelled = False
        try:
            order = _by_place(source, self._rows)
        except Exception as error:  # noqa: BLE001  # it belongs to who waits for this batch
            self._runs: list[list[int]] = [[]]
            self._done.put(([], error))
            return
        run = source.run if isinstance(source, MappedDataset) else max(1, min(RUN, len(order) // threads))
        self._runs = [order[at : at + run] for at in range(0, len(order), run)]
        if callable(getattr(source, "soon", None)):
            crew.submit(self._announce)
        else:
            self._submit()

    def _submit(self) -> None:
        for run in self._runs:
            self._crew.submit(partial(self._fetch, run))

    def _announce(self) -> None:
        try:
            self._source.soon(np.asarray(self._rows))
        except BaseException as error:  # noqa: BLE001  # it belongs to the consumer
            self._done.put(([], error))
        self._submit()

    def _fetch(self, run: list[int]) -> None:
        if self._cancelled:
            return
        try:
            self._done.put((run, _fetch(self._source, [self._rows[i] for i in run])))
        except BaseException as error:  # noqa: BLE001  # it belongs to the consumer
            self._done.put(([], error))

    def rows(self, *, unordered: bool) -> list[Any]:
        """Wait for all rows."""
        came: list[Any] = []
        places: list[int] = []
        try:
            for _ in self._runs:
                run, rows = self._done.get()
                if isinstance(rows, BaseException):
                    raise rows
                came += rows
                places += run
        finally:
            self.cancel()
        if unordered:
            return came
        return [row for _, row in sorted(zip(places, came, strict=True), key=lambda pair: pair[0])]

    def cancel(self) -> None:
        """Fetch no more; whoever waits learns of it."""
        self._cancelled = True
        self._done.put(([], BadArgument(CLOSED)))


def _by_place(source: Any, rows: list[Any]) -> list[int]:
    """Return positions in a batch, by the place of their rows; as they are where row names are no numbers."""
    numbers = np.asarray(rows) if all(isinstance(row, int | np.integer) for row in rows) else np.zeros(len(rows))
    if len(rows) and numbers.dtype.kind in "iu" and callable(getattr(source, "offsets", None)):
        numbers = np.asarray(source.offsets(numbers))
    return [int(position) for position in np.argsort(numbers, kind="stable")]


def _fetch(source: Any, rows: list[Any]) -> list[Any]:
    """Fetch some rows, together where the dataset can; if that fails, one by one, to learn which it is."""
    failure: Exception | None = None
    if len(rows) > 1 and getattr(source, "__getitems__", None):
        try:
            came = list(source.__getitems__(rows))
        except Exception as error:  # noqa: BLE001  # the dataset's own, whatever it is
            failure = error
        else:
            if len(came) != len(rows):
                raise FetchFailed(f"rows {_some(rows)} were asked for, {len(rows)} in all; {len(came)} came")
            return came
    came = []
    for row in rows:
        try:
            came.append(source[row])
        except Exception as error:
            raise FetchFailed(f"row {row!r} failed: {type(error).__name__}: {error}") from error
    if failure is not None:
        raise FetchFailed(
            f"rows {_some(rows)} failed together, but not one by one: {type(failure).__name__}: {failure}"
        ) from failure
    return came


def _some(rows: list[Any]) -> str:
    return ", ".join(map(repr, rows[:8])) + (", ..." if len(rows) > 8 else "")
