"""Fits an encoding to a table: one pass over the columns of which something must be found out, and over no others."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile import _kernel
from corgipile import arrow_compute as pc
from corgipile.arrow_memory import frugal
from corgipile.errors import BadArgument, BadLabel, BadSchema, BadValue, BudgetTooSmall
from corgipile.features.choose import FeatureColumns, choose, is_number, item_of, require, unfit
from corgipile.features.encoders import (
    FREE,
    WAYS,
    Categories,
    Classes,
    Encoder,
    Number,
    Vector,
    as_text,
    family_of,
    plain_type,
    taken,
)
from corgipile.features.encoding import Encoding
from corgipile.features.labels import read_labels
from corgipile.features.numeric_text import nearly_numbers
from corgipile.sizes import Size, parse_bytes, whole
from corgipile.suggestions import listed
from corgipile.tables.columns import by_column
from corgipile.tables.scan import scan
from corgipile.tables.table import Table

__all__ = ["Encode", "Features", "Missing", "fit_encoding"]

Features = str | Sequence[str] | Callable[[pa.Schema], Sequence[str]] | Encoding | None
Encode = str | Mapping[str, str] | None
Missing = str | float
BUCKETS = 256
MOST_ONEHOT, MOST_VALUES = 1000, 1 << 20


def fit_encoding(
    table: Table,
    features: Features | FeatureColumns = None,
    label: str | None = None,
    *,
    encode: Encode = None,
    missing: Missing = "error",
    classes: Sequence[Any] | None = None,
    numbers: bool = False,
    memory: Size | None = None,
) -> Encoding:
    """Find out how columns become features and a label.

    Args:
        table: The table; only columns of categories, of a text label, and those whose mean is needed are read.
        features: A name or names of columns; ``"numeric"`` for every column of numbers but the label; a function of the
            schema that returns names; the name of one list column; an encoding, which is taken as it is; None:
            ``features`` if there is such a list column, else every column of numbers.
        label: The label column. Text, and what dictionaries of text stand for, becomes classes by their places.
        encode: What columns that are no numbers become, and numbers that are named: ``"onehot"``, ``"ordinal"`` (one
            number, by the order of the text or of the dictionary if it is ordered) or ``"hash"``, ``"hash:1024"``
            (that many numbers); one for all that are no numbers, or by name.
        missing: What stands for null and NaN in features: ``"error"`` (they are one when they are met), ``"mean"`` (of
            the column), or a number. Of categories null is then one of its own, or where there was none, one that was
            never seen.
        classes: The classes of the label, in the order of their codes; found out by default where it is text.
        numbers: Whether a label of text is wrong, as numbers are predicted.
        memory: What categories may take at most, beyond a few MB; None: what they do.

    Raises:
        BudgetTooSmall: They take more.
        BadArgument: An argument does not fit the table.
        BadSchema: A column is of a type that is no feature, or does not say how it becomes one.
        MissingColumn: The table has no such column.

    Example:
        >>> from corgipile.tables import open
        >>> rows = open(pa.table({"x": [1.0, None, 3.0], "y": [0, 1, 0]}))
        >>> fit_encoding(rows, None, "y", missing="mean").features
        (Number(column='x', fill=2.0),)
    """
    if isinstance(features, Encoding):
        return _again(table, features, label, encode, missing, classes)
    chosen = features if isinstance(features, FeatureColumns) else chosen_columns(table.schema, features, label, encode)
    how: dict[str, Any] = {"encode": encode, "missing": missing, "classes": classes, "numbers": numbers}
    return fitted(table, chosen, label, **how, memory=memory)


def fitted(
    table: Table,
    chosen: FeatureColumns,
    label: str | None,
    *,
    encode: Encode = None,
    missing: Missing = "error",
    classes: Sequence[Any] | None = None,
    numbers: bool = False,
    memory: Size | None = None,
) -> Encoding:
    """Do the same for features that are chosen."""
    _check_missing(missing)
    require(table.schema, [*chosen.names, *([] if label is None else [label])])
    if label in chosen.names:
        raise BadArgument(f"the label column {label!r} is among the features; a model would learn it by heart")
    ways = _ways(table, chosen.names, encode)
    surveys = {name: _Survey(ways.get(name), table.schema.field(name).type) for name in chosen.names}
    wanted = [name for name, one in surveys.items() if one.way or (missing != "error" and one.fillable)]
    room = math.inf if memory is None else FREE + parse_bytes(memory, whole=table.nbytes)
    with frugal():
        for name, column in _columns(table, wanted):
            surveys[name].add(column, name)
            if sum(one.taken for one in surveys.values()) > room:
                raise BudgetTooSmall(
                    f"the categories of column {name!r} take more than memory={memory!r}: give more, say "
                    f"encode={{{name!r}: 'hash:1024'}}, or leave it out"
                )
    encoders = tuple(one.encoder(name, missing) for name, one in surveys.items())
    whole = frozenset(name for name, one in surveys.items() if one.way is None and one.rows == len(table))
    made = _label(table, label, classes, numbers=numbers)
    return Encoding(encoders, made, chosen.left_out, (table.fingerprint, whole) if whole else ("", whole))


def _again(
    table: Table, known: Encoding, label: str | None, encode: Encode, missing: Missing, classes: Sequence[Any] | None
) -> Encoding:
    """Return an encoding that is known, for a label of this table if that is another one.

    Raises:
        BadArgument: Something else is asked for besides.
    """
    mine = None if known.label is None else known.label.column
    again = label is None or label == mine
    given = {
        "encode": encode,
        "missing": None if missing == "error" else missing,
        "classes": classes if again else None,
    }
    for name, value in given.items():
        if value is not None:
            raise BadArgument(
                f"{name}={value!r} has no effect: features is an encoding, which says what becomes of columns"
            )
    if again:
        return known
    return replace(known, label=_label(table, label, classes, numbers=False))


def _check_missing(missing: Any) -> None:
    number = isinstance(missing, int | float | np.number) and not isinstance(missing, bool) and math.isfinite(missing)
    if not number and missing not in ("error", "mean"):
        how = "on_bad='skip' of a training, or table.filter(~pyarrow.compute.field(NAME).is_null(nan_is_null=True)),"
        hint = f"; {how} leaves such rows out" if missing == "skip" else ""
        raise BadArgument(f'missing must be "error", "mean" or a finite number, got {missing!r}{hint}')


def chosen_columns(schema: pa.Schema, features: Any, label: str | None, encode: Encode = None) -> FeatureColumns:
    """Return the feature columns that were asked for, see `fit_encoding`.

    Raises:
        BadArgument: They are no names, nor what gives some.
        BadSchema: There are none.
    """
    if callable(features):
        if (found := features(schema)) is None:
            raise BadArgument(f"features must be a name or a list of names, got None of {features!r}")
        return choose(schema, [found] if isinstance(found, str) else found, label)
    if features == "numeric" and "numeric" not in schema.names:
        return _every(schema, label, lambda one: not unfit(one))
    if features is not None or encode is None:
        return choose(schema, features, label)
    with suppress(BadSchema):
        chosen = choose(schema, None, label)
        if item_of(schema.field(chosen.names[0]).type) is not None:
            return chosen  # they are in a column of lists
    named = encode if isinstance(encode, Mapping) else {one.name for one in schema if is_text(one.type)}
    return _every(schema, label, lambda one: one.name in named or not unfit(one))


def _every(schema: pa.Schema, label: str | None, taken: Callable[[pa.Field], bool]) -> FeatureColumns:
    others = [one for one in schema if one.name != label]
    names = tuple(one.name for one in others if taken(one))
    if not names:
        raise BadSchema(f"no column of numbers; the table has {listed(schema.names)}")
    found = set(names)
    return FeatureColumns(names, {one.name: str(one.type) for one in others if one.name not in found})


def is_text(kind: pa.DataType) -> bool:
    """Say whether a column holds text, perhaps in a dictionary."""
    return bool(pa.types.is_string(plain_type(kind)))


def takes_unasked(kind: pa.DataType) -> bool:
    """Say whether a column is a number a row, without being told how."""
    return is_number(plain_type(kind)) or bool(pa.types.is_decimal(plain_type(kind)))


def _ways(table: Table, names: Sequence[str], encode: Encode) -> dict[str, str]:
    """Return how each column of categories becomes numbers."""
    if encode is not None and not isinstance(encode, str | Mapping):
        raise BadArgument(f"encode must be one of {', '.join(WAYS)}, or a dictionary of them by column, got {encode!r}")
    said = dict(encode) if isinstance(encode, Mapping) else {}
    for name in said:
        if name not in names:
            raise BadArgument(f"encode names column {name!r}, which is no feature; the features are {', '.join(names)}")
    ways = {}
    for name in names:
        kind = table.schema.field(name).type
        is_list = item_of(kind) is not None
        text = family_of(kind) == "text"
        way = said.get(name, encode if isinstance(encode, str) and text else None)
        if way is None and (is_list or (family_of(kind) and not text)):
            continue
        if not family_of(kind):
            raise BadSchema(f"feature column {name!r} is {kind}; numbers, text, dates or lists of numbers are needed")
        if way is None:
            raise BadSchema(
                f"feature column {name!r} is {kind}: say how it becomes numbers, such as "
                f"encode={{{name!r}: 'onehot'}}, 'ordinal' or 'hash:256', or leave it out{_nearly(table, name)}"
            )
        ways[name] = _checked_way(way)
    return ways


def _nearly(table: Table, name: str) -> str:
    found = nearly_numbers(table, [name])
    return f". As it is, {found[name]}" if found else ""


def check_encode(encode: Any) -> None:
    """Raise BadArgument for what is no way to encode, whether a column needs one or not.

    Example:
        >>> check_encode({"city": "onehot", "zip": "hash:64"})
        >>> check_encode("one_hot")
        Traceback (most recent call last):
        ...
        corgipile.errors.BadArgument: encode must be 'onehot', 'ordinal', 'hash' or 'hash:' and a number, got 'one_hot'
    """
    for way in encode.values() if isinstance(encode, Mapping) else [encode]:
        _checked_way(way)


def _checked_way(way: Any) -> str:
    head, _, buckets = str(way).partition(":")
    if head not in WAYS or (buckets and (head != "hash" or not buckets.isdecimal() or int(buckets) < 1)):
        raise BadArgument(f"encode must be 'onehot', 'ordinal', 'hash' or 'hash:' and a number, got {way!r}")
    return f"hash:{whole(int(buckets or BUCKETS), 'buckets of encode', 1, 1 << 20)}" if head == "hash" else head


def _columns(table: Table, columns: Sequence[str]) -> Iterator[tuple[str, pa.Array]]:
    """Read some columns once, a part at a time: one after another where that takes less memory."""
    if not columns:
        return
    for some in [[name] for name in columns] if len(table) and by_column(table, columns[0]) else [columns]:
        for _, batch in scan(table, some):
            yield from zip(some, batch.columns, strict=True)


@dataclass
class _Survey:
    """What is found out of one column."""

    way: str | None
    kind: pa.DataType
    values: dict[str | None, None] = field(default_factory=dict)
    total: bytearray = field(default_factory=lambda: bytearray(_kernel.SUM_BYTES))  # the same however rows are cut
    rows: int = 0
    taken: int = 0

    @property
    def fillable(self) -> bool:
        """Say whether the column is of scalars, whose mean may stand for what is missing."""
        return item_of(self.kind) is None

    def add(self, column: pa.Array, name: str) -> None:
        """Look at some rows."""
        if self.way is None:
            found = Number(name).encode(column, str).cast(pa.float64(), safe=False)
            found = pc.drop_null(pc.if_else(pc.is_nan(found), pa.scalar(None, pa.float64()), found))
            self.rows += len(found)
            _kernel.sum_add(self.total, found.to_numpy(zero_copy_only=False))
            return
        if self.way.startswith("hash"):
            return
        if pa.types.is_dictionary(column.type) and column.type.ordered:
            self._note(as_text(column.dictionary))
        self._note(pc.unique(as_text(column)))
        most = MOST_ONEHOT if self.way == "onehot" else MOST_VALUES
        if len(self.values) > most:
            raise BadArgument(
                f"column {name!r} has more than {most} different values, too many for {self.way!r}: "
                f"say encode={{{name!r}: 'hash:1024'}}, or leave it out"
            )

    def _note(self, found: pa.Array) -> None:
        new = [value for value in dict.fromkeys(found.to_pylist()) if value not in self.values]
        self.values |= dict.fromkeys(new)
        self.taken += taken(new)

    def encoder(self, name: str, missing: Missing) -> Encoder:
        """Return what encodes the column."""
        if self.way is None:
            if missing == "mean" and self.fillable and not self.rows:
                raise BadValue(f"column {name!r} has no values whose mean could stand for what is missing")
            if not self.fillable:
                return Vector(name, None if isinstance(missing, str) else float(missing))
            fill = _kernel.sum_value(self.total) / self.rows if missing == "mean" else missing
            return Number(name, None if missing == "error" else float(fill))
        family = family_of(self.kind)
        if self.way.startswith("hash"):
            values: tuple[str | None, ...] = () if missing == "error" else (None,)
            return Categories(name, "hash", values, int(self.way.partition(":")[2]), family)
        if not self.values:
            raise BadValue(f"column {name!r} has no values that could be categories")
        kept = self.sorted(keep_null=missing != "error")
        return Categories(name, self.way, kept, 0, family, unknown=missing != "error" and None not in kept)

    def sorted(self, *, keep_null: bool) -> tuple[str | None, ...]:
        """Return the categories in order: of an ordered dictionary in its own, else of the text; null is the last."""
        texts = [value for value in self.values if value is not None]
        if not (pa.types.is_dictionary(self.kind) and self.kind.ordered):
            texts.sort(key=float if family_of(self.kind) == "number" else None)
        return (*texts, None) if keep_null and None in self.values else tuple(texts)


def _label(table: Table, label: str | None, classes: Any, *, numbers: bool) -> Encoder | None:
    """Find out what encodes the label; one of text is read, where its classes were not said."""
    if label is None:
        if classes is not None:
            raise BadArgument(f"classes={classes!r} has no effect without a label")
        return None
    kind = table.schema.field(label).type
    if classes is None and takes_unasked(kind):
        return Number(label)
    if numbers:
        raise BadSchema(f"label column {label!r} is {kind}; numbers are predicted, so numbers are needed")
    values = read_labels(table, label).classes if classes is None else _said(classes)
    Classes(label, values).type_of(kind)
    return Classes(label, values)


def _said(classes: Any) -> tuple[Any, ...]:
    """Return classes that were said, as Python values.

    Raises:
        BadArgument: They are no list of text or numbers.
        BadLabel: One is there twice.
    """
    try:
        found = np.asarray(classes)
    except ValueError:
        found = np.zeros(0, object)
    if isinstance(classes, str) or found.ndim != 1 or not len(found) or found.dtype.kind not in "biufU":
        raise BadArgument(f"classes must be a list of numbers, or of text, got {classes!r}")
    values = tuple(found.tolist())
    if len(set(values)) != len(values):
        raise BadLabel(f"classes must be different values, got {list(values)[:10]}")
    return values
