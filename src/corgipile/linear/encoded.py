"""What training and prediction make of columns that are no plain numbers."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema
from corgipile.features import Encoding, fit_encoding
from corgipile.features.choose import FeatureColumns, is_number, item_of
from corgipile.features.encoders import Categories, Classes, Number
from corgipile.features.fit import chosen_columns, is_text, takes_unasked
from corgipile.features.fit_hashed import fit_hashed, numbers_beside, terms_of
from corgipile.features.labels import Codes, read_labels
from corgipile.features.numeric_text import nearly_numbers
from corgipile.features.table import EncodedColumns, encoded_once
from corgipile.linear.classes import check_classes
from corgipile.losses import loss_of
from corgipile.settings import Settings, declared
from corgipile.suggestions import listed
from corgipile.tables.io.remote import is_remote
from corgipile.tables.table import Table

if TYPE_CHECKING:
    from corgipile.linear.model import Model

TOLD = 3  # columns of an error
HASHING = ("text", "interactions", "hash_bits", "ngrams")
__all__ = ["encoding_of", "hashed_columns", "named_columns", "numeric", "readable", "readable_through"]


def hashed_columns(settings: Settings) -> tuple[str, ...]:
    """Return the columns that are to be hashed."""
    return tuple(dict.fromkeys(name for term in terms_of(settings.text, settings.interactions) for name in term))


def named_columns(schema: pa.Schema, features: Any, settings: Settings) -> FeatureColumns:
    """Return the feature columns that are not hashed.

    Args:
        schema: Of the table.
        features: What was asked for; with columns that are hashed None is none.
        settings: Which columns are hashed, and how others are encoded.
    """
    choose = numbers_beside if hashed_columns(settings) else chosen_columns
    return choose(schema, features, settings.label, settings.encode)


def encoding_of(
    table: Table, settings: Settings, features: Any, classes: Any, past: "Model | None", *, skip: bool
) -> tuple[Encoding | None, Codes | None]:
    """Find out how columns become numbers; None where all of them are, and nothing is to stand for what is missing.

    Args:
        table: The rows.
        settings: What was asked for.
        features: The feature columns, as `corgipile.linear.features.find_inputs` takes them.
        classes: The classes of the label, if they were said.
        past: A model to go on from, whose encoding is kept.
        skip: Whether rows that cannot be learnt from are left out.

    Returns:
        The encoding, and the places of the classes of all rows where they were read, and kept.
    """
    if past is not None:
        return _past(table, settings, past), None
    if not hashed_columns(settings):
        _check_unhashed(settings)
    label = settings.label
    names, hashed = _names(table, features, settings), bool(hashed_columns(settings))
    there = set(table.schema.names)
    kinds = [table.schema.field(name).type for name in names if name in there]
    plain = all(is_number(kind) or item_of(kind) is not None for kind in kinds)
    known = label not in there or is_number(table.schema.field(label).type)
    if not hashed and plain and known and settings.encode is None and settings.missing == "error":
        return None, None
    text = label in there and is_text(table.schema.field(label).type)
    numbers, codes = loss_of(settings.model).numbers, None
    given = check_classes(classes, settings.model, label).tolist() if text and classes is not None else None
    if text and given is None and not numbers:
        given, codes = read_labels(table, label)
    how: dict[str, Any] = {"encode": settings.encode, "missing": settings.missing, "classes": given, "numbers": numbers}
    how["memory"] = settings.memory
    if hashed:
        how |= {name: getattr(settings, name) for name in HASHING}
    found = (fit_hashed if hashed else fit_encoding)(table, features, label, **how)
    if isinstance(found.label, Classes):  # an ordered dictionary has an order of its own; a model's classes ascend
        found = replace(found, label=replace(found.label, values=tuple(sorted(found.label.values))))
    return _relaxed(found) if skip else found, codes


def _relaxed(found: Encoding) -> Encoding:
    """Return the same for rows that may be left out: those without category or class are no errors."""
    features = tuple(replace(one, strict=False) if isinstance(one, Categories) else one for one in found.features)
    label = replace(found.label, strict=False) if isinstance(found.label, Classes) else found.label
    return replace(found, features=features, label=label)


def _names(table: Table, features: Any, settings: Settings) -> tuple[str, ...]:
    """Return the feature columns that are not hashed; an error says which are nearly numbers."""
    try:
        return named_columns(table.schema, features, settings).names
    except BadSchema as error:
        found = nearly_numbers(table, [name for name in table.schema.names if name != settings.label])
        more = "; ".join(f"column {name!r}: {what}" for name, what in list(found.items())[:TOLD])
        raise BadSchema(f"{error}. Of text, {more}" if found else str(error)) from None


def _past(table: Table, settings: Settings, past: "Model") -> Encoding | None:
    """Return the encoding of a model to go on from; raise BadArgument where something else is asked for."""
    if settings.encode is not None or settings.missing != "error":
        raise BadArgument("encode and missing are those of the model that warm_start goes on from; leave them out")
    known = past.encoding
    _check_hashing(settings, known)
    if known is not None and settings.features is not None:
        named = chosen_columns(table.schema, settings.features, settings.label).names
        mine = [one.column for one in known.features]
        if set(named) != set(mine):
            raise BadArgument(f"warm_start was trained on {listed(mine)}, not on {listed(named)}")
    return known


def _check_unhashed(settings: Settings) -> None:
    """Raise BadArgument for settings of columns that are hashed where there are none."""
    for name in ("hash_bits", "ngrams"):
        if getattr(settings, name) != declared(Settings)[name].default:
            raise BadArgument(f"{name}={getattr(settings, name)} has no effect without text= or interactions=")


def _check_hashing(settings: Settings, known: Encoding | None) -> None:
    """Raise BadArgument where columns are to be hashed otherwise than by an earlier model."""
    defaults, mine = declared(Settings), known.hashing if known is not None else None
    given = {name: getattr(settings, name) for name in HASHING if getattr(settings, name) != defaults[name].default}
    if mine is None:
        past: dict[str, Any] = {}
    else:
        past = {"hash_bits": mine.bits, "ngrams": mine.ngrams, "text": mine.text, "interactions": mine.interactions}
    for name, value in given.items():
        asked = (value,) if isinstance(value, str) else value
        if past.get(name) != asked:
            raise BadArgument(
                f"{name} is that of the model that warm_start goes on from, {past.get(name)!r}, got {value!r}"
            )


def readable(
    table: Table,
    encoding: Encoding | None,
    label: str | None,
    *,
    once: bool = False,
    codes: Codes | None = None,
    skip: bool = False,
) -> Table:
    """Return a table as a model of this encoding reads it, with the label if that is one of its columns and asked for.

    Args:
        table: The rows.
        encoding: What the model was trained with.
        label: The label column; None: only features are read.
        once: Whether rows are encoded once for many passes.
        codes: The places of the classes of all rows, where they are known.
        skip: Whether rows of no class are left out by who reads them.
    """
    if encoding is None:
        return table
    mine = None if encoding.label is None or label is None else replace(encoding.label, column=label)
    if isinstance(mine, Classes) and not (once or skip):  # who trains may leave rows out, who measures names the label
        mine = replace(mine, strict=True)
    return replace(encoding, label=mine).table(table, once=once, codes=codes)


def readable_through(table: Table, encoding: Encoding | None, label: str, *, skip: bool = False) -> Table:
    """Return a table as `readable` does for one pass over all of its rows; ``skip``: some may be left out.

    Where nothing but the label is to be encoded that is done before, in long runs: piece by piece it would keep the
    kernel from the numbers beside it, which takes many times as long. From a store rows come once.
    """
    found = readable(table, _relaxed(encoding) if encoding and skip else encoding, label, skip=skip)
    if not isinstance(found, EncodedColumns) or list(found.changed) != [label] or is_remote(table):
        return found
    return encoded_once(found)


def numeric(table: Table, *columns: str | None, once: bool = False) -> Table:
    """Return a table in which decimals, and numbers in dictionaries, of some columns are plain numbers.

    Args:
        table: The rows.
        *columns: A label, a weight; None and what is not there are passed over.
        once: Whether rows are encoded once for many passes.

    Example:
        >>> from decimal import Decimal
        >>> from corgipile.tables import open
        >>> numeric(open(pa.table({"w": [Decimal("0.5"), None]})), "w").read(0, 2).to_pydict()
        {'w': [0.5, None]}
    """
    named = [name for name in columns if name is not None and name in table.schema.names]
    found = EncodedColumns(table, [Number(name) for name in named if takes_unasked(table.schema.field(name).type)])
    if not found.changed:
        return table
    return encoded_once(found) if once else found


def classes_of(encoding: Encoding | None) -> npt.NDArray[Any] | None:
    """Return the classes of a label of text; None where it is numbers."""
    return None if encoding is None else encoding.classes
