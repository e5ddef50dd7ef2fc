"""What is said of a feature that is no finite number: its column, what stands there, and what would help."""

from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadValue
from corgipile.linear.features import Features
from corgipile.linear.row_names import RowName
from corgipile.linear.sparse import NULL_VALUE, Flaw

__all__ = ["FILLED", "TRAINED", "bad_value"]

TRAINED = "fill it, or train with missing= what stands for null and NaN"
FILLED = "fill it, train with missing=, or let a number stand for it by model.filled(0) or, in a command, --missing 0"
ALSO = "; of this model model.filled(0) makes it so, in a command --missing 0"


def bad_value(
    inputs: Features, where: str, values: npt.NDArray[Any], indices: npt.NDArray[Any] | None = None, cure: str = TRAINED
) -> Flaw:
    """Return what is wrong with a row, by its first feature that is no finite number.

    Args:
        inputs: What the features are called.
        where: The row; a `RowName` is asked what the table has there.
        values: Its features, of sparse ones those that it has.
        indices: Which these are.
        cure: What would help where a number of a table is missing.

    Example:
        >>> inputs = Features(("a", "b"), sparse=False, width=2, dtype=np.dtype("f4"), lists=False, widths=(1, 1))
        >>> bad_value(inputs, "row 7", np.array([1.0, np.inf]))[1]
        "has inf in column 'b'; a finite number is needed"
    """
    if isinstance(where, RowName) and where.missing:
        return BadValue, f"has {where.missing}{ALSO * (cure is FILLED)}"
    bad = np.flatnonzero(~np.isfinite(values))
    if not bad.size:  # it was finite before it was standardised
        return NULL_VALUE
    number, feature = float(values[bad[0]]), int(bad[0] if indices is None else indices[bad[0]])
    column, place = _place(inputs, where, feature)
    at = f"column {column!r}" if place is None else f"feature {place}{f' of column {column!r}' * bool(column)}"
    if np.isinf(number):
        return BadValue, f"has {number:g} in {at}; a finite number is needed"
    there = "null or NaN"
    if isinstance(where, RowName):
        there = there if column == inputs.columns[-1] and inputs.sparse else where.stored(column, place)
        cure = "fill it" if where.fills(column) else cure
    else:
        cure = TRAINED
    return BadValue, f"has {there} in {at}; a finite number is needed: {cure}"


def _place(inputs: Features, where: str, feature: int) -> tuple[str, int | None]:
    """Return the column of a feature, and which one of its numbers that is where a row has several."""
    found = where.column(feature) if isinstance(where, RowName) else None
    if found is not None:
        return found
    if inputs.lists and not isinstance(where, RowName):  # of an array
        return "", feature
    if inputs.lists:
        return inputs.columns[-1], feature
    for column, width in zip(inputs.columns, inputs.widths, strict=True):
        if feature < width:
            return column, None if width == 1 else feature
        feature -= width
    return inputs.columns[-1], feature
