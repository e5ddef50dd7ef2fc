"""Row masks: one bit a row, so that a random tenth of 10^8 rows takes 14 MB."""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Self

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.tables.layout import IntArray

__all__ = ["MaskBuilder", "RowMask"]

BLOCK = 512  # rows between two stored ranks
STEP = 1 << 20  # rows processed at a time


class RowMask:
    """A mask of selected rows, with the rank of every 512th row.

    Args:
        words: uint64[], the first row in the lowest bit, zeros up to whole blocks of 512 rows.

    Example:
        >>> bits = RowMask.of([True, False, True, True])
        >>> len(bits), bits.rows(np.array([2, 0])).tolist(), bits.before(np.array([2, 4])).tolist()
        (3, [3, 0], [1, 3])
    """

    def __init__(self, words: npt.NDArray[np.uint64]) -> None:
        self.words = words
        counts = _popcount(words.view(np.uint8).reshape(-1, BLOCK // 8))
        self.ranks = np.append(np.int64(0), np.cumsum(counts, dtype=np.int64))

    @classmethod
    def of(cls, mask: npt.ArrayLike) -> Self:
        """Create a mask from one boolean a row."""
        return cls.joined([np.asarray(mask, np.bool_)])

    @classmethod
    def joined(cls, masks: Iterable[npt.NDArray[np.bool_]]) -> Self:
        """Create a mask from parts of booleans."""
        builder = MaskBuilder()
        for mask in masks:
            builder.add(mask)
        return cls(builder.words())

    def __reduce__(self) -> tuple[type["RowMask"], tuple[npt.NDArray[np.uint64]]]:
        return RowMask, (self.words,)

    def __len__(self) -> int:
        return int(self.ranks[-1])

    @property
    def nbytes(self) -> int:
        """Return the bytes of the mask in memory."""
        return self.words.nbytes + self.ranks.nbytes

    @property
    def runs(self) -> int:
        """Return the number of runs of selected rows."""
        carried = np.append(np.uint64(0), self.words[:-1] >> np.uint64(63))
        starts = self.words & ~((self.words << np.uint64(1)) | carried)
        return int(_popcount(starts.view(np.uint8).reshape(1, -1))[0]) if len(self.words) else 0

    @property
    def digest(self) -> str:
        """Return a hash of the selected rows."""
        return blake2b(self.words.astype("<u8", copy=False).data, digest_size=16).hexdigest()

    def rows(self, picks: IntArray) -> IntArray:
        """Return the rows whose ranks among the selected rows are ``picks``."""
        rows = np.array(picks, np.int64)
        _kernel.bits_select(self.words, self.ranks, rows)
        return rows

    def before(self, rows: IntArray) -> IntArray:
        """Return the number of selected rows before each row."""
        counts = np.array(rows, np.int64)
        _kernel.bits_rank(self.words, self.ranks, counts)
        return counts

    def within(self, start: int, stop: int) -> IntArray:
        """Return the selected rows with ranks from ``start`` to ``stop``.

        Example:
            >>> RowMask.of([True, False, True, True]).within(1, 3).tolist()
            [2, 3]
        """
        if start >= stop:
            return np.zeros(0, np.int64)
        first, last = self.rows(np.array([start, stop - 1])).tolist()
        base = first // 8 * 8
        mask = np.unpackbits(self.words.view(np.uint8)[base // 8 : last // 8 + 1], bitorder="little")
        selected = np.flatnonzero(mask) + base
        return np.asarray(selected[(selected >= first) & (selected <= last)], np.int64)

    def flipped(self, rows: int) -> "RowMask":
        """Return the complement among ``rows`` rows.

        Example:
            >>> RowMask.of([True, False, True]).flipped(3).within(0, 1).tolist()
            [1]
        """
        words = ~self.words
        words[rows // 64 + 1 :] = 0
        if rows // 64 < len(words):
            words[rows // 64] &= np.uint64((1 << rows % 64) - 1)
        return RowMask(words)

    def parts(self) -> Iterator[IntArray]:
        """Yield all selected rows in parts."""
        for start in range(0, len(self), STEP):
            yield self.within(start, min(start + STEP, len(self)))


class MaskBuilder:
    """Packs parts of booleans into bits, without other copies.

    Example:
        >>> builder = MaskBuilder()
        >>> builder.add(np.array([True, False]))
        >>> builder.add(np.array([True]))
        >>> RowMask(builder.words()).within(0, 2).tolist()
        [0, 2]
    """

    def __init__(self) -> None:
        self._parts: list[npt.NDArray[np.uint8]] = []
        self._rest = np.zeros(0, np.bool_)

    def add(self, mask: npt.NDArray[np.bool_]) -> None:
        """Append the booleans of the next rows."""
        mask = np.concatenate([self._rest, mask])
        whole = len(mask) // 8 * 8
        self._parts.append(np.packbits(mask[:whole], bitorder="little"))
        self._rest = mask[whole:]

    def words(self) -> npt.NDArray[np.uint64]:
        """Return the bits of all rows, in whole blocks."""
        last = np.packbits(self._rest, bitorder="little")
        size = sum(map(len, self._parts)) + len(last)
        blocks = max(1, -(-size // (BLOCK // 8)))
        packed, at = np.zeros(blocks * BLOCK // 8, np.uint8), 0
        for part in [*self._parts, last]:
            packed[at : at + len(part)] = part
            at += len(part)
        return packed.view(np.uint64)


_COUNTS = np.array([byte.bit_count() for byte in range(256)], np.uint8)


def _popcount(rows: npt.NDArray[np.uint8]) -> IntArray:
    """Return the number of set bits in each row of bytes, in little memory."""
    step = max(1, STEP // max(1, rows.shape[1]))
    if len(rows) == 1:  # one long row
        parts = [_COUNTS[rows[0, at : at + STEP]].sum(dtype=np.int64) for at in range(0, rows.shape[1], STEP)]
        return np.array([sum(parts)], np.int64)
    parts = [_COUNTS[rows[at : at + step]].sum(axis=1, dtype=np.int64) for at in range(0, len(rows), step)]
    return np.concatenate(parts)
