"""Sparse features: a pair of list columns, the indices and the values of a row."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from corgipile import arrow_compute as pc
from corgipile.errors import BadSparseRow
from corgipile.features.choose import item_of
from corgipile.tables.concat import DIMS_KEY
from corgipile.tables.scan import scan
from corgipile.tables.table import Table

__all__ = ["is_pair", "pair_width"]


def is_pair(schema: pa.Schema, names: Sequence[str]) -> bool:
    """Return whether columns are a sparse pair.

    Example:
        >>> is_pair(pa.schema({"x_k": pa.list_(pa.int32()), "x_v": pa.list_(pa.float32())}), ["x_k", "x_v"])
        True
    """
    items: list[Any] = [item_of(schema.field(name).type) for name in names]
    return len(items) == 2 and None not in items and bool(pa.types.is_integer(items[0]))


def pair_width(table: Table, indices: str) -> int:
    """Return the width of sparse rows: from the schema, or the largest index plus one; no index may be negative.

    Example:
        >>> from corgipile.tables import open
        >>> pair_width(open(pa.table({"x_k": [[0, 7], [2]]})), "x_k")
        8
    """
    stored_width = (table.schema.metadata or {}).get(DIMS_KEY)
    return max(int(stored_width) if stored_width else _largest(table, indices) + 1, 1)


def _largest(table: Table, name: str) -> int:
    """Return the largest index of a sparse column; this reads it."""
    largest = 0
    for start, batch in scan(table, [name]):
        column = batch.column(0)
        bounds = pc.min_max(pc.list_flatten(column)).as_py()
        if bounds["min"] is not None and bounds["min"] < 0:
            raise BadSparseRow(
                f"column {name!r} holds index {bounds['min']} in rows from {start} on; indices must be 0 or more"
            )
        largest = max(largest, bounds["max"] or 0)
    return largest
