"""Fits an order to a table and a memory budget."""

from collections.abc import Callable
from dataclasses import replace

from corgipile.errors import BudgetTooSmall
from corgipile.orders import Order
from corgipile.orders.base import Blocks
from corgipile.sizes import Size, format_bytes, parse_bytes
from corgipile.tables.base import Table

__all__ = ["fit"]

DEFAULT_MEMORY = 64 << 20
CLOSE = 1.02  # how near to the smallest budget that works the one suggested is


def fit(table: Table, order: Order, memory: Size | None, row_bytes: float, *, whole: bool) -> tuple[Order, Blocks]:
    """Turn sizes into rows and cut the table.

    Args:
        table: Says where blocks may be cut.
        order: Its sizes may be in any unit.
        memory: Budget; None: what the order's buffer needs, or 64 MB.
        row_bytes: Bytes of a row in memory.
        whole: Whether blocks must stay as they were read.

    Raises:
        BudgetTooSmall: The budget does not hold the smallest buffer that works; the message names one that does.
    """
    sized = getattr(order, "buffer", None) is not None
    limit = parse_bytes(memory) if memory is not None else None if sized else DEFAULT_MEMORY

    def attempt(limit: int | None) -> tuple[Order, Blocks]:
        return _fit(table, order, None if limit is None else int(limit / row_bytes), row_bytes, whole=whole)

    try:
        return attempt(limit)
    except BudgetTooSmall as error:
        enough = None if limit is None else _enough(attempt, limit)
        if enough is None:
            raise
        raise BudgetTooSmall(
            f"memory={memory or DEFAULT_MEMORY!r} holds {int((limit or 0) / row_bytes)} rows of {table!r}, too few for "
            f"{order.name}: give memory={enough!r} or a smaller {'block or buffer' if sized else 'block'}"
        ) from error


def _fit(table: Table, order: Order, budget: int | None, row_bytes: float, *, whole: bool) -> tuple[Order, Blocks]:
    """Fit to a budget in rows; where the table's natural blocks are wider than asked for, fit again."""
    fitted = order.fit(len(table), row_bytes, budget, whole=whole)
    blocks = Blocks.of(table.cuts(fitted.block_rows))
    if blocks.widest > fitted.block_rows:
        fitted = replace(order, block=blocks.widest).fit(len(table), row_bytes, budget, whole=whole)  # type: ignore[type-var]
    resident = fitted.resident(blocks)
    if budget is not None and resident > max(budget, 1):
        raise BudgetTooSmall(
            f"memory holds {budget} rows, but {fitted.name} over blocks of {blocks.widest} rows needs {resident}"
        )
    return fitted, blocks


def _enough(attempt: Callable[[int], object], limit: int) -> str | None:
    """Find a budget that works, and not much smaller ones do not; None where no budget would."""

    def works(size: float) -> bool:
        try:
            attempt(parse_bytes(_text(size)))
        except BudgetTooSmall:
            return False
        return True

    low, high = float(max(limit, 1)), 2.0 * max(limit, 1)
    while not works(high):
        low, high = high, 2 * high
        if high > 1 << 62:
            return None
    while high > low * CLOSE and high > low + 1:
        middle = (low + high) / 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return _text(high)


def _text(size: float) -> str:
    return format_bytes(size).replace(" ", "")
