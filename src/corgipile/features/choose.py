"""Chooses the feature columns of a table, and explains why others are left out."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema, MissingColumn
from corgipile.suggestions import column_meant, listed
from corgipile.tables.concat import FEATURES_KEY
from corgipile.tables.table import NUMBERS
from corgipile.tables.values import value_type

__all__ = ["INDEX", "FeatureColumns", "choose", "describe_left_out", "is_number", "item_of", "require", "unfit"]

PACKED = "features"
MAX_REASONS = 5  # columns whose reasons an error lists
MAX_LEFT_OUT = 10  # columns that a note on left-out columns lists
INDEX = re.compile(r"__index_level_\d+__")  # the index columns that pandas writes


@dataclass(frozen=True)
class FeatureColumns:
    """Feature columns, and why others are left out; empty if features were named."""

    names: tuple[str, ...]
    left_out: dict[str, str] = field(default_factory=dict)


def choose(schema: pa.Schema, features: str | Sequence[str] | None, label: str | None) -> FeatureColumns:
    """Choose the feature columns; the default is the schema's own choice, ``features``, such a pair, or all numbers.

    Example:
        >>> choose(pa.schema({"x": pa.float32(), "name": pa.string(), "label": pa.int8()}), None, "label")
        FeatureColumns(names=('x',), left_out={'name': 'string'})
    """
    if features is not None and not isinstance(features, str):
        return FeatureColumns(_check_names(features))
    stored_name = (schema.metadata or {}).get(FEATURES_KEY, PACKED.encode()).decode()
    base = stored_name if features is None else features
    pair = (f"{base}_k", f"{base}_v")
    fields = [column for column in schema if column.name != label]
    lists = {column.name for column in fields if features is not None or item_of(column.type) is not None}
    found = (base,) if base in lists else pair if set(pair) <= lists else ()
    if features is not None:
        return FeatureColumns(found or (features,))
    if found:
        others = [name for name in schema.names if name not in (*found, label)]
        return FeatureColumns(found, dict.fromkeys(others, f"the features are in {listed(found)}"))
    why = {column.name: unfit(column) for column in fields}
    names = tuple(name for name, reason in why.items() if not reason)
    if not names:
        reasons = "; ".join(f"{name!r}: {reason}" for name, reason in list(why.items())[:MAX_REASONS])
        raise BadSchema(f"no column of numbers to train on; the table has {listed(schema.names)}. {reasons}")
    return FeatureColumns(names, {name: reason for name, reason in why.items() if reason})


def describe_left_out(left_out: Mapping[str, str]) -> str:
    """Describe the columns that were left out, and how to use them.

    Example:
        >>> describe_left_out({"name": "string"})
        "'name' (string); name the columns to train on with features=, words with text=, categories with encode="
    """
    why = "; ".join(f"{name!r} ({reason})" for name, reason in list(left_out.items())[:MAX_LEFT_OUT])
    more = f" and {len(left_out) - MAX_LEFT_OUT} more" if len(left_out) > MAX_LEFT_OUT else ""
    return f"{why}{more}; name the columns to train on with features=, words with text=, categories with encode="


def _check_names(features: Any) -> tuple[str, ...]:
    unordered = isinstance(features, set | frozenset)
    names = list(features) if isinstance(features, Iterable) and not unordered else [features]
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise BadArgument(f"features must be a name or a list of names, got {wrong[0]!r}")
    if not names:
        raise BadArgument("features must name at least one column, got an empty list")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise BadArgument(f"features names {twice[0]!r} twice, got {names}")
    return tuple(names)


def unfit(column: pa.Field) -> str:
    """Return why a column is not a feature; empty if it is one."""
    if INDEX.fullmatch(column.name):
        return "the index that pandas wrote"
    if (item := item_of(column.type)) is not None and is_number(item):
        return f"{column.type}, name it with features="
    kind = value_type(column.type)
    return "" if is_number(kind) or pa.types.is_decimal(kind) else str(column.type)


def is_number(kind: Any) -> bool:
    """Return whether a type is one number per row: integer, float or boolean."""
    return kind.id in NUMBERS or bool(pa.types.is_boolean(kind))


def item_of(kind: Any) -> Any:
    """Return the item type of a list type; None for other types."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return kind.value_type
    return None


def require(schema: pa.Schema, names: Sequence[str], whose: str = "the table") -> None:
    """Raise MissingColumn, naming all missing columns."""
    known = set(schema.names)
    missing = [name for name in names if name not in known]
    if missing:
        noun = "column" if len(missing) == 1 else "columns"
        near = column_meant(missing[0], schema.names)
        raise MissingColumn(f"no {noun} {listed(missing)} in {whose}; it has {listed(schema.names)}{near}")
