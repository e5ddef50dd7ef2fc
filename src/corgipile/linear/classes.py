"""Finds and checks the classes of a label column."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile import arrow_compute as pc
from corgipile.errors import BadArgument, BadLabel, BadSchema, BadValue
from corgipile.features.choose import is_number, require
from corgipile.features.fit import is_plain_number
from corgipile.losses import loss_of, most_classes, quoted
from corgipile.tables.memory import MemoryTable
from corgipile.tables.scan import scan_column
from corgipile.tables.sketch import sketch
from corgipile.tables.spans import flat
from corgipile.tables.table import IntArray, Table

__all__ = ["Labels", "check_classes", "check_label", "check_weight", "codes_of", "weights_of"]

MAX_FRACTIONAL_CLASSES = 256  # more distinct values that include fractions are a numeric target
MAX_EXACT_INT = 1 << 53  # integers that float64 represents exactly
MAX_BINCOUNT_RANGE = 1 << 12  # integers in a range below this are counted by an array
COUNTED_ROWS = 1 << 14  # labels counted at a time, so that intermediate arrays stay in the cache
FloatArray = npt.NDArray[np.float64]


class Labels:
    """The labels of a table, read once for classes and for balancing blocks.

    ``skip`` ignores those that are not finite.

    Example:
        >>> from corgipile.tables import open
        >>> table = open(pa.table({"label": [1, -1, 1]}))
        >>> labels = Labels(table, "label", "logistic")
        >>> labels.sketch(table, table.cuts(2), "label").tolist(), labels.find().tolist()
        ([0.5, 1.0], [-1, 1])
    """

    def __init__(
        self, table: Table, label: str, model: str, *, skip: bool = False, classes: npt.NDArray[Any] | None = None
    ) -> None:
        kind = check_label(table, label)
        self._dtype = np.dtype(bool) if pa.types.is_boolean(kind) else np.dtype(kind.to_pandas_dtype())
        self._values: Table | None = None
        self._table, self._label, self._model, self._skip = table, label, model, skip
        self._most = most_classes(model)
        self._classes = classes if self._most else np.zeros(0, self._dtype)
        self._seen: Counter[Any] = Counter()
        self._complete = False  # whether all labels were counted

    def keep(self, values: npt.NDArray[Any]) -> None:
        """Take all labels from memory instead of reading them again."""
        self._table = self._values = MemoryTable(pa.table({self._label: values}))

    def find(self) -> npt.NDArray[Any]:
        """Return the classes, ascending, in the column's type; empty for regression.

        Raise BadLabel for too few or too many.
        """
        if self._classes is None:
            self._scan()
            self._classes = self._checked()
        return self._classes

    def counts(self) -> npt.NDArray[np.float64]:
        """Return the number of rows of each class."""
        classes = self.find()
        if not self._complete:
            self._scan()
        stored = codes_of(classes) if classes.dtype.kind == "U" else classes
        return np.array([self._seen[value] for value in stored.tolist()], np.float64)

    def _scan(self) -> None:
        for start, part in scan_column(self._table, self._label):
            self._count_labels(start, part)
        self._complete = True

    def sketch(self, table: Table, cuts: IntArray, column: str) -> FloatArray:
        """Sketch blocks by a column (`corgipile.tables.sketch`).

        The label column's classes are found in the same scan, as by `find`.
        """
        if column != self._label:
            return sketch(table, cuts, column)
        table = table if self._values is None else self._values
        if self._classes is not None:
            return sketch(table, cuts, column)
        found = sketch(table, cuts, column, self._count_labels)
        self._complete = True
        self._classes = self._checked()
        return found

    def _count_labels(self, start: int, column: pa.Array) -> None:
        """Count the labels of one part."""
        if column.null_count or pa.types.is_floating(column.type):
            bad = _bad_values(column)
            if self._skip:
                column = column.filter(pc.invert(bad))
            else:
                _check_values(column, bad, self._label, start)
        for value, count in _counted(column):
            self._seen[value] += count
        if len(self._seen) > self._most:
            self._checked()
        fractions = self._dtype.kind == "f" and len(self._seen) > MAX_FRACTIONAL_CLASSES
        if fractions and any(value != int(value) for value in self._seen):
            raise BadLabel(f"label column {self._label!r} holds fractions; {_for_numbers()}")

    def _checked(self) -> npt.NDArray[Any]:
        return check_classes(np.array(sorted(self._seen), self._dtype), self._model, self._label)


def weights_of(asked: str | Mapping[str, float] | None, labels: Labels, kind: str) -> npt.NDArray[np.float64] | None:
    """Return the weight of each class, float64[classes]; None if all are 1.

    ``asked`` is ``"balanced"``, which gives all classes the same total and rows the mean weight 1, or weights by the
    class's text; other classes have weight 1.

    Example:
        >>> from corgipile.tables import open
        >>> table = open(pa.table({"label": [1, 0, 0, 0]}))
        >>> weights_of("balanced", Labels(table, "label", "logistic"), "logistic").round(2).tolist()
        [0.67, 2.0]
    """
    if asked is None:
        return None
    if loss_of(kind).numbers:
        raise BadArgument(f"class_weight needs a classifier; a {kind} model predicts numbers, got {asked!r}")
    classes = labels.find()
    if isinstance(asked, str):
        counts = labels.counts()
        if not counts.all():
            none = classes[counts == 0].tolist()
            raise BadArgument(
                f"class_weight='balanced' needs training rows of each class: there are none of {_classes(none)}"
            )
        return np.asarray(counts.sum() / (len(classes) * counts))
    weights = np.ones(len(classes))
    for name, weight in asked.items():
        at = [place for place, one in enumerate(classes.tolist()) if _same(one, name)]
        if not at:
            raise BadArgument(f"class_weight must name {_classes(classes.tolist())}, got {name!r}")
        weights[at] = weight
    if not weights.any():
        raise BadArgument("class_weight must be above 0 for at least one class, got 0 for all")
    return weights


def _same(value: Any, name: str) -> bool:
    """Return whether a text names a class."""
    if isinstance(value, str):
        return value == name
    try:
        return bool(float(name) == value)
    except ValueError:
        return False


def _classes(values: list[Any]) -> str:
    shown = ", ".join(map(repr, values[:5]))
    return f"class{'es' * (len(values) > 1)} {shown}{', ...' * (len(values) > 5)}"


def check_label(table: Table, label: str, whose: str = "the table") -> pa.DataType:
    """Return the type of the label column; raise BadSchema unless it is numeric."""
    require(table.schema, [label], whose)
    kind = table.schema.field(label).type
    if not is_number(kind):
        also = "; for lists of labels use labels=" * pa.types.is_nested(kind)
        raise BadSchema(f"label column {label!r} is {kind} in {whose}; int, bool or float are needed{also}")
    return kind


def check_weight(table: Table, weight: str, label: str, whose: str = "the table") -> None:
    """Raise unless the weight column exists, is numeric and is not the label."""
    require(table.schema, [weight], whose)
    kind = table.schema.field(weight).type
    if not is_plain_number(kind):
        raise BadSchema(f"weight column {weight!r} is {kind} in {whose}; int, bool, float or decimal are needed")
    if weight == label:
        raise BadArgument(f"column {label!r} is the label; it cannot also be the weight")


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


def _counted(column: pa.Array) -> Iterator[tuple[Any, int]]:
    """Yield the values of a column without nulls and their counts."""
    if pa.types.is_integer(column.type) and len(column):
        values = flat(column)
        least, most = int(values.min()), int(values.max())
        if most - least < MAX_BINCOUNT_RANGE and most <= MAX_EXACT_INT:
            counts = np.zeros(most - least + 1, np.int64)
            for at in range(0, len(values), COUNTED_ROWS):
                counts += np.bincount(values[at : at + COUNTED_ROWS].astype(np.int64) - least, minlength=len(counts))
            yield from ((least + at, int(counts[at])) for at in np.flatnonzero(counts).tolist())
            return
    values, counts = pc.value_counts(column).flatten()
    few = _kernel.MOST_CLASSES + 1  # one too many shows that there are more
    yield from zip(values[:few].to_pylist(), counts[:few].to_pylist(), strict=True)


def _flat(classes: Any) -> npt.NDArray[Any]:
    try:
        array = np.asarray(classes)
    except ValueError:
        array = np.zeros(0, object)
    if array.ndim != 1 or array.dtype.kind not in "biufU":
        raise BadArgument(f"classes must be a list of numbers, or of text, got {classes!r}")
    return array


def _for_numbers() -> str:
    return f"for numbers to predict use model={quoted(numbers=True)[0]}"


def codes_of(classes: npt.NDArray[Any]) -> FloatArray:
    """Return the labels as numbers: numeric classes themselves, the places of text classes.

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
    values: npt.NDArray[Any] = np.unique(_flat(classes))
    if values.dtype.kind != "U" and not np.isfinite(values.astype(np.float64)).all():
        raise BadArgument(f"classes must be finite numbers, got {list(classes)}")
    if values.dtype.kind in "iu" and values.size and max(abs(int(values[0])), abs(int(values[-1]))) > MAX_EXACT_INT:
        raise BadLabel(f"label column {label!r} holds {values[-1]}; labels up to 2^53 in size are exact")
    most = most_classes(model)
    if not most:
        return values[:0]
    if values.size > _kernel.MOST_CLASSES:
        raise BadLabel(f"label column {label!r} has more than {_kernel.MOST_CLASSES} values; {_for_numbers()}")
    if not values.size:
        raise BadLabel(f"label column {label!r} has no values: there are no rows to learn from")
    if values.size < 2:
        raise BadLabel(f"label column {label!r} has only the value {values.tolist()}; two classes at least are needed")
    if values.size > most:
        shown = ", ".join(map(str, values[:3].tolist()))
        more = f"{' and '.join(quoted(per_class=True))} take more, {quoted(numbers=True)[0]} predicts numbers"
        raise BadLabel(f"label column {label!r} has the values {shown}...; {loss_of(model).name} takes two, {more}")
    return values
