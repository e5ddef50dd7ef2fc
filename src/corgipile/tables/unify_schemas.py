"""Parts of one table that programs wrote apart: columns in another order, of nothing but nulls, or narrower."""

import logging
from collections.abc import Sequence

import pyarrow as pa

from corgipile.tables.cast_table import CastTable
from corgipile.tables.concat import same_kind
from corgipile.tables.promotion import checked, common_type, holds_all, smallest
from corgipile.tables.table import Table
from corgipile.tables.views import select

__all__ = ["alike", "with_rows"]

types = pa.types
log = logging.getLogger("corgipile")


def with_rows(tables: Sequence[Table]) -> list[Table]:
    """Leave out tables without rows whose columns are not those of the others: what wrote them knew no types.

    Example:
        >>> from corgipile.tables import MemoryTable
        >>> parts = [pa.table({"x": pa.array([], pa.null())}), pa.table({"x": [1]})]
        >>> len(with_rows([MemoryTable(part) for part in parts]))
        1
    """
    full = [table for table in tables if len(table)]
    if not full or len(full) == len(tables):
        return list(tables)
    kept = []
    for table in tables:
        if len(table) or _same(table.schema, full[0].schema):
            kept.append(table)
        else:
            log.warning("%r has no rows and is left out: its columns are not those of %r", table, full[0])
    return kept


def alike(tables: Sequence[Table]) -> list[Table]:
    """Return tables with the columns of the first one that has rows, found by name, where all have them.

    A column that is nothing but nulls in one of them has the type of the others. Numbers of several types have the
    smallest that keeps every value of all; 64-bit integers beside floats are double, and one that double does not keep
    is an error once it is read. Text and categories without an order are text; lists that are all empty are of what
    the others hold, in offsets as wide as any. Where there is no such type, as for int8 beside uint64, a column stays
    as it is: who joins the tables says what differs.

    Example:
        >>> from corgipile.tables import MemoryTable
        >>> parts = [pa.table({"x": pa.array([0.5], pa.float32()), "y": [1]}), pa.table({"y": [None], "x": [1.5]})]
        >>> [table.read(0, 1).to_pylist() for table in alike([MemoryTable(part) for part in parts])]
        [[{'x': 0.5, 'y': 1}], [{'x': 1.5, 'y': None}]]
    """
    first = next((table for table in tables if len(table)), tables[0]).schema if tables else pa.schema([])
    if all(table.schema.equals(first) for table in tables):  # which is told at once of many files
        return list(tables)
    same = [table for table in tables if {*table.schema.names} == {*first.names}]
    kinds = {name: _common([table.schema.field(name).type for table in same]) for name in first.names}
    made = []
    for table in tables:
        if {*table.schema.names} == {*first.names}:
            changed = {name: kind for name, kind in kinds.items() if _becomes(table.schema.field(name).type, kind)}
            table = _of_types(table, first.names, changed) if changed else select(table, first.names)  # noqa: PLW2901
        made.append(table)
    return made


def _same(one: pa.Schema, other: pa.Schema) -> bool:
    names = {*one.names} == {*other.names}
    return names and all(same_kind(one.field(name).type, other.field(name).type) for name in one.names)


def _common(kinds: Sequence[pa.DataType]) -> pa.DataType:
    """Return the type that keeps every value of all, those aside that none keeps beside the ones before them."""
    told = [kind for kind in dict.fromkeys(kinds) if not types.is_null(kind)]
    if not told:
        return kinds[0]
    kept, found = told[:1], told[0]
    for kind in told[1:]:
        number = smallest([*kept, kind])  # of all at once: whichever part comes first
        kept += [kind] if number else []
        found = number or common_type(found, kind) or found
    return found


def _becomes(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Say whether a column of a type is to be read as another."""
    if same_kind(kind, wanted):
        return False
    return (
        types.is_null(kind) or holds_all(wanted, kind) or checked(wanted, kind) or common_type(kind, wanted) == wanted
    )


def _of_types(table: Table, names: Sequence[str], changed: dict[str, pa.DataType]) -> Table:
    """Return a table with these columns, some of them of other types."""
    for name, kind in changed.items():
        log.info("%r: column %r is read as %s, as in the other parts", table, name, kind)
    fields = [table.schema.field(name) for name in names]
    fields = [field.with_type(changed.get(field.name, field.type)) for field in fields]
    return CastTable(table, pa.schema(fields, metadata=table.schema.metadata), {name: name for name in names}, {})
