"""Fits an encoding whose features are hashed: n-grams of text, crosses of columns, and numbers beside them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import BadArgument, BadSchema
from corgipile.features.choose import FeatureColumns, require
from corgipile.features.encoders import Number, family_of
from corgipile.features.encoding import Encoding
from corgipile.features.fit import Encode, Missing, chosen_columns, fitted
from corgipile.features.hashing import Hashing, Source, is_words
from corgipile.sizes import Size
from corgipile.tables.table import Table
from corgipile.tables.values import value_type

__all__ = ["Term", "fit_hashed", "numbers_beside", "terms_of"]

Term = str | Sequence[str]


def terms_of(text: str | Sequence[str] | None, interactions: Sequence[Term] | None) -> tuple[tuple[str, ...], ...]:
    """Return the columns of each term that is hashed: those of text, each by itself, and those named together.

    Raises:
        BadArgument: They are no names, a name comes twice, or there are too many.

    Example:
        >>> terms_of("review", [("city", "device"), "city"])
        (('review',), ('city', 'device'), ('city',))
    """
    alone = [text] if isinstance(text, str) else list(text or ())
    terms = [
        *((name,) for name in alone),
        *((one,) if isinstance(one, str) else tuple(one) for one in interactions or ()),
    ]
    for term in terms:
        if not term or not all(isinstance(name, str) for name in term):
            raise BadArgument(f"text and interactions are names of columns, got {list(term)!r}")
        if len(set(term)) < len(term) or terms.count(term) > 1:
            raise BadArgument(f"{':'.join(term)} names a column twice, or comes twice itself")
        if len(term) > _kernel.MOST_CROSSED:
            raise BadArgument(f"interactions are of up to {_kernel.MOST_CROSSED} columns, got {list(term)!r}")
    most = _kernel.MOST_HASHED_COLUMNS
    if max(len(terms), len({name for term in terms for name in term})) > most:
        raise BadArgument(f"up to {most} columns are hashed, and as many interactions of them, got {len(terms)}")
    return tuple(terms)


def numbers_beside(schema: pa.Schema, features: Any, label: str | None, encode: Encode) -> FeatureColumns:
    """Return the feature columns that are not hashed, beside those that are: those that are named.

    Raises:
        BadArgument: Columns are to be encoded, but none is named.
    """
    if features is not None and (isinstance(features, str) or callable(features) or len(features)):
        return chosen_columns(schema, features, label, encode)
    if encode is not None:
        raise BadArgument(
            f"encode={encode!r} has no effect: name the columns that are learnt from, beside text, by features="
        )
    return FeatureColumns(())


def fit_hashed(
    table: Table,
    features: Any,
    label: str | None,
    *,
    text: str | Sequence[str] | None = None,
    interactions: Sequence[Term] | None = None,
    hash_bits: int = 18,
    ngrams: int = 2,
    encode: Encode = None,
    missing: Missing = "error",
    classes: Sequence[Any] | None = None,
    numbers: bool = False,
    memory: Size | None = None,
) -> Encoding:
    """Find out how columns become hashed features, and a label.

    Args:
        table: The table; only columns are read of which something must be found out, see `fit_encoding`.
        features: Columns of numbers that have places of their own beside; None: none.
        label: The label column.
        text: The column, or columns, of which n-grams of words are features.
        interactions: Names of columns whose products are features; a name alone stands for that column.
        hash_bits: There are 2^hash_bits places for hashed features.
        ngrams: Words of an n-gram, at most.
        encode: What columns of ``features`` that are no numbers become.
        missing: What stands for null and NaN in numbers; where it is not ``"error"`` text that is null has no words,
            and a category that is null is the empty one.
        classes: The classes of the label.
        numbers: Whether a label of text is wrong, as numbers are predicted.
        memory: What categories may take at most, beyond a few MB; None: what they do.

    Raises:
        BudgetTooSmall: They take more.
        BadArgument: An argument does not fit the table, or another.
        BadSchema: A column is of a type that is not hashed.
        MissingColumn: The table has no such column.

    Example:
        >>> from corgipile.tables import open
        >>> rows = open(pa.table({"review": ["good", "bad"], "city": ["Rome", "Oslo"], "y": [1, 0]}))
        >>> fit_hashed(rows, None, "y", text="review", interactions=[("review", "city")]).columns
        ('review', 'city')
    """
    terms = terms_of(text, interactions)
    words = (text,) if isinstance(text, str) else tuple(text or ())
    names = list(dict.fromkeys(name for term in terms for name in term))
    require(table.schema, names)
    chosen = numbers_beside(table.schema, features, label, encode)
    for name in names:
        if name == label:
            raise BadArgument(f"the label column {label!r} is among the features; a model would learn it by heart")
        if name in words and name in chosen.names:
            raise BadArgument(f"column {name!r} is one of text, and among the features; leave it out of one of them")
    sources = [_source(name, table.schema.field(name).type, words=name in words) for name in names]
    values = [one.column for one in sources if one.kind == "number"]
    if values and missing != "error":
        filled = {
            one.column: one.fill
            for one in fitted(table, FeatureColumns(tuple(values)), None, missing=missing).features
            if isinstance(one, Number)
        }
        sources = [replace(one, fill=filled.get(one.column)) for one in sources]
    how: dict[str, Any] = {"encode": encode, "missing": missing, "classes": classes, "numbers": numbers}
    found = fitted(table, chosen, label, **how, memory=memory)
    taken = {*names, *chosen.names, label}
    others = {} if features is not None else {one.name: str(one.type) for one in table.schema if one.name not in taken}
    hashing = Hashing(hash_bits, ngrams, tuple(sources), terms, strict=missing == "error")
    return replace(found, hashing=hashing, left_out=others)


def _source(name: str, kind: pa.DataType, *, words: bool) -> Source:
    """Return how a column is hashed.

    Raises:
        BadSchema: It is not.
    """
    if words:
        if not is_words(kind):
            raise BadSchema(f"text column {name!r} is {kind}; text is needed")
        return Source(name, "words")
    family = family_of(kind)
    if not family:
        raise BadSchema(f"column {name!r} of interactions is {kind}; text, numbers, dates or times are needed")
    number = family == "number" and not pa.types.is_boolean(value_type(kind))
    return Source(name, "number") if number else Source(name, "category", family)
