"""The contract of an object of which byte ranges are read, wherever it lies."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["IntArray", "Ranges"]

IntArray = npt.NDArray[np.int64]


class Ranges(Protocol):
    """An object of which byte ranges are read; thread-safe, and picklable without secrets.

    Attributes:
        url: Where it lies, without credentials: it may stand in messages and names of files.
        size: Its bytes.
        etag: What changes when the object does: the ETag, or a digest, or a generation; empty where nobody says.
    """

    @property
    def url(self) -> str:
        """Return where it lies, without credentials."""

    @property
    def size(self) -> int:
        """Return its bytes."""

    @property
    def etag(self) -> str:
        """Return what changes when the object does, empty where nobody says."""

    def fetch(self, offsets: IntArray, lengths: IntArray, out: npt.NDArray[np.uint8], to: IntArray) -> None:
        """Read ranges, each to its place in ``out``; many requests are on their way at once.

        Args:
            offsets: Where they begin, in any order; they may overlap.
            lengths: Their bytes, from 0.
            out: Where they go.
            to: Where in it each begins.

        Raises:
            CorruptFile: The object has changed since it was opened, or has not these bytes.
            MissingFile: It is gone.
            ReadFailed: The store refused, or did not answer for long.
        """

    def whole(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Read a range by one request, and nothing is copied: where that is kept as it comes; see `fetch`."""
