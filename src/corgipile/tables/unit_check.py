"""Check of the memory budget before any row is decoded."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from corgipile.errors import BadSchema, BudgetTooSmall
from corgipile.sizes import Size, format_bytes, parse_bytes
from corgipile.tables.io.pieces import pick
from corgipile.tables.row_bytes import fixed_row_bytes
from corgipile.tables.table import IntArray, Table

__all__ = ["DEFAULT_MEMORY", "check_budget", "check_decoding", "sampled_runs"]

DEFAULT_MEMORY = 64 << 20  # the default budget
DECODING = 12 << 20  # bytes of decoding that are not part of the budget
STRETCHES, STRETCH_ROWS = 16, 1024  # stretches of rows whose sizes are compared with the budget
COPIES = 3  # of a row: decoded, changed and written


def check_decoding(table: Table, columns: Sequence[str], memory: Size | None = None) -> None:
    """Raise BudgetTooSmall if a dictionary, a chunk or a row exceeds a budget, BadSchema for run-end-encoded columns.

    Example:
        >>> from corgipile.tables import open
        >>> check_decoding(open({"x": [1.0]}), ["x"], "1KB")
    """
    if not len(table) or not columns:
        return
    for field in pick(table.schema, columns):
        if _has_runs(field.type):
            raise BadSchema(
                f"column {field.name!r} must store plain values, got {field.type}; leave it out, or cast it"
            )
    room = DEFAULT_MEMORY if memory is None else parse_bytes(memory, whole=table.nbytes)
    check_budget(table, table.shared_bytes(columns), room)
    if (units := table.units(columns)) is not None:
        check_budget(table, max(units.dictionary, int(COPIES * units.each)), room)
    elif (sizes := table.row_sizes(np.concatenate([*map(np.arange, *sampled_runs(len(table)))]), columns)) is not None:
        check_budget(table, COPIES * int(sizes.max()), room)
    else:
        longest = max(fixed_row_bytes(pick(table.schema, columns)), table.longest_row(columns))
        check_budget(table, COPIES * longest, room)


def sampled_runs(rows: int) -> tuple[IntArray, IntArray]:
    """Return starts and stops of up to 16 evenly spaced stretches of 1,024 rows."""
    starts = np.unique(np.linspace(0, max(0, rows - 1), STRETCHES).astype(np.int64) // STRETCH_ROWS) * STRETCH_ROWS
    return starts, np.minimum(starts + STRETCH_ROWS, rows)


def _has_runs(kind: pa.DataType) -> bool:
    """Return whether a type is or contains runs of equal values, which few bytes state for any number of rows."""
    inner = (kind.field(at).type for at in range(kind.num_fields))
    return bool(pa.types.is_run_end_encoded(kind)) or any(map(_has_runs, inner))


def check_budget(table: object, taken: int, room: float) -> None:
    """Raise BudgetTooSmall if decoding needs more bytes than the budget."""
    if taken > room + DECODING:
        enough = format_bytes(taken).replace(" ", "")
        raise BudgetTooSmall(
            f"a row, a dictionary or a chunk of {table!r} must fit in memory, but would take {format_bytes(taken)} "
            f"while rows are decoded: give memory={enough!r}, or rewrite the file in smaller parts"
        )
