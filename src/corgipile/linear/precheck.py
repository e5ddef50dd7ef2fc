"""Looks at a few rows of a table before it is learnt from: row numbers among the features, scales that are apart."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.linear.features import Features
from corgipile.loader.buffer import Field, numbers
from corgipile.suggestions import listed
from corgipile.tables.table import Table

__all__ = ["Precheck", "precheck"]

WIDENED = 1 << 18  # numbers that are float64 at a time
FEW = 32  # rows: of fewer it cannot be said that they are numbered
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Precheck:
    """What a few rows say of the features.

    Attributes:
        scales: How they are scaled: a constant of the kernel.
        length: Mean squared length of a row.
        aside: The share that the square of its mean has of the mean square of a feature, on average.
        apart: How many times larger the largest feature is than the smallest; constant ones are not counted.
        least: Mean square of the smallest feature.
        extremes: The names of the largest and the smallest feature, where they have names.
        numbered: Columns whose values ascend from row to row, all whole numbers: row numbers perhaps.
    """

    scales: int = _kernel.SCALES_FINE
    length: float = 1.0
    apart: float = 1.0
    aside: float = 0.0
    least: float = 1.0
    extremes: tuple[str, ...] = ()
    numbered: tuple[str, ...] = field(default=())

    @property
    def unscaled(self) -> bool:
        """Say whether SGD would learn badly from these features as they are; kernel/sgd/scale_sample.h says where."""
        return self.scales != _kernel.SCALES_FINE

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

    def told(self) -> str:
        """Say in words how the features are scaled."""
        if self.scales == _kernel.ROWS_ASIDE:
            return f"features lie to one side of 0 (their means are {self.aside:.0%} of their mean squares)"
        if self.scales == _kernel.FEATURES_SMALL:
            which = f"feature {self.extremes[1]!r} is" if self.extremes else "features are"
            return f"{which} small for SGD (mean square {self.least:.3g})"
        if self.scales == _kernel.ROWS_LONG:
            return f"rows are long for SGD (mean squared length {self.length:.3g})"
        of = f" ({self.extremes[0]!r} and {self.extremes[1]!r})" if self.extremes else ""
        return f"features differ in scale by {self.apart:.1g} times{of}"


def precheck(table: Table, inputs: Features, *, intercept: bool = True) -> Precheck:
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
    look, some = _kernel.look_new(inputs.width), max(1, WIDENED // inputs.width)
    for at in range(0, len(rows), some):
        _kernel.look_add(look, rows[at : at + some].astype(np.float64, order="C"))
    scales, length, apart, aside, least, largest, smallest = _kernel.look_end(look, len(table))
    widths = [] if inputs.lists else inputs.widths
    names = tuple(name for name, width in zip(inputs.columns, widths, strict=bool(widths)) for _ in range(width))
    extremes = (names[largest], names[smallest]) if names and largest >= 0 else ()
    numbered = tuple(name for name, ascends in zip(names, _ascending(rows), strict=True) if ascends) if names else ()
    if scales == _kernel.ROWS_ASIDE and not intercept:  # which nothing can be moved into
        scales = _kernel.SCALES_FINE
    return Precheck(scales, length, apart, aside, least, extremes, numbered)


def _sample(table: Table, inputs: Features) -> npt.NDArray[Any]:
    """Read runs of rows, [rows, features]: float64, or as they are stored where they are lists."""
    widths = [inputs.width] if inputs.lists else inputs.widths
    kind, named = np.dtype(np.float64), zip(inputs.columns, widths, strict=True)
    fields = [Field(name, (name,), kind, (width,)) for name, width in named]
    parts = []
    for start, stop in _kernel.look_runs(len(table), inputs.width):
        batch, these = table.read(start, stop, list(inputs.columns)), range(start, stop)
        columns = [numbers(column, field, 0, these) for column, field in zip(batch.columns, fields, strict=True)]
        parts.append(columns[0] if inputs.lists else np.concatenate(columns, axis=1, dtype=np.float64))
    return np.concatenate(parts)


def _ascending(rows: FloatArray) -> npt.NDArray[np.bool_]:
    """Say of which columns values are whole numbers, each above the one before."""
    if len(rows) < FEW:
        return np.zeros(rows.shape[1], np.bool_)
    rows = rows.astype(np.float64, copy=False)
    whole = np.isfinite(rows).all(axis=0) & (np.floor(rows) == rows).all(axis=0)
    return np.asarray(whole & (rows[1:] > rows[:-1]).all(axis=0))
