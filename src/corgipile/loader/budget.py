"""Fits an order to a table and a memory budget: sizes in rows, blocks, and what balanced blocks need to know."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BudgetTooSmall
from corgipile.loader.buffer import Field, fields_of
from corgipile.loader.encoded import AS_CUT, ReadStrategy, choose_strategy, warn_few, wide_units
from corgipile.loader.sampled_runs import ROOM
from corgipile.loader.varlen import slot_bytes
from corgipile.orders import Blocks, GlobalBatches, Order
from corgipile.orders.riffle import CONTENT, RANDOM
from corgipile.sizes import Size, format_bytes, parse_bytes, part_of, to_rows
from corgipile.tables.columns import by_column
from corgipile.tables.encoded import is_encoded
from corgipile.tables.pages import run_cuts
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.sketch import sketch
from corgipile.tables.table import IntArray, Table, check_columns, even_cuts, is_list, row_sizes, shared_bytes
from corgipile.tables.unit_check import DEFAULT_MEMORY, check_taken

__all__ = [
    "DEFAULT_MEMORY",
    "Columns",
    "Fitted",
    "by_pages",
    "columns_of",
    "cut",
    "first_epoch_of",
    "fit",
    "sketched",
]

MANY_COLUMNS, COLUMN_RUN = 4, 4 << 10  # bytes of a column that are worth a request
TABLE_BLOCKS, BUFFER_BLOCKS = 512, 128  # at least, where blocks are larger for that
# Of a table in a store: what is worth a request, of one column where there are several; blocks at least, for that.
REQUEST, COLUMN_REQUEST = 1 << 20, 128 << 10
REMOTE_TABLE_BLOCKS, REMOTE_BUFFER_BLOCKS = 256, 64
KEPT = 3  # times what rows of spots take that are kept: in order, and as numbers
CLOSE = 1.02  # how near to the smallest budget that works the one suggested is


Sketch = Callable[[Table, IntArray, str], npt.NDArray[Any]]
_sketches: "WeakKeyDictionary[Table, tuple[object, npt.NDArray[Any]]]" = WeakKeyDictionary()  # the last of each


class Columns(NamedTuple):
    """What is read of a table.

    Attributes:
        sources: Names of the stored columns.
        fields: The columns of fixed width.
        varlen: Names and types of the others.
        row_bytes: Bytes of a row in memory.
    """

    sources: list[str]
    fields: list[Field]
    varlen: dict[str, pa.DataType]
    row_bytes: float

    def in_order(self, made: dict[str, Any]) -> dict[str, Any]:
        """Return a batch's columns in the requested order, numeric and other columns mixed."""
        place = {name: at for at, name in enumerate(self.sources)}
        place |= {field.name: place[field.sources[0]] for field in self.fields}
        return {name: made[name] for name in sorted(made, key=place.__getitem__)}


class Fitted(NamedTuple):
    """An order with all sizes in rows, the blocks it runs over, and what `cut` was asked for to get them."""

    order: Order
    blocks: Blocks
    cut: int
    sources: list[str]
    way: ReadStrategy = AS_CUT


def columns_of(
    table: Table,
    columns: Sequence[str] | None = None,
    casts: Mapping[str, npt.DTypeLike] | None = None,
    pack: Mapping[str, Sequence[str]] | None = None,
    widths: Mapping[str, int] | None = None,
) -> Columns:
    """Find out the types of columns and the size of a row; see `BufferedReader` for the arguments."""
    if isinstance(columns, str) or (columns is not None and not len(columns)):
        raise BadArgument(f"columns must be a list of names, at least one, got {columns!r}")
    pack = pack or {}
    names = list(columns) if columns is not None else list(table.schema.names)
    sources = [source for name in names for source in pack.get(name, (name,))]
    check_columns(table.schema, sources)
    fields, varlen = fields_of(table.schema, names, casts or {}, pack, widths or {})
    fixed = {source for field in fields for source in field.sources}
    loose = [source for source in sources if source not in fixed]
    size = sum(field.row_bytes for field in fields) + (row_bytes(table, loose) if loose else 0.0) + slot_bytes(varlen)
    return Columns(sources, fields, varlen, size or 1.0)


