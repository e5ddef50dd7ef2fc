"""What is known of a device or a bucket: the rates of reads of some sizes, some at a time."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from corgipile.sizes import format_bytes

__all__ = ["Cell", "Probe"]

FULL = 0.9  # of the best rate, that counts as full
USUAL, SINGLE = 4, 32  # reads that loaders have under way: of blocks, of single rows
PAGE = 4 << 10


class Cell(NamedTuple):
    """One rate that was measured.

    Attributes:
        nbytes: Bytes of a read.
        at_once: Reads under way at a time.
        rate: Bytes a second of all together.
        sequential: Whether each lies behind the one before.
    """

    nbytes: int
    at_once: int
    rate: float
    sequential: bool = False


@dataclass(frozen=True)
class Probe:
    """What is known of a device or a bucket.

    Attributes:
        place: Which one.
        taken: When it was measured, seconds since 1970.
        cells: The rates.
    """

    place: str
    taken: float
    cells: tuple[Cell, ...]

    def rate(self, nbytes: float, at_once: float, *, sequential: bool = False) -> float:
        """Return the bytes a second of reads like these; between what was measured, on a line of logarithms.

        Example:
            >>> probe = Probe("disk", 0.0, (Cell(4096, 4, 1e8), Cell(65536, 4, 1.6e9)))
            >>> round(probe.rate(16384, 4) / 1e6), round(probe.rate(1 << 20, 64) / 1e6)
            (400, 1600)
        """
        cells = [cell for cell in self.cells if cell.sequential == sequential] or list(self.cells)
        depths = sorted({cell.at_once for cell in cells})
        by_depth = [
            _between(nbytes, sorted((cell.nbytes, cell.rate) for cell in cells if cell.at_once == depth))
            for depth in depths
        ]
        return _between(at_once, [*zip(depths, by_depth, strict=True)])

    @property
    def best(self) -> Cell:
        """Return the highest rate of random reads."""
        return max((cell for cell in self.cells if not cell.sequential), key=lambda cell: cell.rate)

    def enough(self, at_once: float) -> int:
        """Return the bytes of the smallest reads that come at full rate, so many at a time.

        Example:
            >>> probe = Probe("disk", 0.0, (Cell(4096, 4, 1e8), Cell(65536, 4, 1e9)))
            >>> probe.enough(4)
            65536
        """
        sizes = sorted({cell.nbytes for cell in self.cells if not cell.sequential})
        full = FULL * max(self.rate(size, at_once) for size in sizes)
        return next(size for size in sizes if self.rate(size, at_once) >= full)

    def deep(self, nbytes: float) -> int:
        """Return how few reads of a size at a time come at full rate."""
        depths = sorted({cell.at_once for cell in self.cells if not cell.sequential})
        full = FULL * max(self.rate(nbytes, depth) for depth in depths)
        return next(depth for depth in depths if self.rate(nbytes, depth) >= full)

    def __str__(self) -> str:
        """Say it in a line."""
        best, size = self.best, self.enough(USUAL)
        return (
            f"{self.place}: {format_bytes(best.rate)}/s at best, runs of {format_bytes(size)} at full rate "
            f"{USUAL} at a time; single reads of {format_bytes(PAGE)} come "
            f"{self.rate(PAGE, SINGLE) / PAGE:,.0f} a second"
        )


def _between(at: float, known: list[tuple[Any, float]]) -> float:
    """Interpolate; beyond what is known, what is nearest."""
    x, y = zip(*known, strict=True)
    return float(np.exp(np.interp(np.log(at), np.log(x), np.log(y))))
