"""Sparse features: a pair of list columns, the places of numbers in a row and the numbers."""

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
    """Say whether columns are a sparse pair.

    Example:
        >>> is_pair(pa.schema({"x_k": pa.list_(pa.int32()), "x_v": pa.list_(pa.float32())}), ["x_k", "x_v"])
        True
    """
    items: list[Any] = [item_of(schema.field(name).type) for name in names]
    return len(items) == 2 and None not in items and bool(pa.types.is_integer(items[0]))


def pair_width(table: Table, indices: str) -> int:
    """Return the width of sparse rows: what the schema says, else one more than the largest of all indices.

    Raises:
        BadSparseRow: An index is negative.

    Example:
        >>> from corgipile.tables import open
        >>> pair_width(open(pa.table({"x_k": [[0, 7], [2]]})), "x_k")
        8
    """
    said = (table.schema.metadata or {}).get(DIMS_KEY)
    return max(int(said) if said else _largest(table, indices) + 1, 1)


def _largest(table: Table, name: str) -> int:
    """Return the largest index of a sparse column, by reading it once."""
    largest = 0
    for start, batch in scan(table, [name]):
        column = batch.column(0)
        bounds = pc.min_max(pc.list_flatten(column)).as_py()
        if bounds["min"] is not None and bounds["min"] < 0:
            raise BadSparseRow(
                f"column {name!r} holds index {bounds['min']} in rows from {start} on; indices begin at 0"
            )
        largest = max(largest, bounds["max"] or 0)
    return largest
