"""Fitting of an order to a table and a memory budget: sizes in rows, blocks, and their sketches."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BudgetTooSmall
from corgipile.loader.buffer import Field, fields_of
from corgipile.loader.encoded import AS_CUT, ReadStrategy, choose_strategy, warn_few, wide_units
from corgipile.loader.varlen import slot_bytes
from corgipile.orders import Blocks, GlobalBatches, Order
from corgipile.orders.riffle import CONTENT
from corgipile.sizes import Size, format_bytes, parse_bytes, part_of, to_rows
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.sketch import sketch
from corgipile.tables.table import IntArray, Table, check_columns, even_cuts, is_list
from corgipile.tables.unit_check import DEFAULT_MEMORY, check_budget

__all__ = [
    "DEFAULT_MEMORY",
    "Columns",
    "Fitted",
    "by_pages",
    "columns_of",
    "cut",
    "fit",
    "sketched",
]

MANY_COLUMNS, COLUMN_RUN = 4, 4 << 10  # columns from which blocks grow; bytes of a column worth one request
TABLE_BLOCKS, BUFFER_BLOCKS = 512, 128  # smallest numbers of blocks that grown blocks leave
# Remote tables: bytes worth one request, of one column where there are several; smallest numbers of blocks.
REQUEST, COLUMN_REQUEST = 1 << 20, 128 << 10
REMOTE_TABLE_BLOCKS, REMOTE_BUFFER_BLOCKS = 256, 64
SUGGESTION_RATIO = 1.02  # largest ratio of the suggested budget to the smallest one that works


Sketch = Callable[[Table, IntArray, str], npt.NDArray[Any]]
_sketches: "WeakKeyDictionary[Table, tuple[object, npt.NDArray[Any]]]" = WeakKeyDictionary()  # the last one per table


class Columns(NamedTuple):
    """Columns that are read from a table.

    Attributes:
        sources: Names of the stored columns.
        fields: Fixed-width columns.
        varlen: Names and types of the variable-length columns.
        row_bytes: Bytes of a row in memory.
    """

    sources: list[str]
    fields: list[Field]
    varlen: dict[str, pa.DataType]
    row_bytes: float

    def in_order(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Return a batch's columns in the requested order."""
        place = {name: at for at, name in enumerate(self.sources)}
        place |= {field.name: place[field.sources[0]] for field in self.fields}
        return {name: columns[name] for name in sorted(columns, key=place.__getitem__)}


class Fitted(NamedTuple):
    """An order with all sizes in rows, its blocks, and the rows and columns that `cut` got."""

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
    """Return the columns' types and the row size; see `BufferedReader` for the arguments."""
    if isinstance(columns, str) or (columns is not None and not len(columns)):
        raise BadArgument(f"columns must be a list of names, at least one, got {columns!r}")
    pack = pack or {}
    names = list(columns) if columns is not None else list(table.schema.names)
    # A weight may also be a feature.
    sources = list(dict.fromkeys(source for name in names for source in pack.get(name, (name,))))
    check_columns(table.schema, sources)
    fields, varlen = fields_of(table.schema, names, casts or {}, pack, widths or {})
    fixed = {source for field in fields for source in field.sources}
    loose = [source for source in sources if source not in fixed]
    size = sum(field.row_bytes for field in fields) + (row_bytes(table, loose) if loose else 0.0) + slot_bytes(varlen)
    return Columns(sources, fields, varlen, size or 1.0)


def readable_alone(table: Table, columns: Columns) -> bool:
    """Return whether each row can be read without its neighbours."""
    if not len(table) or any(len(field.sources) > 1 for field in columns.fields):
        return False
    lists = [name for name in columns.sources if name not in columns.varlen and is_list(table.schema.field(name).type)]
    if columns.varlen or lists:
        return table.row_sizes(np.array([0, len(table) - 1]), [*columns.varlen, *lists]) is not None
    return table.layout(columns.sources) is not None


def limit_of(order: Order, memory: Size | None, whole: float) -> int | None:
    """Return the memory limit in bytes, or None if the order sets its buffer size; ``whole``: table bytes."""
    if memory is not None:
        return parse_bytes(memory, whole=whole)
    return DEFAULT_MEMORY if getattr(order, "buffer", None) is None else None


def fit(table: Table, order: Order, memory: Size | None, columns: Columns, workers: int = 1) -> Fitted:
    """Convert sizes to rows and cut the table into blocks. Workers divide memory and the order's buffer.

    `GlobalBatches` share one budget: its batches must not depend on the numbers of ranks and workers.

    Raises:
        BudgetTooSmall: The budget does not hold the smallest buffer; the message names a budget that works.
    """
    sized, workers = getattr(order, "buffer", None), 1 if isinstance(order, GlobalBatches) else workers
    if sized is not None and workers > 1:
        order = replace(order, buffer=part_of(sized, workers))  # type: ignore[type-var]
    limit = limit_of(order, memory, len(table) * columns.row_bytes)
    shared = table.shared_bytes(columns.sources)
    if limit is not None:
        check_budget(table, shared, limit)
    share = None if limit is None else limit / workers - shared
    if share is None and sized is not None:
        share = to_rows(order.buffer, len(table), columns.row_bytes, "buffer") * columns.row_bytes  # type: ignore[attr-defined]
    way = choose_strategy(table, order, columns.sources, share)
    if limit is not None and way.units is not None:
        check_budget(table, shared + (1 if way.spilled else workers) * way.units.dictionary, limit)

    def attempt(limit: int | None) -> Fitted:
        budget = None if limit is None else int(way.rows_budget(limit / workers - shared) / columns.row_bytes)
        return _fit(table, order, budget, columns, way)

    if way.units is not None and not way.even:
        with contextlib.suppress(BudgetTooSmall):
            fitted = attempt(limit)
            warn_few(table, way, fitted.order.slots(fitted.blocks) / max(1, fitted.blocks.widest))
            return fitted
        way = choose_strategy(table, order, columns.sources, share, units_fit=False)
    try:
        return attempt(limit)
    except BudgetTooSmall as error:
        suggested = None if limit is None else _smallest_budget(attempt, limit)
        if limit is None or suggested is None:
            raise
        fitting = int(max(0, limit / workers - shared) / columns.row_bytes)
        per_worker = f" for each of {workers} workers" if workers > 1 else ""
        raise BudgetTooSmall(
            f"memory={memory or limit!r} holds {fitting} rows of {table!r}{per_worker}, too few for {order.name}: "
            f"give memory={suggested!r} or a smaller {'block or buffer' if sized else 'block'}"
            f"{wide_units(table, way)}"
        ) from error


