"""The order that serves where none was asked for: one rule for all who read tables."""

import logging
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from corgipile import _kernel
from corgipile.errors import BadArgument, BadSchema, BudgetTooSmall
from corgipile.loader.budget import Columns, fit
from corgipile.loader.content import Content
from corgipile.loader.numbers import Numbers
from corgipile.orders import Auto, GlobalBatches, Order, Riffle, named
from corgipile.orders.riffle import CONTENT
from corgipile.sizes import Size
from corgipile.tables.columns import by_column
from corgipile.tables.encoded import is_encoded
from corgipile.tables.io.remote import is_remote
from corgipile.tables.numbered import is_numbered
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.table import Table

__all__ = ["LABEL", "Reading", "cap_buffer", "cheap", "chosen", "fixed"]

LABEL = "label"
SMALL = 64 << 20  # bytes of labels that are read whatever their share
SHARE = 16  # else a row is so many times as large as its label, at least
log = logging.getLogger("corgipile")


class Reading(NamedTuple):
    """What is read of a table, within which memory, of all workers of a rank, however many these are, and for what.

    Attributes:
        columns: What is read.
        memory: Bytes for it.
        update: Rows that a learner takes one step for, where batches are not cut beforehand.
    """

    columns: Columns
    memory: Size | None
    update: int = 1


def chosen(
    order: Order | str, table: Table, label: str | None = None, batch: int = 0, reading: Reading | None = None
) -> Order:
    """Return the order to run over a table.

    ``"auto"`` becomes Riffle balanced by the label, if the table has one that is `cheap` to read, else plain Riffle;
    where memory holds as many blocks as a batch has rows, so many are mixed. Where it holds too few, and rows that lie
    beside each other are alike beyond their label, blocks are balanced by content: by the rule of PostgreSQL's
    (`kernel/plan/alike.h`). ``"balanced"`` is balanced by the label. Any other order is taken as it is. What is decided
    depends on the table, the memory and the batch, never on what this machine is like: the same seed gives the same
    visits on another one, and a state goes on there.

    Args:
        order: An order or its name.
        table: What it runs over.
        label: The label column; None: the one named "label".
        batch: Rows of a batch; 0: unknown.
        reading: How it is read; None: that is not known, and blocks are not balanced by content.

    Example:
        >>> from corgipile.tables import open
        >>> rows = open({"x": [0.5], "label": [1]})
        >>> chosen("auto", rows).title, chosen("auto", rows, "y").title
        ("balanced by 'label'", 'riffle')
    """
    column = LABEL if label is None else label
    found = named(order)
    if order == "balanced":
        return replace(found, balance=column)  # type: ignore[type-var]
    if not isinstance(found, Auto):
        return found
    settled: Riffle = found.settled(column if cheap(table, column) else None, batch)
    why = "" if settled.balance else f": no column {column!r} that holds numbers, text or times and is cheap to read"
    share = None if reading is None or found.balance else _by_content(settled, table, column, batch, reading)
    if share is not None:
        beyond = f", beyond {column!r}" if settled.balance else ""
        why = f": rows that lie beside each other have {share:.0%} of the variance of a column in common{beyond}"
        settled = replace(settled, balance=CONTENT)
    log.info("order of %r: %s%s", table, settled.title, why)
    return settled


def _by_content(order: Riffle, table: Table, label: str, batch: int, reading: Reading) -> float | None:
    """Return what rows beside each other have in common if blocks are better balanced by content for it; else None.

    A look takes some hundred small reads. It is not taken where these are dear, in stores and in encoded units that are
    not unpacked anyway, nor where rows differ in length.
    """
    columns, memory, update = reading
    batch = max(batch, update)
    dense = set(Numbers.of(table.schema, columns.sources, label).dense)
    if is_remote(table) or dense & columns.varlen.keys():
        return None
    with suppress(BudgetTooSmall, BadSchema):  # whoever reads it says so; there are no numbers
        fitted = fit(table, order, memory, columns)
        there = label in columns.sources or label not in table.schema.names  # where it is unpacked
        if is_encoded(table, columns.sources) and not (fitted.way.spilled and there):
            return None
        sizes: Any = fitted.order
        blocks, dealt = fitted.blocks.count, sizes.buffer_blocks() * (1 if sizes.whole else 2)
        if _kernel.wants_content(1, blocks, dealt, batch):
            content = Content(tuple(columns.sources), label, unpacked=fitted.way.spilled)
            share = content.alike(table, beyond_label=order.balance is not None)
            return share if _kernel.wants_content(share, blocks, dealt, batch) else None
    return None


def fixed(said: Any, order: Order, rows: int | None) -> GlobalBatches:
    """Return the order of global batches that are the same in every world, of so many rows.

    Raises:
        BadArgument: Something else than ``"fixed"`` was said, or no rows.

    Example:
        >>> fixed("fixed", Riffle(), 24).title
        'riffle in global batches of 24 rows'
    """
    if said != "fixed":
        raise BadArgument(f'global_batches must be "fixed" or None, got {said!r}')
    if rows is None:
        raise BadArgument('global_batches="fixed" needs batch_size, the rows of a batch of all ranks together')
    return GlobalBatches.of(order, rows)


def cap_buffer(order: Order | str) -> Order | str:
    """Return an order for a training that nobody gave a budget: Riffle then takes no more of it than mixes well.

    A buffer that stays near the core is visited in two thirds of the time; PostgreSQL does the same.

    Example:
        >>> cap_buffer("riffle").spare, cap_buffer("full")
        (True, 'full')
    """
    if isinstance(order, Riffle) or (isinstance(order, str) and order in (Riffle.name, Auto.name)):
        return replace(named(order), spare=True)  # type: ignore[type-var]
    return order


def cheap(table: Table, column: str) -> bool:
    """Say whether blocks can be described by a column that is read without those around it, and is little of the table.

    Example:
        >>> from corgipile.tables import open
        >>> cheap(open({"label": ["a"]}), "label"), cheap(open({"x": [[1]]}), "x")
        (True, False)
    """
    if column not in table.schema.names or not len(table) or not is_numbered(table.schema.field(column).type):
        return False
    if not by_column(table, column):
        return False
    size = len(table) * row_bytes(table, [column])
    return size <= SMALL or size * SHARE <= table.nbytes
