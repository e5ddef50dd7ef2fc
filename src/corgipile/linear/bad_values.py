"""Error messages for features that are not finite numbers: the column, the value and the hint."""

from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadValue
from corgipile.linear.features import Features
from corgipile.linear.row_names import RowName
from corgipile.linear.sparse import NULL_VALUE, Flaw

__all__ = ["FILLED", "TRAINED", "bad_value"]

TRAINED = "fill it, or train with missing= to replace null and NaN"
FILLED = "fill it, train with missing=, or replace it by a number: model.filled(0), or --missing 0 in a command"
FILLED_HINT = "; for this model use model.filled(0), or --missing 0 in a command"


def bad_value(
    inputs: Features, where: str, values: npt.NDArray[Any], indices: npt.NDArray[Any] | None = None, hint: str = TRAINED
) -> Flaw:
    """Return the error class and message for a row, by its first feature that is not finite.

    Args:
        inputs: The names of the features.
        where: The row; a `RowName` also looks up the stored value.
        values: The row's features; of a sparse row the present ones.
        indices: The numbers of sparse features.
        hint: The hint for a missing value.

    Example:
        >>> inputs = Features(("a", "b"), sparse=False, width=2, dtype=np.dtype("f4"), lists=False, widths=(1, 1))
        >>> bad_value(inputs, "row 7", np.array([1.0, np.inf]))[1]
        "has inf in column 'b'; a finite number is needed"
    """
    if isinstance(where, RowName) and where.missing:
        return BadValue, f"has {where.missing}{FILLED_HINT * (hint is FILLED)}"
    bad = np.flatnonzero(~np.isfinite(values))
    if not bad.size:  # standardisation made a finite value overflow
        return NULL_VALUE
    number, feature = float(values[bad[0]]), int(bad[0] if indices is None else indices[bad[0]])
    column, place = _place(inputs, where, feature)
    at = f"column {column!r}" if place is None else f"feature {place}{f' of column {column!r}' * bool(column)}"
    if np.isinf(number):
        return BadValue, f"has {number:g} in {at}; a finite number is needed"
    stored_value = "null or NaN"
    if isinstance(where, RowName):
        stored_value = stored_value if column == inputs.columns[-1] and inputs.sparse else where.stored(column, place)
        hint = "fill it" if where.fills(column) else hint
    else:
        hint = TRAINED
    return BadValue, f"has {stored_value} in {at}; a finite number is needed: {hint}"


def _place(inputs: Features, where: str, feature: int) -> tuple[str, int | None]:
    """Return the column of a feature, and its place in the row where a column or array has several."""
    located = where.column(feature) if isinstance(where, RowName) else None
    if located is not None:
        return located
    if inputs.lists and not isinstance(where, RowName):  # an array has no columns
        return "", feature
    if inputs.lists:
        return inputs.columns[-1], feature
    for column, width in zip(inputs.columns, inputs.widths, strict=True):
        if feature < width:
            return column, None if width == 1 else feature
        feature -= width
    return inputs.columns[-1], feature
