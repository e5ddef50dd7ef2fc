"""Finds the classes of a label column."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corgipile import _kernel
from corgipile.errors import BadArgument, BadLabel, BadSchema, BadValue
from corgipile.features.choose import is_number, require
from corgipile.linear.losses import loss_of, most_classes, quoted
from corgipile.tables.arrow.spans import flat
from corgipile.tables.scan import scan
from corgipile.tables.table import Table

__all__ = ["check_classes", "check_label", "codes_of", "find_classes"]

MOST_FRACTIONS = 256  # classes that are no whole numbers: more are a target, not classes
EXACT = 1 << 53
FloatArray = npt.NDArray[np.float64]


def find_classes(table: Table, label: str, model: str, *, skip: bool = False) -> npt.NDArray[Any]:
    """Find the distinct labels by reading the label column once; with ``skip``, among those that are finite numbers.

    Returns:
        The classes, ascending, in the type of the column; none where numbers are predicted.

    Raises:
        BadLabel: There are fewer than two classes, or more than the model can tell apart.
        BadValue: A label is null, NaN or infinite.

    Example:
        >>> from corgipile.tables import open
        >>> find_classes(open(pa.table({"label": [1, -1, 1]})), "label", "logistic").tolist()
        [-1, 1]
    """
    kind = check_label(table, label)
    dtype = np.dtype(bool) if pa.types.is_boolean(kind) else np.dtype(kind.to_pandas_dtype())
    most = most_classes(model)
    if not most:
        return np.zeros(0, dtype)
    seen: set[Any] = set()
    for start, batch in scan(table, [label]):
        column = batch.column(0)
        bad = _bad_values(column)
        if skip:
            column = column.filter(pc.invert(bad))
        else:
            _check_values(column, bad, label, start)
        seen |= set(pc.unique(column).to_pylist())
        if len(seen) > most:
            break
        if dtype.kind == "f" and len(seen) > MOST_FRACTIONS and any(value != int(value) for value in seen):
            raise BadLabel(f"label column {label!r} holds fractions; {_for_numbers()}")
    return check_classes(np.array(sorted(seen), dtype), model, label)


def check_label(table: Table, label: str, whose: str = "the table") -> pa.DataType:
    """Return the type of the label column.

    Raises:
        MissingColumn: There is none.
        BadSchema: It holds no numbers.
    """
    require(table.schema, [label], whose)
    kind = table.schema.field(label).type
    if not is_number(kind):
        raise BadSchema(f"label column {label!r} is {kind} in {whose}; int, bool or float are needed")
    return kind


def _bad_values(column: pa.Array) -> pa.Array:
    bad = column.is_null()
    if pa.types.is_floating(column.type):
        bad = pc.or_(bad, pc.invert(pc.fill_null(pc.is_finite(column), fill_value=True)))
    return bad


def _check_values(column: pa.Array, bad: pa.Array, label: str, start: int) -> None:
    where = np.flatnonzero(flat(bad))
    if where.size:
        row = int(where[0])
        raise BadValue(
            f"row {start + row} of label column {label!r} is {column[row].as_py()}; a finite number is needed"
        )


def _flat(classes: Any) -> npt.NDArray[Any]:
    try:
        found = np.asarray(classes)
    except ValueError:
        found = np.zeros(0, object)
    if found.ndim != 1 or found.dtype.kind not in "biufU":
        raise BadArgument(f"classes must be a list of numbers, or of text, got {classes!r}")
    return found


def _for_numbers() -> str:
    return f"for numbers to predict use model={quoted(numbers=True)[0]}"


def codes_of(classes: npt.NDArray[Any]) -> FloatArray:
    """Return classes as the learner meets them: numbers themselves, of text the places.

    Example:
        >>> codes_of(np.array([-1, 1])).tolist(), codes_of(np.array(["no", "yes"])).tolist()
        ([-1.0, 1.0], [0.0, 1.0])
    """
    return np.arange(len(classes), dtype=np.float64) if classes.dtype.kind == "U" else classes.astype(np.float64)


def check_classes(classes: Sequence[Any] | npt.NDArray[Any], model: str, label: str = "label") -> npt.NDArray[Any]:
    """Check the classes of a model and return them, ascending.

    Example:
        >>> check_classes([1, 0], "svm").tolist()
        [0, 1]
    """
    found: npt.NDArray[Any] = np.unique(_flat(classes))
    if found.dtype.kind != "U" and not np.isfinite(found.astype(np.float64)).all():
        raise BadArgument(f"classes must be finite numbers, got {list(classes)}")
    if found.dtype.kind in "iu" and found.size and max(abs(int(found[0])), abs(int(found[-1]))) > EXACT:
        raise BadLabel(f"label column {label!r} holds {found[-1]}; labels up to 2^53 in size are exact")
    most = most_classes(model)
    if not most:
        return found[:0]
    if found.size > _kernel.MOST_CLASSES:
        raise BadLabel(f"label column {label!r} has more than {_kernel.MOST_CLASSES} values; {_for_numbers()}")
    if found.size < 2:
        raise BadLabel(f"label column {label!r} has only the value {found.tolist()}; two classes at least are needed")
    if found.size > most:
        shown = ", ".join(map(str, found[:3].tolist()))
        more = f"{' and '.join(quoted(per_class=True))} take more, {quoted(numbers=True)[0]} predicts numbers"
        raise BadLabel(f"label column {label!r} has the values {shown}...; {loss_of(model).name} takes two, {more}")
    return found
