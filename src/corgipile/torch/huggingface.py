"""Hugging Face datasets whose rows are prefetched by the system.

A ``datasets.Dataset`` maps its Arrow files into memory, so each page of each row is awaited separately, and a large
read-ahead reads megabytes for it. The dataset still formats, transforms and selects columns.
"""

import os
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.torch.mmap import Mapped

__all__ = ["MappedDataset", "is_hugging_face"]

IntArray = npt.NDArray[np.int64]


def is_hugging_face(dataset: Any) -> bool:
    """Return whether an object is a ``datasets.Dataset``, without importing that package.

    Example:
        >>> is_hugging_face([1, 2])
        False
    """
    return type(dataset).__module__.startswith("datasets.") and hasattr(dataset, "_indices")


class MappedDataset:
    """A Hugging Face dataset that accepts hints about the next rows."""

    run = 128  # rows per task: the device fetches all of them already

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._mapped: tuple[int, Mapped] | None = None

    def __reduce__(self) -> tuple[type["MappedDataset"], tuple[Any]]:
        return MappedDataset, (self.dataset,)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, row: int) -> Any:
        return self.dataset[row]

    def __getitems__(self, rows: Sequence[int]) -> list[Any]:
        """Return rows in the dataset's format."""
        self._rows().now(self.offsets(np.asarray(rows)))
        return list(self.dataset.__getitems__(rows))

    def hint(self, rows: IntArray) -> None:
        """Start fetching rows."""
        self._rows().hint(np.sort(self.offsets(rows)))

    def offsets(self, rows: IntArray) -> IntArray:
        """Return the rows' places in the stored table; a shuffled or filtered dataset has a list of places."""
        places = self.dataset._indices  # noqa: SLF001  # there is no public accessor
        rows = rows % max(len(self), 1)  # the dataset itself rejects invalid rows
        return rows if places is None else places.fast_gather(rows).column(0).to_numpy().astype(np.int64)

    def _rows(self) -> Mapped:
        if self._mapped is None or self._mapped[0] != os.getpid():
            formatting = self.dataset.format
            columns = self.dataset.column_names if formatting["output_all_columns"] else formatting["columns"]
            paths = [file["filename"] for file in self.dataset.cache_files]
            mapped = Mapped(self.dataset.data.to_batches() if paths else (), columns, paths)
            weakref.finalize(self, mapped.close)
            self._mapped = (os.getpid(), mapped)
        return self._mapped[1]

    def close(self) -> None:
        """Restore the system's read-ahead for the dataset's files."""
        if self._mapped is not None:
            self._mapped[1].close()
        self._mapped = None