def found_alone(table: Table, columns: Columns) -> bool:
    """Say whether each row of a table is found without reading others."""
    if not len(table) or any(len(field.sources) > 1 for field in columns.fields):
        return False
    lists = [name for name in columns.sources if name not in columns.varlen and is_list(table.schema.field(name).type)]
    if columns.varlen or lists:
        return row_sizes(table, np.array([0, len(table) - 1]), [*columns.varlen, *lists]) is not None
    return table.layout(columns.sources) is not None


def limit_of(order: Order, memory: Size | None, whole: float) -> int | None:
    """Return the bytes that may be in memory, of ``whole`` in all; None where the order's own buffer says what is."""
    if memory is not None:
        return parse_bytes(memory, whole=whole)
    return DEFAULT_MEMORY if getattr(order, "buffer", None) is None else None


def fit(table: Table, order: Order, memory: Size | None, columns: Columns, workers: int = 1) -> Fitted:
    """Turn sizes into rows and cut the table. Memory and the order's buffer are divided among workers.

    Those of `GlobalBatches` are of all ranks and workers together, whose number must change nothing.

    Raises:
        BudgetTooSmall: The budget does not hold the smallest buffer that works; the message names one that does.
    """
    sized, workers = getattr(order, "buffer", None), 1 if isinstance(order, GlobalBatches) else workers
    if sized is not None and workers > 1:
        order = replace(order, buffer=part_of(sized, workers))  # type: ignore[type-var]
    limit = limit_of(order, memory, len(table) * columns.row_bytes)
    shared = shared_bytes(table, columns.sources)
    if limit is not None:
        check_taken(table, shared, limit)
    share = None if limit is None else limit / workers - shared
    if share is None and sized is not None:
        share = to_rows(order.buffer, len(table), columns.row_bytes, "buffer") * columns.row_bytes  # type: ignore[attr-defined]
    way = _way(table, order, columns.sources, share)
    if limit is not None and way.units is not None:
        check_taken(table, shared + way.units.dictionary, limit)

    def attempt(limit: int | None) -> Fitted:
        budget = None if limit is None else int(way.left(limit / workers - shared) / columns.row_bytes)
        return _fit(table, order, budget, columns, way)

    if way.units is not None and not way.even:
        with contextlib.suppress(BudgetTooSmall):
            fitted = attempt(limit)
            warn_few(table, way, fitted.order.slots(fitted.blocks) / max(1, fitted.blocks.widest))
            return fitted
        way = _way(table, order, columns.sources, share, units_fit=False)
    try:
        return attempt(limit)
    except BudgetTooSmall as error:
        enough = None if limit is None else _enough(attempt, limit)
        if limit is None or enough is None:
            raise
        fitting = int(max(0, limit / workers - shared) / columns.row_bytes)
        each = f" for each of {workers} workers" if workers > 1 else ""
        raise BudgetTooSmall(
            f"memory={memory or limit!r} holds {fitting} rows of {table!r}{each}, too few for {order.name}: "
            f"give memory={enough!r} or a smaller {'block or buffer' if sized else 'block'}"
            f"{wide_units(table, way)}"
        ) from error


def _way(
    table: Table, order: Order, columns: list[str], share: float | None, *, units_fit: bool = True
) -> ReadStrategy:
    """Choose how to read a table; rows that are kept of a first epoch, and what is made of them, have room beside."""
    units = table.units(columns) if first_epoch_of(order) is not None and is_encoded(table, columns) else None
    room = KEPT * min(ROOM, units.total) if units is not None else 0
    way = choose_strategy(table, order, columns, None if share is None else share - room, units_fit=units_fit)
    return way._replace(beside=way.beside + room) if way.units is not None and not way.spilled else way


def _fit(table: Table, order: Order, budget: int | None, columns: Columns, way: ReadStrategy) -> Fitted:
    """Fit to a budget in rows; where the table's natural blocks are wider than asked for, fit again."""
    whole = bool(columns.varlen)
    fitted = order.fit(len(table), columns.row_bytes, budget, whole=whole)
    apart = max(_column_runs(table, order, columns, budget), _request_rows(table, order, columns, budget, way))
    if apart > fitted.block_rows:
        fitted = replace(order, block=apart).fit(len(table), columns.row_bytes, budget, whole=whole)  # type: ignore[type-var]
    wanted = fitted.block_rows
    blocks = cut(table, fitted, wanted, columns.sources, even=way.even)
    if blocks.widest > wanted:
        order = replace(order, block=blocks.widest)  # type: ignore[type-var]
        fitted = order.fit(len(table), columns.row_bytes, budget, whole=whole)
    resident = fitted.resident(blocks)
    if budget is not None and resident > max(budget, 1):
        raise BudgetTooSmall(
            f"memory holds {budget} rows, but {fitted.name} over blocks of {blocks.widest} rows needs {resident}"
        )
    return Fitted(fitted, blocks, wanted, columns.sources, way)


