"""Fits an encoding to a table in one pass over the columns that need it."""

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
    FREE_BYTES,
    WAYS,
    Categories,
    Classes,
    Encoder,
    Number,
    Vector,
    as_text,
    category_bytes,
    family_of,
    plain_type,
)
from corgipile.features.encoding import Encoding
from corgipile.features.labels import read_labels
from corgipile.features.numeric_text import explain_text_columns
from corgipile.sizes import Size, parse_bytes, whole
from corgipile.suggestions import listed
from corgipile.tables.scan import scan
from corgipile.tables.table import Table

__all__ = ["Encode", "Features", "Missing", "fit_encoding"]

Features = str | Sequence[str] | Callable[[pa.Schema], Sequence[str]] | Encoding | None
Encode = str | Mapping[str, str] | None
Missing = str | float
BUCKETS = 256
DUMMY = "dummy"  # one-hot without the first category
MAX_ONEHOT, MAX_VALUES = 1000, 1 << 20


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
    """Fit the encoding of features and a label.

    Args:
        table: The table; only categories, a text label and columns whose mean is needed are read.
        features: A column name or names; ``"numeric"`` for every numeric column but the label; a function of the
            schema that returns names; the name of one list column; an encoding, which is used as it is; None:
            ``features`` if it is a list column, else every numeric column.
        label: The label column. Text, also in dictionaries, becomes the places of its classes.
        encode: The encoding of columns that are not numbers, or of named columns: ``"onehot"``, ``"dummy"`` (without
            the first category), ``"ordinal"`` (one number, in the order of the text or of an ordered dictionary) or
            ``"hash"``, ``"hash:1024"`` (that many numbers); one for all columns that are not numbers, or a dictionary
            by name.
        missing: The replacement of null and NaN in features: ``"error"`` (raise where one occurs), ``"mean"`` (of the
            column), or a number. Null is then a category of its own, or an unseen one if the table has no null.
        classes: The label classes, in code order; None: read from a text label.
        numbers: Whether the label must be numeric, for regression.
        memory: Memory limit of categories, above a few MB; None: unlimited.

    Raises:
        BudgetTooSmall: Categories exceed the limit.
        BadArgument: An argument does not fit the table.
        BadSchema: A column's type cannot be a feature, or needs ``encode``.
        MissingColumn: A column is missing.

    Example:
        >>> from corgipile.tables import open
        >>> rows = open(pa.table({"x": [1.0, None, 3.0], "y": [0, 1, 0]}))
        >>> fit_encoding(rows, None, "y", missing="mean").features
        (Number(column='x', fill=2.0),)
    """
    if isinstance(features, Encoding):
        return _reuse(table, features, label, encode, missing, classes)
    chosen = features if isinstance(features, FeatureColumns) else chosen_columns(table.schema, features, label, encode)
    options: dict[str, Any] = {"encode": encode, "missing": missing, "classes": classes, "numbers": numbers}
    return fit_columns(table, chosen, label, **options, memory=memory)


