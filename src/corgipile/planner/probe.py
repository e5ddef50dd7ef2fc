"""Read rates of a device or bucket, by read size and reads in flight."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from corgipile.sizes import format_bytes

__all__ = ["Cell", "Probe"]

FULL_SHARE = 0.9  # share of the best rate that counts as full
BLOCK_DEPTH, ROW_DEPTH = 4, 32  # reads in flight of a loader: of blocks, of single rows
PAGE = 4 << 10


class Cell(NamedTuple):
    """A measured rate.

    Attributes:
        nbytes: Bytes per read.
        at_once: Reads in flight.
        rate: Bytes per second of all reads together.
        sequential: Whether each read follows the one before.
    """

    nbytes: int
    at_once: int
    rate: float
    sequential: bool = False


@dataclass(frozen=True)
class Probe:
    """Measured rates of a device or bucket.

    Attributes:
        place: Name of the device or bucket.
        taken: Time of the measurement, seconds since 1970.
        cells: The rates.
    """

    place: str
    taken: float
    cells: tuple[Cell, ...]

    def rate(self, nbytes: float, at_once: float, *, sequential: bool = False) -> float:
        """Return the bytes per second of such reads, interpolated on logarithmic scales.

        Example:
            >>> probe = Probe("disk", 0.0, (Cell(4096, 4, 1e8), Cell(65536, 4, 1.6e9)))
            >>> round(probe.rate(16384, 4) / 1e6), round(probe.rate(1 << 20, 64) / 1e6)
            (400, 1600)
        """
        cells = [cell for cell in self.cells if cell.sequential == sequential] or list(self.cells)
        depths = sorted({cell.at_once for cell in cells})
        by_depth = [
            _interpolate(nbytes, sorted((cell.nbytes, cell.rate) for cell in cells if cell.at_once == depth))
            for depth in depths
        ]
        return _interpolate(at_once, [*zip(depths, by_depth, strict=True)])

    @property
    def best(self) -> Cell:
        """Return the cell of the highest rate of random reads."""
        return max((cell for cell in self.cells if not cell.sequential), key=lambda cell: cell.rate)

    def enough(self, at_once: float) -> int:
        """Return the bytes of the smallest reads at full rate, for given reads in flight.

        Example:
            >>> probe = Probe("disk", 0.0, (Cell(4096, 4, 1e8), Cell(65536, 4, 1e9)))
            >>> probe.enough(4)
            65536
        """
        sizes = sorted({cell.nbytes for cell in self.cells if not cell.sequential})
        full = FULL_SHARE * max(self.rate(size, at_once) for size in sizes)
        return next(size for size in sizes if self.rate(size, at_once) >= full)

    def deep(self, nbytes: float) -> int:
        """Return the fewest reads in flight at full rate, for a given size."""
        depths = sorted({cell.at_once for cell in self.cells if not cell.sequential})
        full = FULL_SHARE * max(self.rate(nbytes, depth) for depth in depths)
        return next(depth for depth in depths if self.rate(nbytes, depth) >= full)

    def __str__(self) -> str:
        """Return the rates as one line."""
        best, size = self.best, self.enough(BLOCK_DEPTH)
        return (
            f"{self.place}: {format_bytes(best.rate)}/s at best, runs of {format_bytes(size)} at full rate "
            f"{BLOCK_DEPTH} at a time; single reads of {format_bytes(PAGE)} come "
            f"{self.rate(PAGE, ROW_DEPTH) / PAGE:,.0f} a second"
        )


def _interpolate(at: float, known: list[tuple[Any, float]]) -> float:
    """Interpolate between known points; beyond them return the nearest value."""
    x, y = zip(*known, strict=True)
    return float(np.exp(np.interp(np.log(at), np.log(x), np.log(y))))