def _column_runs(table: Table, order: Order, columns: Columns, budget: int | None) -> int:
    """Return the rows of a block that is worth a request for each of many columns, 0 where that is no matter.

    Columns lie apart, so a block of narrow ones is as many short reads. Blocks stay so small that many are in memory,
    and in the table: it is their number that mixes.
    """
    if getattr(order, "block", 0) is not None or order.cuts_into != "block" or len(columns.sources) < MANY_COLUMNS:
        return 0
    if order.sequential or columns.varlen or not all(by_column(table, name) for name in columns.sources):
        return 0
    most = min(len(table) // TABLE_BLOCKS, len(table) if budget is None else budget // BUFFER_BLOCKS)
    return min(int(COLUMN_RUN * len(columns.sources) / columns.row_bytes), most)


def _request_rows(table: Table, order: Order, columns: Columns, budget: int | None, way: ReadStrategy) -> int:
    """Return the rows of a block that is worth a request to a store, 0 where rows come from this machine.

    Until an answer begins, its share of the line could have brought as much; several columns lie apart, as above.
    """
    if not way.ahead or getattr(order, "block", 0) is not None or order.cuts_into != "block":
        return 0
    size = max(REQUEST, COLUMN_REQUEST * len(columns.sources))
    if order.sequential:
        return min(int(2 * size / columns.row_bytes), len(table) if budget is None else budget // 8)
    most = min(len(table) // REMOTE_TABLE_BLOCKS, len(table) if budget is None else budget // REMOTE_BUFFER_BLOCKS)
    return min(int(size / columns.row_bytes), most)


def cut(table: Table, order: Order, rows: int, columns: Sequence[str], *, even: bool = False) -> Blocks:
    """Cut a table into the units of an order: blocks of about so many rows, single rows, or runs of pages.

    Blocks are ``even`` where encoded rows are read plain, and the table's own units do not matter.
    """
    if order.cuts_into == "row":
        return Blocks(len(table), even=1)
    if even:
        return Blocks(len(table), even=max(1, rows))
    return Blocks.of(run_cuts(table, columns, order.run_bytes) if by_pages(order) else table.cuts(rows))


def by_pages(order: Order) -> bool:
    """Say whether an order's blocks are runs of pages, and so depend on the columns that are read."""
    return order.cuts_into == "page"


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


def sketched(table: Table, order: Order, blocks: Blocks, look: Sketch = sketch) -> Blocks:
    """Add to blocks the sketch by which an order balances them, if it does; what later epochs have is made for them.

    The last one of a table is kept: workers that are forked later, and the next order over the same blocks, read no
    column again.
    """
    column, first = order.sketch_column, first_epoch_of(order)
    if column is None:
        return blocks
    cuts = even_cuts(blocks.rows, blocks.even) if blocks.cuts is None else blocks.cuts
    if first is None:
        return replace(blocks, sketch=_found(table, cuts, column, look))
    sketch = None if first == RANDOM else _found(table, cuts, first, look)
    return replace(blocks, sketch=sketch, later=cache(lambda: _found(table, cuts, column, look)))


def first_epoch_of(order: Order) -> str | None:
    """Return what an order balances its first epoch by, where that is another column than later, or none."""
    return getattr(order, "first_epoch", None)


def _found(table: Table, cuts: IntArray, column: str, look: Sketch) -> npt.NDArray[Any]:
    """Return the sketch of blocks by a column; the last one of a table is kept."""
    what = look if column == CONTENT else None
    asked = column, what, len(cuts), blake2b(np.ascontiguousarray(cuts).data).digest()
    try:
        known, found = _sketches.get(table, (None, None))
    except TypeError:  # a table of others that cannot be a key
        return look(table, cuts, column)
    if found is None or known != asked:
        found = look(table, cuts, column)
        _sketches[table] = asked, found
    return found
