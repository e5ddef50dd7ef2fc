"""Lengths of lists in Parquet pages, from their repetition levels."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.tables.formats.parquet.pages import LARGE_PAGE, Page, unpacked
from corgipile.tables.io.files import File
from corgipile.tables.io.varints import varint
from corgipile.tables.table import IntArray

__all__ = ["list_lengths"]


def list_lengths(
    file: File, pages: Sequence[Page], codec: str, level: int, rows: int
) -> tuple[IntArray, IntArray] | None:
    """Return the rows begun before the end of each page, and the values of the longest row that begins in it.

    Args:
        file: The file.
        pages: Data pages of a column chunk.
        codec: Their compression.
        level: The largest repetition level.
        rows: Rows of the chunk.

    Returns:
        None if all rows are as long as those of the first page. Damaged levels count as one row.
    """
    total = sum(page.values for page in pages)
    begins, base = list[IntArray](), 0
    for page in pages:
        begins.append(base + _begins(file, page, codec, level))
        base += page.values
        if len(begins) == 1 and total % rows == 0 and (np.diff(begins[0]) == total // rows).all():
            return None
    ends = np.cumsum([len(some) for some in begins])
    if ends[-1] != rows:
        return np.array([rows]), np.array([total])
    lengths = np.diff(np.append(np.concatenate(begins), total))
    parts = np.split(lengths, ends[:-1])
    return ends, np.array([part.max(initial=0) for part in parts])


def _begins(file: File, page: Page, codec: str, level: int) -> IntArray:
    """Return the positions of the values of a page that begin a row; none if its levels are damaged."""
    try:
        if page.levels is not None:  # repetition levels come first
            return np.flatnonzero(~_repeats(file.read(page.start, page.levels), page.values, level.bit_length()))
        if max(page.nbytes, page.stored) <= LARGE_PAGE:
            data = unpacked(file, page, codec)
            data = data[4 : 4 + int.from_bytes(data[:4], "little")]
            return np.flatnonzero(~_repeats(data, page.values, level.bit_length()))
    except (IndexError, ValueError, OSError, pa.ArrowException):
        pass
    return np.zeros(0, np.int64)


def _repeats(data: bytes, count: int, width: int) -> npt.NDArray[np.bool_]:
    """Unpack which values continue a row: levels above zero, in runs of one level or of packed levels."""
    out, at, done = np.zeros(count, np.bool_), 0, 0
    while done < count:
        head, at = varint(data, at)
        if head & 1:
            size = (head >> 1) * width
            bits = np.unpackbits(np.frombuffer(data[at : at + size], np.uint8), bitorder="little")
            levels, at = bits.reshape(-1, width).max(axis=1)[: count - done], at + size
            length = len(levels)
            out[done : done + length] = levels > 0
        else:
            length, level, at = head >> 1, data[at], at + 1
            out[done : done + length] = level > 0
        if not length:
            raise ValueError(head)
        done += length
    return out
