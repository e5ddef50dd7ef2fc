"""Protocol of an object whose byte ranges are read, wherever it is stored."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["IntArray", "Ranges"]

IntArray = npt.NDArray[np.int64]


class Ranges(Protocol):
    """An object whose byte ranges are read; thread-safe, and picklable without secrets.

    Attributes:
        url: Its URL, without credentials: it may appear in messages and names of files.
        size: Its bytes.
        etag: A tag that changes with the object: the ETag, a digest or a generation; empty if unknown.
    """

    @property
    def url(self) -> str:
        """Return its URL, without credentials."""

    @property
    def size(self) -> int:
        """Return its bytes."""

    @property
    def etag(self) -> str:
        """Return a tag that changes with the object, empty if unknown."""

    def fetch(self, offsets: IntArray, lengths: IntArray, out: npt.NDArray[np.uint8], to: IntArray) -> None:
        """Read ranges, each to its place in ``out``; many requests are in flight at once.

        Args:
            offsets: Their offsets, in any order; they may overlap.
            lengths: Their bytes, at least 0.
            out: The output.
            to: The place of each range in the output.

        Raises:
            CorruptFile: The object has changed since it was opened, or is shorter.
            MissingFile: The object was deleted.
            ReadFailed: The store refused, or did not answer for long.
        """

    def whole(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Read a range by one request without a copy, for callers that keep the answer; see `fetch`."""
