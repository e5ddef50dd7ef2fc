"""Choice of the default order, shared by all readers of tables."""

import logging
from contextlib import suppress
from dataclasses import replace
from typing import Any

from corgipile import _kernel
from corgipile.errors import BadArgument, BadSchema, BudgetTooSmall
from corgipile.loader.budget import Columns, fit
from corgipile.loader.content import Content
from corgipile.loader.numbers import Numbers
from corgipile.orders import Auto, GlobalBatches, Order, Riffle, named
from corgipile.orders.riffle import CONTENT
from corgipile.sizes import Size
from corgipile.tables.io.remote import is_remote
from corgipile.tables.numbered import is_numbered
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.table import Table

__all__ = ["LABEL", "cap_buffer", "cheap", "chosen", "fixed"]

LABEL = "label"
MAX_LABEL_BYTES = 64 << 20  # largest label column that is read whatever its share of the table
MIN_TABLE_RATIO = 16  # smallest ratio of the table to a larger label column
log = logging.getLogger("corgipile")


def chosen(
    order: Order | str,
    table: Table,
    label: str | None = None,
    batch: int = 0,
    columns: Columns | None = None,
    memory: Size | None = None,
    update: int = 1,
) -> Order:
    """Return the order to run over a table.

    ``"auto"`` becomes Riffle balanced by the label if the table has a `cheap` one, else plain Riffle. A batch mixes as
    many blocks as it has rows if the buffer holds them. If it does not, and neighbouring rows are similar beyond their
    label, blocks are balanced by content, by the rule of `kernel/plan/similarity.h`. ``"balanced"`` becomes Riffle
    balanced by the label. Other orders are returned unchanged. The choice depends on table, memory and batch
    only, never on the machine: a seed gives the same visits everywhere, and states can move.

    Args:
        order: An order or its name.
        table: The table.
        label: The label column; None: the one named "label".
        batch: Rows of a batch; 0: unknown.
        columns: Columns that are read; None: unknown, which rules out balance by content.
        memory: Budget of all workers of a rank.
        update: Rows per step of a learner that forms its own batches.

    Example:
        >>> from corgipile.tables import open
        >>> rows = open({"x": [0.5], "label": [1]})
        >>> chosen("auto", rows).title, chosen("auto", rows, "y").title
        ("balanced by 'label'", 'riffle')
    """
    column = LABEL if label is None else label
    base = named(order)
    if order == "balanced":
        return replace(base, balance=column)  # type: ignore[type-var]
    if not isinstance(base, Auto):
        return base
    settled: Riffle = base.settled(column if cheap(table, column) else None, batch)
    why = "" if settled.balance else f": no column {column!r} holds numbers, text or times and is cheap to read"
    share = None
    if columns is not None and not base.balance:
        share = _by_content(settled, table, column, max(batch, update), columns, memory)
    if share is not None:
        beyond = f", beyond {column!r}" if settled.balance else ""
        why = f": neighbouring rows have {share:.0%} of the variance of a column in common{beyond}"
        settled = replace(settled, balance=CONTENT)
    log.info("order of %r: %s%s", table, settled.title, why)
    return settled


def _by_content(
    order: Riffle, table: Table, label: str, batch: int, columns: Columns, memory: Size | None
) -> float | None:
    """Return the variance that neighbouring rows share if balance by content mixes blocks better, else None.

    The check takes some hundred small reads. It is skipped where these are expensive, in stores and in encoded units
    that are not unpacked anyway, and for variable-length rows.
    """
    dense = set(Numbers.of(table.schema, columns.sources, label).dense)
    if is_remote(table) or dense & columns.varlen.keys():
        return None
    with suppress(BudgetTooSmall, BadSchema):  # the reader raises them; without numbers there is no content
        fitted = fit(table, order, memory, columns)
        label_unpacked = label in columns.sources or label not in table.schema.names
        if table.units(columns.sources) is not None and not (fitted.way.spilled and label_unpacked):
            return None
        sizes: Any = fitted.order
        blocks, dealt = fitted.blocks.count, sizes.buffer_blocks() * (1 if sizes.whole else 2)
        if _kernel.wants_content(1, blocks, dealt, batch):
            content = Content(tuple(columns.sources), label, unpacked=fitted.way.spilled)
            share = content.shared_variance(table, beyond_label=order.balance is not None)
            return share if _kernel.wants_content(share, blocks, dealt, batch) else None
    return None


def fixed(requested: Any, order: Order, rows: int | None) -> GlobalBatches:
    """Return the order of global batches of this many rows, equal for any number of ranks.

    Raises:
        BadArgument: ``requested`` is not ``"fixed"``, or there is no number of rows.

    Example:
        >>> fixed("fixed", Riffle(), 24).title
        'riffle in global batches of 24 rows'
    """
    if requested != "fixed":
        raise BadArgument(f'global_batches must be "fixed" or None, got {requested!r}')
    if rows is None:
        raise BadArgument('global_batches="fixed" needs batch_size, the rows of one batch across all ranks')
    return GlobalBatches.of(order, rows)


def cap_buffer(order: Order | str) -> Order | str:
    """Cap an order's buffer for a training without a memory budget: Riffle buffers only as much as mixes well.

    Visits of a buffer that stays in cache take two thirds of the time; PostgreSQL does the same.

    Example:
        >>> cap_buffer("riffle").spare, cap_buffer("full")
        (True, 'full')
    """
    if isinstance(order, Riffle) or (isinstance(order, str) and order in (Riffle.name, Auto.name)):
        return replace(named(order), spare=True)  # type: ignore[type-var]
    return order


def cheap(table: Table, column: str) -> bool:
    """Return whether blocks can be described by a column that is readable alone and small.

    Example:
        >>> from corgipile.tables import open
        >>> cheap(open({"label": ["a"]}), "label"), cheap(open({"x": [[1]]}), "x")
        (True, False)
    """
    if column not in table.schema.names or not len(table) or not is_numbered(table.schema.field(column).type):
        return False
    if not table.by_column(column):
        return False
    size = len(table) * row_bytes(table, [column])
    return size <= MAX_LABEL_BYTES or size * MIN_TABLE_RATIO <= table.nbytes
