"""Choice of the columns of batches by the options of a loader."""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema, CorgiPileError
from corgipile.features import Encoding, fit_encoding
from corgipile.features.choose import FeatureColumns, choose, describe_left_out, is_number, item_of, require
from corgipile.features.fit import Encode, Features, Missing, chosen_columns
from corgipile.features.sparse import is_pair, pair_width
from corgipile.loader.budget import columns_of
from corgipile.loader.buffer import FEATURE_RULE
from corgipile.loader.list_widths import widths_of
from corgipile.loader.materialize import bring
from corgipile.loader.options import Options
from corgipile.loader.selection import FEATURES, LABEL, PACKED, Selection
from corgipile.suggestions import listed
from corgipile.tables.table import Table, fixed_field

__all__ = ["select"]

log = logging.getLogger("corgipile")


def select(table: Table, given: Options, *, arrow: bool = False) -> tuple[Table, Selection]:
    """Return the table with encoded features, and its columns for batches; ``arrow``: batches are record batches.

    Raises:
        BadArgument: Options have no effect, or contradict each other.
    """
    features, given = given.features, given.with_label()
    if isinstance(features, Selection):  # the table is encoded already
        return table, features
    if features is None and given.label is None:
        known = widths_of(table, given.columns, {} if given.widths is None and arrow else given.widths, given.memory)
        return table, Selection(given.columns, known)
    encoding = _fit(table, given, features)
    if given.as_tuple and (given.label is None or (given.columns and encoding.columns) or arrow):
        raise BadArgument(
            "as_tuple=True makes pairs of features and label: give a label, no columns and no format='arrow'"
        )
    log.info("features of %r: %s", table, listed(encoding.columns) or "none; all columns are read as stored")
    if encoding.left_out and not isinstance(features, Encoding):
        log.warning("columns of %r that are not features: %s", table, describe_left_out(encoding.left_out))
    encoded = encoding.table(table, once=True)
    if not encoding.columns and given.label is not None:
        return encoded, _as_stored(encoded, encoding, given, given.label)
    return encoded, _selection(encoded, encoding, given, arrow=arrow)


def _fit(table: Table, given: Options, features: Features) -> Encoding:
    """Fit the encoding of features and label; columns of stores are fetched once for it and the reader."""
    label, encode, missing = given.label, given.encode, given.missing
    bring(table, _surveyed(table, features, label, encode, missing), given.memory)
    chosen = features if encode else _none_beside(table.schema, features, label)
    options: dict[str, Any] = {"encode": encode, "missing": missing, "classes": given.classes}
    return fit_encoding(table, chosen, label, **options, memory=given.memory)


def _none_beside(schema: pa.Schema, features: Features, label: str | None) -> Features | FeatureColumns:
    """Return the requested features; no columns if none were requested and no column but the label is numeric."""
    if label is not None:
        require(schema, [label])
    if features is None and label is not None and len(schema) > 1:
        try:
            choose(schema, None, label)
        except BadSchema:
            return FeatureColumns(())
    return features


def _surveyed(table: Table, features: Features, label: str | None, encode: Encode, missing: Missing) -> list[str]:
    """Return the columns that are read both to fit their encoding and to encode them."""
    schema = table.schema
    try:
        names = [] if isinstance(features, Encoding) else [*chosen_columns(schema, features, label, encode).names]
    except CorgiPileError:  # a later step raises it
        return []
    names += [label] if label is not None and label in schema.names else []
    kinds = {name: schema.field(name).type for name in names}
    lists = any(item_of(kind) is not None for kind in kinds.values())
    if missing == "mean" or (missing != "error" and lists) or is_pair(schema, names[:2]):
        return names
    named = encode if isinstance(encode, Mapping) else {}
    return [name for name, kind in kinds.items() if name in named or not (is_number(kind) or item_of(kind) is not None)]


def _as_stored(table: Table, encoding: Encoding, given: Options, label: str) -> Selection:
    """Select the label and non-numeric columns, such as images or text."""
    others = [name for name in given.columns or table.schema.names if name != label]
    if LABEL in others or FEATURES in others:
        raise BadArgument(f"columns must not collide with the label {label!r} under 'label', got {listed(others)}")
    if given.as_tuple and len(others) > 1:
        raise BadArgument(f"as_tuple=True needs one column and the label, got {listed(others)}: give columns=")
    names = {label: LABEL, **({others[0]: FEATURES} if given.as_tuple else {})}
    read = [*others, label]
    found = widths_of(table, read, given.widths, given.memory)
    return Selection(read, found, names=names, as_tuple=given.as_tuple, label=label, encoding=encoding)


def _selection(table: Table, encoding: Encoding, given: Options, *, arrow: bool) -> Selection:
    if encoding.hashing is not None:
        raise BadArgument("hashed features are for linear models; a loader reads text as stored: give columns=")
    sources, additional, label = encoding.columns, list(given.columns or ()), given.label
    for name in additional:
        if name in sources or name == label:
            raise BadArgument(f"column {name!r} is a feature or the label already: leave it out of columns")
        if name in (FEATURES, LABEL):
            raise BadArgument(f"{name!r} is the batches' name of features or label: leave that column out of columns")
    read = [*sources, *additional, *([] if label is None else [label])]
    found = widths_of(table, read, given.widths, given.memory)
    if [name[-2:] for name in sources] == ["_k", "_v"] and is_pair(table.schema, sources):
        if arrow:
            raise BadArgument(f"format='arrow' cannot have sparse features: give columns={list(sources)}")
        width = pair_width(table, sources[0])
        return Selection(
            read, found, names={PACKED: FEATURES, **({} if label is None else {label: LABEL})},
            as_tuple=given.as_tuple, label=label, encoding=encoding, sparse=width, dtype=given.dtype,
        )  # fmt: skip
    lists = [item_of(table.schema.field(name).type) is not None for name in sources]
    names = {} if label is None else {label: LABEL}
    if len(sources) == 1 and lists[0]:
        name, pack, casts = sources[0], {}, {}
        if name not in found and fixed_field(table.schema.field(name).type) is None:
            raise BadSchema(f"feature column {name!r} is {table.schema.field(name).type}; {FEATURE_RULE}")
    else:
        name, pack, casts = PACKED, {PACKED: sources}, {PACKED: np.dtype(given.dtype)}
    names[name] = FEATURES
    wanted = [name, *additional, *([] if label is None else [label])]
    ends = np.cumsum(columns_of(table, wanted, casts, pack, found).fields[0].widths) if pack else np.zeros(0, int)
    return Selection(wanted, found, pack, casts, names, given.as_tuple, label, encoding, [int(end) for end in ends])