def fit_columns(
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
    """Fit the encoding of chosen features; arguments as in `fit_encoding`."""
    _check_missing(missing)
    require(table.schema, [*chosen.names, *([] if label is None else [label])])
    if label in chosen.names:
        raise BadArgument(f"the label column {label!r} is among the features; leave it out")
    ways = _ways(table, chosen.names, encode)
    surveys = {name: _Survey(ways.get(name), table.schema.field(name).type) for name in chosen.names}
    names_read = [name for name, survey in surveys.items() if survey.way or (missing != "error" and survey.fillable)]
    limit = math.inf if memory is None else FREE_BYTES + parse_bytes(memory, whole=table.nbytes)
    with frugal():
        for name, column in _columns(table, names_read):
            surveys[name].add(column, name)
            if sum(survey.category_bytes for survey in surveys.values()) > limit:
                raise BudgetTooSmall(
                    f"the categories of column {name!r} take more than memory={memory!r}: give more, use "
                    f"encode={{{name!r}: 'hash:1024'}}, or leave it out"
                )
    encoders = tuple(survey.encoder(name, missing) for name, survey in surveys.items())
    whole = frozenset(name for name, survey in surveys.items() if survey.way is None and survey.rows == len(table))
    label_encoder = _label(table, label, classes, numbers=numbers)
    return Encoding(encoders, label_encoder, chosen.left_out, (table.fingerprint, whole) if whole else ("", whole))


def _reuse(
    table: Table, known: Encoding, label: str | None, encode: Encode, missing: Missing, classes: Sequence[Any] | None
) -> Encoding:
    """Return a known encoding, with the label of this table if it has another; no other setting may be given."""
    own = None if known.label is None else known.label.column
    same_label = label is None or label == own
    fill = None if missing == "error" else missing
    for name, value in (("encode", encode), ("missing", fill), ("classes", classes if same_label else None)):
        if value is not None:
            raise BadArgument(
                f"{name}={value!r} has no effect: features is an encoding, which determines how columns are encoded"
            )
    if same_label:
        return known
    return replace(known, label=_label(table, label, classes, numbers=False))


def _check_missing(missing: Any) -> None:
    number = isinstance(missing, int | float | np.number) and not isinstance(missing, bool) and math.isfinite(missing)
    if not number and missing not in ("error", "mean"):
        options = "on_bad='skip' in training, or table.filter(~pyarrow.compute.field(NAME).is_null(nan_is_null=True))"
        hint = f"; to leave such rows out use {options}" if missing == "skip" else ""
        raise BadArgument(f'missing must be "error", "mean" or a finite number, got {missing!r}{hint}')


def chosen_columns(schema: pa.Schema, features: Any, label: str | None, encode: Encode = None) -> FeatureColumns:
    """Return the requested feature columns, see `fit_encoding`; raise BadSchema if there are none."""
    if callable(features):
        if (names := features(schema)) is None:
            raise BadArgument(f"features must be a name or a list of names, got None from {features!r}")
        return choose(schema, [names] if isinstance(names, str) else names, label)
    if features == "numeric" and "numeric" not in schema.names:
        return _every(schema, label, lambda column: not unfit(column))
    if features is not None or encode is None:
        return choose(schema, features, label)
    with suppress(BadSchema):
        chosen = choose(schema, None, label)
        if item_of(schema.field(chosen.names[0]).type) is not None:
            return chosen  # a list column holds the features
    named = encode if isinstance(encode, Mapping) else {column.name for column in schema if is_text(column.type)}
    return _every(schema, label, lambda column: column.name in named or not unfit(column))


def _every(schema: pa.Schema, label: str | None, accepts: Callable[[pa.Field], bool]) -> FeatureColumns:
    others = [column for column in schema if column.name != label]
    names = tuple(column.name for column in others if accepts(column))
    if not names:
        raise BadSchema(f"no column of numbers; the table has {listed(schema.names)}")
    found = set(names)
    return FeatureColumns(names, {column.name: str(column.type) for column in others if column.name not in found})


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column holds text, also in a dictionary."""
    return bool(pa.types.is_string(plain_type(kind)))


def is_plain_number(kind: pa.DataType) -> bool:
    """Return whether a column is one number per row without ``encode``."""
    return is_number(plain_type(kind)) or bool(pa.types.is_decimal(plain_type(kind)))


def _ways(table: Table, names: Sequence[str], encode: Encode) -> dict[str, str]:
    """Return the encoding of each categorical column."""
    if encode is not None and not isinstance(encode, str | Mapping):
        raise BadArgument(f"encode must be one of {', '.join(WAYS)}, or a dictionary of them by column, got {encode!r}")
    chosen_ways = dict(encode) if isinstance(encode, Mapping) else {}
    for name in chosen_ways:
        if name not in names:
            raise BadArgument(f"encode must name features, {', '.join(names)}, got {name!r}")
    ways = {}
    for name in names:
        kind = table.schema.field(name).type
        is_list = item_of(kind) is not None
        text = family_of(kind) == "text"
        way = chosen_ways.get(name, encode if isinstance(encode, str) and text else None)
        if way is None and (is_list or (family_of(kind) and not text)):
            continue
        if not family_of(kind):
            raise BadSchema(f"feature column {name!r} is {kind}; numbers, text, dates or lists of numbers are needed")
        if way is None:
            raise BadSchema(
                f"feature column {name!r} is {kind}: choose how it becomes numbers, such as "
                f"encode={{{name!r}: 'onehot'}}, 'ordinal' or 'hash:256', or leave it out{_numeric_hint(table, name)}"
            )
        ways[name] = _checked_way(way)
    return ways


def _numeric_hint(table: Table, name: str) -> str:
    found = explain_text_columns(table, [name])
    return f". It is not numeric: {found[name]}" if found else ""


def check_encode(encode: Any) -> None:
    """Raise BadArgument unless every encoding is valid, whether a column needs it or not.

    Example:
        >>> check_encode({"city": "onehot", "zip": "hash:64"})
        >>> check_encode("one_hot")
        Traceback (most recent call last):
        ...
        corgipile.errors.BadArgument: encode must be onehot, dummy, ordinal, hash or hash: and a number, got 'one_hot'
    """
    for way in encode.values() if isinstance(encode, Mapping) else [encode]:
        _checked_way(way)


def _checked_way(way: Any) -> str:
    head, _, buckets = str(way).partition(":")
    if head not in (*WAYS, DUMMY) or (buckets and (head != "hash" or not buckets.isdecimal() or int(buckets) < 1)):
        raise BadArgument(f"encode must be onehot, dummy, ordinal, hash or hash: and a number, got {way!r}")
    return f"hash:{whole(int(buckets or BUCKETS), 'buckets of encode', 1, 1 << 20)}" if head == "hash" else head


def _columns(table: Table, columns: Sequence[str]) -> Iterator[tuple[str, pa.Array]]:
    """Read columns once in parts, one column after another where that takes less memory."""
    if not columns:
        return
    for some in [[name] for name in columns] if len(table) and table.by_column(columns[0]) else [columns]:
        for _, batch in scan(table, some):
            yield from zip(some, batch.columns, strict=True)


@dataclass
class _Survey:
    """Statistics of a column, from which its encoder is fitted."""

    way: str | None
    kind: pa.DataType
    values: dict[str | None, None] = field(default_factory=dict)
    total: bytearray = field(default_factory=lambda: bytearray(_kernel.SUM_BYTES))  # exact, whatever the batches
    rows: int = 0
    category_bytes: int = 0

    @property
    def fillable(self) -> bool:
        """Return whether the column has scalars, which a mean can replace."""
        return item_of(self.kind) is None

    def add(self, column: pa.Array, name: str) -> None:
        """Add rows."""
        if self.way is None:
            found = Number(name).encode(column, str).cast(pa.float64(), safe=False)
            found = pc.drop_null(pc.if_else(pc.is_nan(found), pa.scalar(None, pa.float64()), found))
            self.rows += len(found)
            _kernel.sum_add(self.total, found.to_numpy(zero_copy_only=False))
            return
        if self.way.startswith("hash"):
            return
        if pa.types.is_dictionary(column.type) and column.type.ordered:
            self._add_values(as_text(column.dictionary))
        self._add_values(pc.unique(as_text(column)))
        max_values = MAX_ONEHOT if self.way in ("onehot", DUMMY) else MAX_VALUES
        if len(self.values) > max_values:
            raise BadArgument(
                f"column {name!r} has more than {max_values} different values, too many for {self.way!r}: "
                f"use encode={{{name!r}: 'hash:1024'}}, or leave it out"
            )

    def _add_values(self, found: pa.Array) -> None:
        new = [value for value in dict.fromkeys(found.to_pylist()) if value not in self.values]
        self.values |= dict.fromkeys(new)
        self.category_bytes += category_bytes(new)

    def encoder(self, name: str, missing: Missing) -> Encoder:
        """Return the fitted encoder."""
        if self.way is None:
            if missing == "mean" and self.fillable and not self.rows:
                raise BadValue(f"column {name!r} has no values whose mean could replace missing ones")
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
        if self.way == DUMMY:
            return Categories(name, "onehot", kept[1:] or kept, 0, family, unknown=True)
        return Categories(name, self.way, kept, 0, family, unknown=missing != "error" and None not in kept)

    def sorted(self, *, keep_null: bool) -> tuple[str | None, ...]:
        """Return the categories in order: an ordered dictionary's own, else that of the text; null is last."""
        texts = [value for value in self.values if value is not None]
        if not (pa.types.is_dictionary(self.kind) and self.kind.ordered):
            texts.sort(key=float if family_of(self.kind) == "number" else None)
        return (*texts, None) if keep_null and None in self.values else tuple(texts)


def _label(table: Table, label: str | None, classes: Any, *, numbers: bool) -> Encoder | None:
    """Return the encoder of the label; text is read unless its classes are given."""
    if label is None:
        if classes is not None:
            raise BadArgument(f"classes={classes!r} has no effect without a label")
        return None
    kind = table.schema.field(label).type
    if classes is None and is_plain_number(kind):
        return Number(label)
    if numbers:
        raise BadSchema(f"label column {label!r} is {kind}; regression needs numbers")
    values = read_labels(table, label).classes if classes is None else _given_classes(classes)
    Classes(label, values).type_of(kind)
    return Classes(label, values)


def _given_classes(classes: Any) -> tuple[Any, ...]:
    """Return given classes as Python values; they must be a list of distinct text or numbers."""
    try:
        array = np.asarray(classes)
    except ValueError:
        array = np.zeros(0, object)
    if isinstance(classes, str) or array.ndim != 1 or not len(array) or array.dtype.kind not in "biufU":
        raise BadArgument(f"classes must be a list of numbers, or of text, got {classes!r}")
    values = tuple(array.tolist())
    if len(set(values)) != len(values):
        raise BadLabel(f"classes must be distinct, got {list(values)[:10]}")
    return values
