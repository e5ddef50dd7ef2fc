"""Looks at a few rows of a table before it is learnt from: row numbers among the features, scales that are apart."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.linear.features import Features
from corgipile.loader.buffer import Field, numbers
from corgipile.suggestions import listed
from corgipile.tables.table import Table

__all__ = ["Precheck", "precheck"]

RUNS, RUN, RUN_NUMBERS = 4, 256, 1 << 18
SQUARES = 1 << 18  # numbers whose squares are in memory at a time
APART, LONG, SHORT = 1000.0, 10.0, 0.01  # of standard features a row is as long, squared, as it is wide
FEW = 32  # rows: of fewer it cannot be said that they are numbered
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Precheck:
    """What a few rows say of the features.

    Attributes:
        length: Mean squared length of a row.
        width: Number of features.
        apart: How many times larger the largest feature is than the smallest; constant ones are not counted.
        zeros: Share of zeros.
        extremes: The names of the largest and the smallest feature, where they have names.
        numbered: Columns whose values ascend from row to row, all whole numbers: row numbers perhaps.
    """

    length: float = 1.0
    width: int = 1
    apart: float = 1.0
    zeros: float = 0.0
    extremes: tuple[str, ...] = ()
    numbered: tuple[str, ...] = field(default=())

    @property
    def unscaled(self) -> bool:
        """Say whether SGD would learn badly from these features as they are.

        Its usual steps are too large for rows so long, or too small for rows so short, or features are so far apart in
        size that no step suits all of them. Features that are mostly zeros, counts and flags, are best left alone.
        """
        usual = SHORT < self.length < LONG * max(self.width, LONG)
        return self.zeros < 0.5 and (not usual or self.apart >= APART)

    def notes(self) -> list[str]:
        """Return what the user should know."""
        said = []
        if self.numbered:
            are = "looks like a row number or an id" if len(self.numbered) == 1 else "look like row numbers or ids"
            said.append(
                f"{listed(self.numbered)} {are} (whole numbers that only ascend) and is learnt from like any feature; "
                "to leave it out name the others with features="
            )
        return said

    def scales(self) -> str:
        """Say in words how the features are scaled."""
        if self.apart < APART:
            what = "short" if self.length <= SHORT else "long"
            return f"rows are {what} for SGD (mean squared length {self.length:.3g})"
        of = f" ({self.extremes[0]!r} and {self.extremes[1]!r})" if self.extremes else ""
        return f"features differ in scale by {self.apart:.1g} times{of}"


def precheck(table: Table, inputs: Features) -> Precheck:
    """Look at about a thousand rows, from four places of the table; of sparse features nothing is said.

    Example:
        >>> import pyarrow as pa
        >>> from corgipile.linear.features import find_inputs
        >>> from corgipile.tables import open
        >>> table = open(pa.table({"id": range(100), "x": [0.01, -0.01] * 50, "label": [0, 1] * 50}))
        >>> seen = precheck(table, find_inputs(table, None, "label"))
        >>> seen.numbered, seen.apart >= 1000, seen.unscaled
        (('id',), True, True)
    """
    if inputs.sparse or not len(table):
        return Precheck()
    rows = _sample(table, inputs)
    finite = np.isfinite(rows).all(axis=1)
    good = rows if finite.all() else rows[finite]
    if not len(good):
        return Precheck()
    size, length = _sizes(good)
    varied = np.flatnonzero((good.max(axis=0) > good.min(axis=0)) & (size > 0))
    widths = [] if inputs.lists else inputs.widths
    names = tuple(name for name, width in zip(inputs.columns, widths, strict=bool(widths)) for _ in range(width))
    apart, extremes = 1.0, names[:0]
    if len(varied):
        top, least = varied[size[varied].argmax()], varied[size[varied].argmin()]
        apart = float(size[top] / size[least])
        extremes = (names[top], names[least]) if names else ()
    numbered = tuple(name for at, name in enumerate(names) if _ascends(rows[:, at]))
    return Precheck(length, inputs.width, apart, float((good == 0).mean()), extremes, numbered)


def _sizes(rows: npt.NDArray[Any]) -> tuple[FloatArray, float]:
    """Return the root mean square of each feature, and the mean squared length of a row; of wide rows bit by bit."""
    count, width = rows.shape
    columns, some = max(1, SQUARES // count), max(1, SQUARES // width)
    with np.errstate(over="ignore"):  # what is so large is far apart
        squares = [(rows[:, at : at + columns].astype(np.float64) ** 2).mean(axis=0) for at in range(0, width, columns)]
        lengths = [(rows[at : at + some].astype(np.float64) ** 2).sum(axis=1) for at in range(0, count, some)]
    return np.sqrt(np.concatenate(squares)), float(np.concatenate(lengths).mean())


def _sample(table: Table, inputs: Features) -> npt.NDArray[Any]:
    """Read runs of rows, [rows, features]: float64, or as they are stored where they are lists."""
    run = min(RUN, max(2, RUN_NUMBERS // inputs.width))
    starts = sorted({int(at) for at in np.linspace(0, max(0, len(table) - run), RUNS)})
    widths = [inputs.width] if inputs.lists else inputs.widths
    parts, end = [], 0
    for start in starts:
        start, stop = max(start, end), min(start + run, len(table))  # noqa: PLW2901 - runs of small tables meet
        batch, end = table.read(start, stop, list(inputs.columns)), stop
        found = zip(inputs.columns, widths, strict=True)
        columns = [_column(batch.column(name), name, width, range(start, stop)) for name, width in found]
        parts.append(columns[0] if inputs.lists else np.concatenate(columns, axis=1, dtype=np.float64))
    return np.concatenate(parts)


def _column(column: Any, name: str, width: int, numbered: range) -> npt.NDArray[Any]:
    field = Field(name, (name,), np.dtype(np.float64), (width,))
    return numbers(column, field, 0, numbered)


def _ascends(values: FloatArray) -> bool:
    """Say whether values are whole numbers, each above the one before."""
    whole = np.isfinite(values).all() and (values == np.floor(values)).all()
    return bool(whole and len(values) >= FEW and (np.diff(values) > 0).all())
