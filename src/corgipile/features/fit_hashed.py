"""Fits an encoding with hashed features: n-grams of text, crosses of columns, and other columns besides."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import BadArgument, BadSchema
from corgipile.features.choose import FeatureColumns, require
from corgipile.features.encoders import Number, family_of
from corgipile.features.encoding import Encoding
from corgipile.features.fit import Encode, Missing, chosen_columns, fit_columns
from corgipile.features.hashing import Hashing, Source, is_words
from corgipile.sizes import Size
from corgipile.tables.table import Table
from corgipile.tables.values import value_type

__all__ = ["Term", "fit_hashed", "terms_of", "unhashed_columns"]

Term = str | Sequence[str]


def terms_of(text: str | Sequence[str] | None, interactions: Sequence[Term] | None) -> tuple[tuple[str, ...], ...]:
    """Return the columns of each hashed term: text columns singly, interactions as named.

    Example:
        >>> terms_of("review", [("city", "device"), "city"])
        (('review',), ('city', 'device'), ('city',))
    """
    texts = [text] if isinstance(text, str) else list(text or ())
    terms = [
        *((name,) for name in texts),
        *((one,) if isinstance(one, str) else tuple(one) for one in interactions or ()),
    ]
    for term in terms:
        if not term or not all(isinstance(name, str) for name in term):
            raise BadArgument(f"text and interactions must be names of columns, got {list(term)!r}")
        if len(set(term)) < len(term) or terms.count(term) > 1:
            raise BadArgument(f"{':'.join(term)} names a column twice, or occurs twice")
        if len(term) > _kernel.MOST_CROSSED:
            raise BadArgument(f"interactions must have at most {_kernel.MOST_CROSSED} columns, got {list(term)!r}")
    limit = _kernel.MOST_HASHED_COLUMNS
    if max(len(terms), len({name for term in terms for name in term})) > limit:
        raise BadArgument(f"at most {limit} columns and interactions can be hashed, got {len(terms)}")
    return tuple(terms)


def unhashed_columns(schema: pa.Schema, features: Any, label: str | None, encode: Encode) -> FeatureColumns:
    """Return the named feature columns, which are not hashed; raise BadArgument for ``encode`` without them."""
    if features is not None and (isinstance(features, str) or callable(features) or len(features)):
        return chosen_columns(schema, features, label, encode)
    if encode is not None:
        raise BadArgument(
            f"encode={encode!r} has no effect: name the columns to train on, besides text, with features="
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
    """Fit the encoding of hashed features and a label; other arguments are those of `fit_encoding`.

    Words of ``text`` give n-grams of at most ``ngrams`` words; ``interactions`` are products of columns, all hashed to
    2^hash_bits places. ``features`` have places of their own; None: none. Unless ``missing`` is ``"error"`` null text
    has no words, and a null category is the empty one.

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
    chosen = unhashed_columns(table.schema, features, label, encode)
    for name in names:
        if name == label:
            raise BadArgument(f"the label column {label!r} is among the features; leave it out")
        if name in words and name in chosen.names:
            raise BadArgument(f"column {name!r} is in text and in features; leave it out of one of them")
    sources = [_source(name, table.schema.field(name).type, words=name in words) for name in names]
    values = [one.column for one in sources if one.kind == "number"]
    if values and missing != "error":
        fitted = fit_columns(table, FeatureColumns(tuple(values)), None, missing=missing).features
        filled = {one.column: one.fill for one in fitted if isinstance(one, Number)}
        sources = [replace(one, fill=filled.get(one.column)) for one in sources]
    options: dict[str, Any] = {"encode": encode, "missing": missing, "classes": classes, "numbers": numbers}
    encoding = fit_columns(table, chosen, label, **options, memory=memory)
    used = {*names, *chosen.names, label}
    others = {} if features is not None else {one.name: str(one.type) for one in table.schema if one.name not in used}
    hashing = Hashing(hash_bits, ngrams, tuple(sources), terms, strict=missing == "error")
    return replace(encoding, hashing=hashing, left_out=others)


def _source(name: str, kind: pa.DataType, *, words: bool) -> Source:
    """Return how a column is hashed; raise BadSchema if its type cannot be."""
    if words:
        if not is_words(kind):
            raise BadSchema(f"text column {name!r} is {kind}; text is needed")
        return Source(name, "words")
    family = family_of(kind)
    if not family:
        raise BadSchema(f"column {name!r} of interactions is {kind}; text, numbers, dates or times are needed")
    number = family == "number" and not pa.types.is_boolean(value_type(kind))
    return Source(name, "number") if number else Source(name, "category", family)
