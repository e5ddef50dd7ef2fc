"""Chooses the encoding of columns that are not plain numbers, for training and prediction."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema
from corgipile.features import Encoding, fit_encoding
from corgipile.features.choose import FeatureColumns, is_number, item_of
from corgipile.features.encoders import Categories, Classes, Number
from corgipile.features.fit import chosen_columns, is_plain_number, is_text
from corgipile.features.fit_hashed import fit_hashed, terms_of, unhashed_columns
from corgipile.features.labels import Codes, read_labels
from corgipile.features.numeric_text import explain_text_columns
from corgipile.features.table import EncodedColumns, encode_once
from corgipile.linear.classes import check_classes
from corgipile.losses import loss_of
from corgipile.settings import Settings, declared
from corgipile.suggestions import listed
from corgipile.tables.io.remote import is_remote
from corgipile.tables.table import Table

if TYPE_CHECKING:
    from corgipile.linear.model import Model

MAX_LISTED_COLUMNS = 3  # columns that an error explains
HASHING = ("text", "interactions", "hash_bits", "ngrams")
__all__ = ["as_numbers", "encode_pass", "encode_table", "encoding_of", "hashed_columns", "named_columns"]


def hashed_columns(settings: Settings) -> tuple[str, ...]:
    """Return the columns to hash."""
    return tuple(dict.fromkeys(name for term in terms_of(settings.text, settings.interactions) for name in term))


def named_columns(schema: pa.Schema, features: Any, settings: Settings) -> FeatureColumns:
    """Return the feature columns that are not hashed; ``features`` of None selects none if any column is hashed."""
    choose = unhashed_columns if hashed_columns(settings) else chosen_columns
    return choose(schema, features, settings.label, settings.encode)


def encoding_of(
    table: Table, settings: Settings, features: Any, classes: Any, past: "Model | None", *, skip: bool
) -> tuple[Encoding | None, Codes | None]:
    """Return how columns become numbers, and the class places of all rows where they were read.

    The first is None if all are numbers and missing values are errors. A model to continue from, ``past``, keeps its
    encoding.
    """
    if past is not None:
        return _past(table, settings, past), None
    if not hashed_columns(settings):
        _check_unhashed(settings)
    label = settings.label
    names, hashed = _names(table, features, settings), bool(hashed_columns(settings))
    available = set(table.schema.names)
    kinds = [table.schema.field(name).type for name in names if name in available]
    plain = all(is_number(kind) or item_of(kind) is not None for kind in kinds)
    known = label not in available or is_number(table.schema.field(label).type)
    if not hashed and plain and known and settings.encode is None and settings.missing == "error":
        return None, None
    text = label in available and is_text(table.schema.field(label).type)
    numbers, codes = loss_of(settings.model).numbers, None
    given = check_classes(classes, settings.model, label).tolist() if text and classes is not None else None
    if text and given is None and not numbers:
        given, codes = read_labels(table, label)
    kw: dict[str, Any] = {"encode": settings.encode, "missing": settings.missing, "classes": given, "numbers": numbers}
    kw["memory"] = settings.memory
    if hashed:
        kw |= {name: getattr(settings, name) for name in HASHING}
    encoding = (fit_hashed if hashed else fit_encoding)(table, features, label, **kw)
    if isinstance(encoding.label, Classes):  # an ordered dictionary keeps its order, a model's classes ascend
        encoding = replace(encoding, label=replace(encoding.label, values=tuple(sorted(encoding.label.values))))
    return _relaxed(encoding) if skip else encoding, codes


def _relaxed(known: Encoding) -> Encoding:
    """Return an encoding that accepts rows without a known category or class, which are left out later."""
    features = tuple(replace(item, strict=False) if isinstance(item, Categories) else item for item in known.features)
    label = replace(known.label, strict=False) if isinstance(known.label, Classes) else known.label
    return replace(known, features=features, label=label)


def _names(table: Table, features: Any, settings: Settings) -> tuple[str, ...]:
    """Return the feature columns that are not hashed; errors name text columns that are nearly numbers."""
    try:
        return named_columns(table.schema, features, settings).names
    except BadSchema as error:
        encoding = explain_text_columns(table, [name for name in table.schema.names if name != settings.label])
        more = "; ".join(f"column {name!r}: {what}" for name, what in list(encoding.items())[:MAX_LISTED_COLUMNS])
        raise BadSchema(f"{error}. Text columns: {more}" if encoding else str(error)) from None


def _past(table: Table, settings: Settings, past: "Model") -> Encoding | None:
    """Return the encoding of a warm start; raise BadArgument if the settings differ from it."""
    if settings.encode is not None or settings.missing != "error":
        raise BadArgument("encode and missing must be left out: warm_start uses those of its model")
    known = past.encoding
    _check_hashing(settings, known)
    if known is not None and settings.features is not None:
        named = chosen_columns(table.schema, settings.features, settings.label).names
        own = [encoder.column for encoder in known.features]
        if set(named) != set(own):
            raise BadArgument(f"features must be those of warm_start, {listed(own)}, got {listed(named)}")
    return known


def _check_unhashed(settings: Settings) -> None:
    """Raise BadArgument for settings of hashed columns if no column is hashed."""
    for name in ("hash_bits", "ngrams"):
        if getattr(settings, name) != declared(Settings)[name].default:
            raise BadArgument(f"{name}={getattr(settings, name)} has no effect without text= or interactions=")


def _check_hashing(settings: Settings, known: Encoding | None) -> None:
    """Raise BadArgument if hashing differs from that of the warm start."""
    defaults, own = declared(Settings), known.hashing if known is not None else None
    given = {name: getattr(settings, name) for name in HASHING if getattr(settings, name) != defaults[name].default}
    if own is None:
        past: dict[str, Any] = {}
    else:
        past = {"hash_bits": own.bits, "ngrams": own.ngrams, "text": own.text, "interactions": own.interactions}
    for name, value in given.items():
        asked = (value,) if isinstance(value, str) else value
        if past.get(name) != asked:
            raise BadArgument(f"{name} must be that of warm_start, {past.get(name)!r}, got {value!r}")


def encode_table(
    table: Table,
    encoding: Encoding | None,
    label: str | None,
    *,
    once: bool = False,
    codes: Codes | None = None,
    skip: bool = False,
) -> Table:
    """Return a table encoded for a model, with the label if it is a column and requested.

    ``once`` encodes rows once for many passes, ``codes`` are the class places of all rows, if known, and ``skip`` lets
    the reader leave out rows without a class.
    """
    if encoding is None:
        return table
    own = None if encoding.label is None or label is None else replace(encoding.label, column=label)
    if isinstance(own, Classes) and not (once or skip):  # training may skip rows, evaluation must name the label
        own = replace(own, strict=True)
    return replace(encoding, label=own).table(table, once=once, codes=codes)


def encode_pass(table: Table, encoding: Encoding | None, label: str, *, skip: bool = False) -> Table:
    """Return a table as `encode_table` does, for one pass over all rows; ``skip``: rows may be left out.

    If only the label needs encoding, it is encoded first, in long runs: encoding it by piece would slow the
    kernel's reads of the numeric columns many times. Remote rows are read only once.
    """
    encoded = encode_table(table, _relaxed(encoding) if encoding and skip else encoding, label, skip=skip)
    if not isinstance(encoded, EncodedColumns) or list(encoded.changed) != [label] or is_remote(table):
        return encoded
    return encode_once(encoded)


def as_numbers(table: Table, *columns: str | None, once: bool = False) -> Table:
    """Return a table whose decimals and dictionaries of numbers, in the given columns, are plain numbers.

    Missing columns are ignored; ``once`` encodes rows once for many passes.

    Example:
        >>> from decimal import Decimal
        >>> from corgipile.tables import open
        >>> as_numbers(open(pa.table({"w": [Decimal("0.5"), None]})), "w").read(0, 2).to_pydict()
        {'w': [0.5, None]}
    """
    named = [name for name in columns if name is not None and name in table.schema.names]
    encoded = EncodedColumns(table, [Number(name) for name in named if is_plain_number(table.schema.field(name).type)])
    if not encoded.changed:
        return table
    return encode_once(encoded) if once else encoded
