"""Rows of map-style datasets fetched by many threads, in any order, several batches ahead (RINAS)."""

import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Self

from torch.utils.data import Dataset, IterableDataset

from corgipile.errors import BadArgument
from corgipile.sizes import whole
from corgipile.torch.huggingface import MappedDataset, is_hugging_face
from corgipile.torch.in_flight import CLOSED, BatchesInFlight, fetch
from corgipile.torch.lookahead import Lookahead

__all__ = ["Concurrent"]

MOST_THREADS = 1024


class Concurrent(Dataset[Any]):
    """Fetches the rows of a batch in parallel, and those of batches to come, from any map-style dataset.

    PyTorch's DataLoader asks a dataset that has ``__getitems__`` for a whole batch. Here a pool of threads answers:
    each fetches a few rows at neighbouring places and preprocesses them, as the dataset's ``__getitem__`` does. RINAS
    takes one thread per row; fewer threads with sorted rows are faster: they cost less, and the device seeks less.

    The dataset may offer more, and is then asked for it: ``__getitems__(rows)`` returns several rows at once;
    ``offsets(rows)`` says where rows lie, so that they are fetched in this order; ``soon(rows)`` begins to fetch rows
    without waiting for them. A ``datasets.Dataset`` of Hugging Face gets all of this; until `close`, its files are read
    without the system's read-ahead.

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

    def __init__(self, dataset: Any, *, threads: int = 32, unordered: bool = True) -> None:
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
            raise BadArgument(f"a map-style dataset with __getitem__ is needed, got {type(dataset).__name__}")
        threads = whole(threads, "threads", 1, MOST_THREADS)
        self.dataset, self.threads, self.unordered = dataset, threads, unordered
        self._source = MappedDataset(dataset) if is_hugging_face(dataset) else dataset
        self._closed = False
        self._under_way: dict[int, BatchesInFlight] = {}

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        return partial(Concurrent, threads=self.threads, unordered=self.unordered), (self.dataset,)

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[Any]:
        """Yield rows 0, 1, ... to the last, one by one; a DataLoader gets them in parallel."""
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, row: Any) -> Any:
        self._check_open()
        return fetch(self._source, [row])[0]

    def __getitems__(self, rows: Sequence[Any]) -> list[Any]:
        """Return the rows of a batch; batches announced by `ahead` are begun with."""
        return self._here().take(rows).rows(unordered=self.unordered)

    def ahead(self, batch_sampler: Iterable[Any], batches: int = 4) -> Lookahead:
        """Return a batch sampler that lets this dataset begin with batches before they are asked for.

        Args:
            batch_sampler: Yields lists of row numbers.
            batches: Batches in flight beside the one waited for; of all worker processes together, so give at least as
                many as there are workers.
        """
        return Lookahead(batch_sampler, batches)

    def _here(self) -> BatchesInFlight:
        """Return what is under way in this process: threads do not survive a fork."""
        self._check_open()
        process = os.getpid()
        if process not in self._under_way:
            mine = self._under_way.setdefault(process, BatchesInFlight(self._source, self.threads))
            weakref.finalize(self, mine.close, wait=False)
        return self._under_way[process]

    def _check_open(self) -> None:
        if self._closed:
            raise BadArgument(CLOSED)

    def close(self) -> None:
        """Forget what is under way and end the threads of this process; rows can no longer be asked for."""
        self._closed = True
        if (mine := self._under_way.pop(os.getpid(), None)) is not None:
            mine.close()
        if self._source is not self.dataset:
            self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
