"""Inspects sample rows before training, for row numbers among the features and badly scaled features."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.linear.features import Features
from corgipile.loader.buffer import Field, numbers
from corgipile.suggestions import listed
from corgipile.tables.table import Table

__all__ = ["Precheck", "precheck", "sampled_rows"]

CAST_NUMBERS = 1 << 18  # numbers cast to float64 at a time
MIN_NUMBERED_ROWS = 32  # fewer rows do not show that a column holds row numbers
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Precheck:
    """Properties of the features in the sample.

    Attributes:
        scales: A kernel constant that classifies their scales.
        length: Mean squared length of a row.
        mean_share: Mean share of a feature's squared mean in its mean square.
        scale_ratio: Ratio of the largest to the smallest feature; constant features do not count.
        least: Mean square of the smallest feature.
        extremes: The names of the largest and the smallest feature, if they have names.
        numbered: Columns of integers that increase from row to row: perhaps row numbers.
    """

    scales: int = _kernel.SCALES_FINE
    length: float = 1.0
    scale_ratio: float = 1.0
    mean_share: float = 0.0
    least: float = 1.0
    extremes: tuple[str, ...] = ()
    numbered: tuple[str, ...] = field(default=())

    @property
    def unscaled(self) -> bool:
        """Return whether SGD would train badly on unscaled features; kernel/sgd/scale_sample.h defines when."""
        return self.scales != _kernel.SCALES_FINE

    def notes(self) -> list[str]:
        """Return the notes for the user."""
        notes = []
        if self.numbered:
            are = "looks like a row number or an id" if len(self.numbered) == 1 else "look like row numbers or ids"
            notes.append(
                f"{listed(self.numbered)} {are} (integers that only increase) and is used as a feature; "
                "to leave it out name the others with features="
            )
        return notes

    def describe_scales(self) -> str:
        """Describe the features' scales."""
        if self.scales == _kernel.ROWS_OFF_CENTRE:
            return f"features lie to one side of 0 (their means are {self.mean_share:.0%} of their mean squares)"
        if self.scales == _kernel.FEATURES_SMALL:
            subject = f"feature {self.extremes[1]!r} is" if self.extremes else "features are"
            return f"{subject} small for SGD (mean square {self.least:.3g})"
        if self.scales == _kernel.ROWS_LONG:
            return f"rows are long for SGD (mean squared length {self.length:.3g})"
        of = f" ({self.extremes[0]!r} and {self.extremes[1]!r})" if self.extremes else ""
        return f"features differ in scale by {self.scale_ratio:.1g} times{of}"


def precheck(table: Table, inputs: Features, *, intercept: bool = True) -> Precheck:
    """Inspect about a thousand rows from four places of the table; sparse features are not inspected.

    Example:
        >>> import pyarrow as pa
        >>> from corgipile.linear.features import find_inputs
        >>> from corgipile.tables import open
        >>> table = open(pa.table({"id": range(100), "x": [0.01, -0.01] * 50, "label": [0, 1] * 50}))
        >>> seen = precheck(table, find_inputs(table, None, "label"))
        >>> seen.numbered, seen.scale_ratio >= 1000, seen.unscaled
        (('id',), True, True)
    """
    if inputs.sparse or not len(table):
        return Precheck()
    rows = sampled_rows(table, inputs)
    sampler, part = _kernel.look_new(inputs.width), max(1, CAST_NUMBERS // inputs.width)
    for at in range(0, len(rows), part):
        _kernel.look_add(sampler, rows[at : at + part].astype(np.float64, order="C"))
    scales, length, scale_ratio, mean_share, least, largest, smallest = _kernel.look_end(sampler, len(table))
    widths = [] if inputs.lists else inputs.widths
    names = tuple(name for name, width in zip(inputs.columns, widths, strict=bool(widths)) for _ in range(width))
    extremes = (names[largest], names[smallest]) if names and largest >= 0 else ()
    numbered = tuple(name for name, ascends in zip(names, _ascending(rows), strict=True) if ascends) if names else ()
    if scales == _kernel.ROWS_OFF_CENTRE and not intercept:  # a shift of the features needs an intercept
        scales = _kernel.SCALES_FINE
    return Precheck(scales, length, scale_ratio, mean_share, least, extremes, numbered)


def sampled_rows(table: Table, inputs: Features) -> npt.NDArray[Any]:
    """Read runs of rows, [rows, features]: float64, or the stored type of lists."""
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
    """Return which columns hold integers, each above the one before."""
    if len(rows) < MIN_NUMBERED_ROWS:
        return np.zeros(rows.shape[1], np.bool_)
    rows = rows.astype(np.float64, copy=False)
    whole = np.isfinite(rows).all(axis=0) & (np.floor(rows) == rows).all(axis=0)
    return np.asarray(whole & (rows[1:] > rows[:-1]).all(axis=0))
