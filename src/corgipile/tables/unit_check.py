"""Check of the memory budget before any row is decoded."""

from collections.abc import Sequence

import numpy as np

from corgipile.errors import BudgetTooSmall
from corgipile.sizes import Size, format_bytes, parse_bytes
from corgipile.tables.encoded import is_encoded
from corgipile.tables.io.pieces import pick
from corgipile.tables.row_bytes import fixed_row_bytes
from corgipile.tables.table import IntArray, Table, row_sizes, shared_bytes

__all__ = ["DEFAULT_MEMORY", "check_budget", "check_decoding"]

DEFAULT_MEMORY = 64 << 20  # the default budget
DECODING = 12 << 20  # bytes of decoding that are not part of the budget
STRETCHES, STRETCH_ROWS = 16, 1024  # stretches of rows whose sizes are compared with the budget
COPIES = 3  # of a row: decoded, changed and written


def check_decoding(table: Table, columns: Sequence[str], memory: Size | None = None) -> None:
    """Raise BudgetTooSmall if a dictionary, a chunk or a row exceeds a budget.

    Example:
        >>> from corgipile.tables import open
        >>> check_decoding(open({"x": [1.0]}), ["x"], "1KB")
    """
    if not len(table) or not columns:
        return
    room = DEFAULT_MEMORY if memory is None else parse_bytes(memory, whole=table.nbytes)
    check_budget(table, shared_bytes(table, columns), room)
    if is_encoded(table, columns) and (units := table.units(columns)) is not None:
        check_budget(table, max(units.dictionary, int(COPIES * units.each)), room)
    elif (sizes := row_sizes(table, _sampled_rows(len(table)), columns)) is not None:
        check_budget(table, COPIES * int(sizes.max()), room)
    else:
        check_budget(table, COPIES * fixed_row_bytes(pick(table.schema, columns)), room)


def _sampled_rows(rows: int) -> IntArray:
    """Return the rows of up to 16 stretches of 1,024 rows."""
    starts = np.unique(np.linspace(0, rows - 1, STRETCHES).astype(np.int64) // STRETCH_ROWS) * STRETCH_ROWS
    found = (starts[:, None] + np.arange(STRETCH_ROWS)).ravel()
    return found[found < rows]


def check_budget(table: Table, taken: int, room: float) -> None:
    """Raise BudgetTooSmall if decoding needs more bytes than the budget."""
    if taken > room + DECODING:
        enough = format_bytes(taken).replace(" ", "")
        raise BudgetTooSmall(
            f"a row, a dictionary or a chunk of {table!r} must fit in memory, but would take {format_bytes(taken)} "
            f"while rows are decoded: give memory={enough!r}, or rewrite the file in smaller parts"
        )
