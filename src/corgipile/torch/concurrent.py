"""Map-style datasets whose rows many threads fetch, in any order, several batches ahead (RINAS)."""

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

MAX_THREADS = 1024


class Concurrent(Dataset[Any]):
    """Fetches the rows of current and future batches in parallel, from any map-style dataset.

    PyTorch's DataLoader requests whole batches from a dataset with ``__getitems__``. Here a pool of threads serves
    them: each thread fetches and preprocesses a few neighbouring rows by the dataset's ``__getitem__``. RINAS takes one
    thread per row; fewer threads with sorted rows are faster, since they cost less and the device seeks less.

    The dataset may offer three faster methods. ``__getitems__(rows)`` returns several rows at once; ``offsets(rows)``
    returns the rows' positions, which set the order of fetching; ``hint(rows)`` starts fetching rows without waiting
    for them. A ``datasets.Dataset`` of Hugging Face gets all of them; until `close`, its files are read without the
    system's read-ahead.

    Args:
        dataset: A map-style dataset whose ``__getitem__`` may be called from several threads at a time.
        threads: Threads per process, started when first needed.
        unordered: Return the rows of a batch in the order of arrival, which differs from run to run; otherwise in the
            requested order.

    Attributes:
        dataset: The wrapped dataset.

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
            raise BadArgument(f"dataset must be a map-style dataset with __getitem__, got {type(dataset).__name__}")
        threads = whole(threads, "threads", 1, MAX_THREADS)
        self.dataset, self.threads, self.unordered = dataset, threads, unordered
        self._source = MappedDataset(dataset) if is_hugging_face(dataset) else dataset
        self._closed = False
        self._in_flight: dict[int, BatchesInFlight] = {}

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
        """Return the rows of a batch; start fetching batches announced by `ahead`."""
        return self._process_batches().take(rows).rows(unordered=self.unordered)

    def ahead(self, batch_sampler: Iterable[Any], batches: int = 4) -> Lookahead:
        """Return a batch sampler that announces batches to this dataset before they are requested.

        Args:
            batch_sampler: Yields lists of row numbers.
            batches: Batches in flight besides the current one, over all worker processes; give at least as many as
                workers.
        """
        return Lookahead(batch_sampler, batches)

    def _process_batches(self) -> BatchesInFlight:
        """Return the batches in flight in this process: threads do not survive a fork."""
        self._check_open()
        process = os.getpid()
        if process not in self._in_flight:
            in_flight = self._in_flight.setdefault(process, BatchesInFlight(self._source, self.threads))
            weakref.finalize(self, in_flight.close, wait=False)
        return self._in_flight[process]

    def _check_open(self) -> None:
        if self._closed:
            raise BadArgument(CLOSED)

    def close(self) -> None:
        """Drop batches in flight and end this process's threads; rows can no longer be requested."""
        self._closed = True
        if (in_flight := self._in_flight.pop(os.getpid(), None)) is not None:
            in_flight.close()
        if self._source is not self.dataset:
            self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
