"""Common schema of parts whose columns differ in order, null types or width."""

import logging
from collections.abc import Sequence

import pyarrow as pa

from corgipile.tables.cast_table import CastTable
from corgipile.tables.concat import same_kind
from corgipile.tables.promotion import common_type, holds_all, may_hold, smallest_type
from corgipile.tables.table import Table
from corgipile.tables.views import select

__all__ = ["drop_empty", "unify_schemas"]

types = pa.types
log = logging.getLogger("corgipile")


def drop_empty(tables: Sequence[Table]) -> list[Table]:
    """Drop empty tables whose schema differs from the others, since their writer knew no types.

    Example:
        >>> from corgipile.tables import MemoryTable
        >>> parts = [pa.table({"x": pa.array([], pa.null())}), pa.table({"x": [1]})]
        >>> len(drop_empty([MemoryTable(part) for part in parts]))
        1
    """
    full = [table for table in tables if len(table)]
    if not full or len(full) == len(tables):
        return list(tables)
    result = []
    for table in tables:
        if len(table) or _same_schema(table.schema, full[0].schema):
            result.append(table)
        else:
            log.warning("%r has no rows and is left out, since its columns differ from those of %r", table, full[0])
    return result


def unify_schemas(tables: Sequence[Table]) -> list[Table]:
    """Cast tables to the columns of the first non-empty table, matched by name.

    A null column gets the type of the others. Numbers get the smallest type that holds every value. 64-bit integers
    and floats become double; reading an integer that double cannot hold raises an error. Text and unordered categories
    become text. Lists of null type get the item type of the others and the widest offsets. Without a common type, as
    for int8 and uint64, a column is unchanged, and joining the tables raises an error. Tables with other column names
    are unchanged.

    Example:
        >>> from corgipile.tables import MemoryTable
        >>> parts = [pa.table({"x": pa.array([0.5], pa.float32()), "y": [1]}), pa.table({"y": [None], "x": [1.5]})]
        >>> [table.read(0, 1).to_pylist() for table in unify_schemas([MemoryTable(part) for part in parts])]
        [[{'x': 0.5, 'y': 1}], [{'x': 1.5, 'y': None}]]
    """
    first = next((table for table in tables if len(table)), tables[0]).schema if tables else pa.schema([])
    if all(table.schema.equals(first) for table in tables):  # fast for many files
        return list(tables)
    matching = [table for table in tables if {*table.schema.names} == {*first.names}]
    kinds = {name: _common_type([table.schema.field(name).type for table in matching]) for name in first.names}
    result = []
    for table in tables:
        if {*table.schema.names} == {*first.names}:
            changed = {name: kind for name, kind in kinds.items() if _needs_cast(table.schema.field(name).type, kind)}
            table = _cast_columns(table, first.names, changed) if changed else select(table, first.names)  # noqa: PLW2901
        result.append(table)
    return result


def _same_schema(one: pa.Schema, other: pa.Schema) -> bool:
    names = {*one.names} == {*other.names}
    return names and all(same_kind(one.field(name).type, other.field(name).type) for name in one.names)


def _common_type(kinds: Sequence[pa.DataType]) -> pa.DataType:
    """Return the type that holds every value, without types that do not fit the previous ones."""
    typed = [kind for kind in dict.fromkeys(kinds) if not types.is_null(kind)]
    if not typed:
        return kinds[0]
    fitting, common = typed[:1], typed[0]
    for kind in typed[1:]:
        number = smallest_type([*fitting, kind])  # all types together, so that the order of parts does not matter
        fitting += [kind] if number else []
        common = number or common_type(common, kind) or common
    return common


def _needs_cast(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a column must be cast to another type."""
    if same_kind(kind, wanted):
        return False
    return (
        types.is_null(kind) or holds_all(wanted, kind) or may_hold(wanted, kind) or common_type(kind, wanted) == wanted
    )


def _cast_columns(table: Table, names: Sequence[str], changed: dict[str, pa.DataType]) -> Table:
    """Cast some columns of a table, in the order of ``names``."""
    for name, kind in changed.items():
        log.info("%r: column %r is read as %s, as in the other parts", table, name, kind)
    fields = [table.schema.field(name) for name in names]
    fields = [field.with_type(changed.get(field.name, field.type)) for field in fields]
    return CastTable(table, pa.schema(fields, metadata=table.schema.metadata), {name: name for name in names}, {})