def _fit(table: Table, order: Order, budget: int | None, columns: Columns, way: ReadStrategy) -> Fitted:
    """Fit to a budget in rows, and again if the table's natural blocks are wider than requested."""
    whole = bool(columns.varlen)
    fitted = order.fit(len(table), columns.row_bytes, budget, whole=whole)
    least = max(_column_runs(table, order, columns, budget), _request_rows(table, order, columns, budget, way))
    if least > fitted.block_rows:
        fitted = replace(order, block=least).fit(len(table), columns.row_bytes, budget, whole=whole)  # type: ignore[type-var]
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
    """Return the block rows that make reads of many columns worth a request each; 0: no matter.

    Each column of a block is a read of its own, short where columns are narrow. Blocks stay small enough that the
    buffer and the table have many: their number determines the mixing.
    """
    if getattr(order, "block", 0) is not None or order.cuts_into != "block" or len(columns.sources) < MANY_COLUMNS:
        return 0
    if order.sequential or columns.varlen or not all(table.by_column(name) for name in columns.sources):
        return 0
    most = min(len(table) // TABLE_BLOCKS, len(table) if budget is None else budget // BUFFER_BLOCKS)
    return min(int(COLUMN_RUN * len(columns.sources) / columns.row_bytes), most)


def _request_rows(table: Table, order: Order, columns: Columns, budget: int | None, way: ReadStrategy) -> int:
    """Return the block rows worth one request to a remote store; 0 for local tables.

    The latency of a request costs as much as the bytes that its share of the connection could have carried. Columns
    are requested separately, see `_column_runs`.
    """
    if not way.ahead or getattr(order, "block", 0) is not None or order.cuts_into != "block":
        return 0
    size = max(REQUEST, COLUMN_REQUEST * len(columns.sources))
    if order.sequential:
        return min(int(2 * size / columns.row_bytes), len(table) if budget is None else budget // 8)
    most = min(len(table) // REMOTE_TABLE_BLOCKS, len(table) if budget is None else budget // REMOTE_BUFFER_BLOCKS)
    return min(int(size / columns.row_bytes), most)


def cut(table: Table, order: Order, rows: int, columns: Sequence[str], *, even: bool = False) -> Blocks:
    """Cut a table into an order's units: blocks of about ``rows`` rows, single rows, or runs of pages.

    ``even`` ignores the table's own units: encoded rows are read from a spill file.
    """
    if order.cuts_into == "row":
        return Blocks(len(table), even=1)
    if even:
        return Blocks(len(table), even=max(1, rows))
    return Blocks.of(table.run_cuts(columns, order.run_bytes) if by_pages(order) else table.cuts(rows))


def by_pages(order: Order) -> bool:
    """Return whether an order's blocks are runs of pages, which depend on the columns that are read."""
    return order.cuts_into == "page"


def _smallest_budget(attempt: Callable[[int], object], limit: int) -> str | None:
    """Return nearly the smallest budget that works, or None if none does."""

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
    while high > low * SUGGESTION_RATIO and high > low + 1:
        middle = (low + high) / 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return _text(high)


def _text(size: float) -> str:
    return format_bytes(size).replace(" ", "")


def sketched(table: Table, order: Order, blocks: Blocks, look: Sketch = sketch) -> Blocks:
    """Add to blocks the sketch that an order balances them by.

    The last sketch of a table is cached: workers forked later, and the next order over the same blocks, do not read
    the column again.
    """
    if order.sketch_column is None:
        return blocks
    cuts = even_cuts(blocks.rows, blocks.even) if blocks.cuts is None else blocks.cuts
    return replace(blocks, sketch=_cached_sketch(table, cuts, order.sketch_column, look))


def _cached_sketch(table: Table, cuts: IntArray, column: str, look: Sketch) -> npt.NDArray[Any]:
    """Return the blocks' sketch of a column, from the cache of each table's last sketch if it matches."""
    function = look if column == CONTENT else None
    key = column, function, len(cuts), blake2b(np.ascontiguousarray(cuts).data).digest()
    try:
        cached_key, sketch = _sketches.get(table, (None, None))
    except TypeError:  # a composed table that is not hashable
        return look(table, cuts, column)
    if sketch is None or cached_key != key:
        sketch = look(table, cuts, column)
        _sketches[table] = key, sketch
    return sketch
