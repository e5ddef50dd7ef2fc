"""Runs an order over a table: reads each step's rows into slots ahead of their visits."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from corgipile.errors import BadArgument, WriteFailed
from corgipile.features.hashed import PAIR, spill_hashed
from corgipile.loader.array_pool import Make
from corgipile.loader.budget import COLUMN_RUN, Sketch, fit, limit_of, readable_alone, sketched
from corgipile.loader.buffer import Buffer
from corgipile.loader.cached_rows import CachedRows, fits_cache, read_all
from corgipile.loader.content import Content, Embed
from corgipile.loader.default_order import LABEL, chosen
from corgipile.loader.materialize import bring, should_materialize, unpacks_soon
from corgipile.loader.prefetch import Prefetch, begin
from corgipile.loader.readers import RowReader, row_reader
from corgipile.loader.selection import Selection
from corgipile.loader.single_rows import stage_locally
from corgipile.loader.staging import Stage
from corgipile.loader.stats import Progress
from corgipile.loader.table_reader import TableReader
from corgipile.orders import GlobalBatches, Key, Order, Shard, visited_rows
from corgipile.orders.riffle import CONTENT
from corgipile.sizes import Size, to_rows
from corgipile.tables import MemoryTable
from corgipile.tables import open as open_table
from corgipile.tables.encoded import unpack_shared, use_spilled
from corgipile.tables.sketch import sketch
from corgipile.tables.table import IntArray, Table

__all__ = ["BufferedReader"]

ALL, ALL_COLUMNS = Shard(), Selection()
WIDE = 32 << 10  # row bytes from which a row is read as fast alone as with its neighbours


class BufferedReader:
    """Reads one table in one order; every epoch uses the same buffer.

    Args:
        table: A table, or a source that `corgipile.open` takes.
        selection: Columns to read, and their form. Orders balance by its label, or by a column "label".
        order: An order or its name.
        memory: Bytes for rows in memory, read-ahead included; None: the size of the order's buffer, or 64 MB.
        seed: Seed of all epochs.
        prefetch: Steps read ahead; 0 reads in the consumer's thread.
        shard: Part of the table to read; a rank's workers divide its memory and the order's buffer.
        unbuffered: Make no buffer if rows are wide enough to be read one by one; `rows` then yields row numbers.
        update: Rows per step of a learner: decides whether blocks are balanced by content.
        keep: Cache the rows if they are few, each in the slot of its number.
        sketch: Describes blocks by a column, see `corgipile.tables.sketch`.
        embed: Makes numbers of rows for balance by content, see `corgipile.loader.content`.

    Attributes:
        columns: Columns that are read.
        requested_order: The order with its sizes as given.
        fitted: The order with sizes in rows, and its blocks.
        limit: Largest number of bytes of this worker; None if the order's buffer size decides.
        unbuffered: Whether rows are read one by one, without a buffer.

    Raises:
        BudgetTooSmall: The memory does not hold the smallest buffer; the message names a budget that works.

    Example:
        >>> import pyarrow as pa
        >>> from corgipile.tables import MemoryTable
        >>> table = MemoryTable(pa.table({"x": pa.array(range(10), pa.int32())}))
        >>> with BufferedReader(table, order="riffle", memory=None) as reader:
        ...     seen = [reader.buffer.dense("x")[visit].tolist() for visit in reader.epoch(0)]
        >>> sorted(sum(seen, []))
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    def __init__(
        self,
        table: Any,
        selection: Selection = ALL_COLUMNS,
        *,
        order: Order | str = "auto",
        memory: Size | None = None,
        seed: int = 0,
        prefetch: int = 1,
        shard: Shard = ALL,
        unbuffered: bool = False,
        update: int = 1,
        keep: bool = False,
        sketch: Sketch = sketch,
        embed: Embed | None = None,
    ) -> None:
        table = table if isinstance(table, Table) else open_table(table)
        self.columns = layout = selection.columns_in(table)
        self.table: Table = table
        self.seed, self.shard = seed, shard
        self._closed = False
        self._stage: Stage | None = None
        self._passes = 0
        self._key = Key(self.seed, 0, *shard)
        self.row_bytes = layout.row_bytes
        label, read = selection.label, layout if embed is None else None
        resolved = replace(chosen(order, table, label, shard.batch, read, memory, update), ahead=prefetch)  # type: ignore[type-var]
        if isinstance(resolved, GlobalBatches):
            resolved = replace(resolved, parts=(shard.world, shard.workers))
        size = limit_of(resolved, memory, len(table) * layout.row_bytes)
        self.limit = None if size is None else size // shard.workers
        self.requested_order = resolved
        self.fitted = fit(table, resolved, memory, layout, shard.workers)
        self.order, blocks, *_, self._way = self.fitted
        near = keep and shard == ALL and not self._way.ahead
        self._kept = near and fits_cache(len(table), layout.row_bytes, self.limit)
        self._filled = False
        if not self._kept and should_materialize(table, self.order, layout.sources, self._way):
            unpack_shared(table, layout.sources, self.limit)
        if embed is not None and self.order.sketch_column != CONTENT:
            raise BadArgument('sketch= describes blocks for balance="content": give order=Riffle(balance="content")')
        content = Content(tuple(layout.sources), LABEL if label is None else label, embed, self._way.spilled, sketch)
        self.blocks = sketched(table, self.order, blocks, content)
        self.fitted = self.fitted._replace(blocks=self.blocks)
        self.slots = max(1, len(table) if self._kept else self.order.slots(self.blocks))
        if self.slots >= 1 << 31:
            raise BadArgument(f"a buffer has at most 2^31 - 1 rows, got {self.slots}: lower memory or the buffer")
        self._run: Prefetch | None = None
        self.unbuffered_bytes = 0
        # A request to a store costs as much for one row as for many, so remote rows are read in blocks.
        # Each column of a columnar table is read by its own request.
        requests = (
            sum(table.by_column(name) for name in layout.sources) if layout.row_bytes >= WIDE and unbuffered else 0
        )
        self._wide = unbuffered and layout.row_bytes >= max(WIDE, COLUMN_RUN * requests) and not self._way.ahead
        self.unbuffered = self._wide and readable_alone(table, layout)
        self._row_reader: RowReader | None = None
        if not self.unbuffered:
            self.buffer = self._new_buffer()

    def _new_buffer(self) -> Buffer:
        limit = None if isinstance(self.table, MemoryTable) else self.limit  # its rows are in memory already
        return Buffer(self.slots, self.columns.fields, self.columns.varlen, limit, self.shard.workers)

    def open_source(self) -> Table:
        """Return the table that is read; the first call writes a spill file if encoded rows must be unpacked."""
        table: Table = self.table
        if not self._way.spilled or self._kept:
            if self.order.sequential and unpacks_soon(self._way):
                bring(table, self.columns.sources, self.limit)
            return use_spilled(table, self.columns.sources)
        return unpack_shared(table, self.columns.sources, self.limit)

    @property
    def coarser(self) -> str | None:
        """Return a warning if the table's smallest blocks are larger than the requested ones, else None."""
        block = getattr(self.requested_order, "block", None)
        if block is None or self.order.cuts_into != "block":
            return None
        rows, widest = to_rows(block, len(self.table), self.row_bytes, "block"), self.blocks.widest
        if widest <= max(1, rows):
            return None
        return f"block is {block!r}, {rows} rows; blocks are of {widest}, the units in which {self.table!r} is encoded"

    def _reader(self) -> RowReader:
        if self._row_reader is None:
            sources, sequential = self.columns.sources, self.order.sequential
            stage_locally(self.table, self.order, self.blocks, self.row_bytes, self._way, self.limit)
            source, ahead = self.open_source(), self._way.ahead
            self._row_reader = row_reader(
                source, self.buffer, sources, self.buffer_bytes, sequential=sequential, ahead=ahead
            )
        return self._row_reader

    @property
    def buffer_bytes(self) -> int:
        """Return the largest number of bytes of rows in memory, read-ahead included."""
        return int((len(self.table) if self._kept else self.order.resident(self.blocks)) * self.row_bytes)

    def facts(self) -> dict[str, Any]:
        """Return the order's properties that a trained model stores."""
        return {"order": self.order.name, "balance": self.order.sketch_column, "buffer_bytes": self.buffer_bytes}

    @property
    def bytes_read(self) -> int:
        """Return the bytes read so far."""
        return self.unbuffered_bytes + (self._row_reader.bytes_read if self._row_reader else 0)

    @property
    def progress(self) -> Progress:
        """Return the progress of the latest pass."""
        return self._run.progress() if self._run else Progress()

    def key(self, epoch: int) -> Key:
        """Return the key of an epoch."""
        return self._key._replace(epoch=epoch)

    def visits(self, epoch: int) -> int:
        """Return the rows that an epoch visits."""
        return self.order.visits(self.blocks, self.key(epoch))

    def stage(self, stage: Stage, make: Make) -> Buffer:
        """Replace the buffer by staging memory, from which a device takes rows; `epoch` then yields pieces."""
        self.stop()
        self._stage, self._row_reader = stage, None
        self.buffer = Buffer(stage.room * stage.places, self.columns.fields, {}, make=make)
        return self.buffer

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """Yield the slots of each step; the next step may overwrite a yielded step's rows.

        The only buffer is shared: a new epoch ends a running one.
        """
        self._check_open()
        if self.unbuffered:
            raise BadArgument("this reader has no buffer: it reads rows one by one")
        self.stop()
        if self.all_in_memory():
            self._run = CachedRows(self.rows(epoch, start))
        else:
            key = self.key(epoch)
            reader, stage = self._reader(), self._stage
            if self._passes == 1 and isinstance(reader, TableReader) and not set(PAIR).isdisjoint(self.columns.sources):
                reader = self._spill_hashed(reader)
            self._passes += 1
            self._run = begin(self.order, self.blocks, key, start, self.buffer, reader, self.row_bytes, stage)
        return self._run.visits()

    def _spill_hashed(self, reader: RowReader) -> RowReader:
        """Return the reader of a second pass: hashed rows are kept in a spill file, since hashing takes longest."""
        with contextlib.suppress(WriteFailed):
            source = spill_hashed(self.table, self.columns.sources)
            if source is not self.table:
                self.unbuffered_bytes = self.bytes_read
                reader.close()
                sources, sequential = self.columns.sources, self.order.sequential
                reader = row_reader(
                    source, self.buffer, sources, self.buffer_bytes, sequential=sequential, ahead=self._way.ahead
                )
                self._row_reader = reader
        return reader

    def all_in_memory(self) -> bool:
        """Return whether all rows stay in memory, each in the slot of its number; the first call reads them."""
        if self._kept and not self._filled:
            self._keep()
        return self._kept

    def _keep(self) -> None:
        """Read all rows; fall back to the buffer if they take more memory than the sampled rows suggested."""
        reader = self._reader()
        self._kept = self._filled = read_all(reader, self.table, self.buffer, self.limit)
        reader.idle()
        if self._kept:
            return
        self.unbuffered_bytes, self._row_reader = self.bytes_read, None
        reader.close()
        self.slots = max(1, self.order.slots(self.blocks))
        self.buffer = self._new_buffer()

    def rows(self, epoch: int, start: int = 0) -> Iterator[IntArray]:
        """Yield the row numbers of each step without reading rows."""
        self._check_open()
        return visited_rows(self.order, self.blocks, self.key(epoch), start)

    def _check_open(self) -> None:
        if self._closed:
            raise BadArgument("this loader was closed; make a new one")

    def drop_buffer_if_wide(self) -> bool:
        """Drop the buffer if rows are wide and, once unpacked, readable one by one; return whether it was dropped."""
        if self.unbuffered or not (self._wide and self._way.spilled):
            return False
        if drop := readable_alone(self.open_source(), self.columns):
            self.drop_buffer()
        return drop

    def drop_buffer(self) -> None:
        """Drop the buffer and read rows one by one from now on."""
        self.close()
        self.unbuffered_bytes = self.bytes_read
        self._closed, self.unbuffered, self._row_reader, self._run = False, True, None, None
        del self.buffer

    def stop(self) -> None:
        """Stop the reading threads."""
        if self._run is not None:
            self._run.stop()

    def close(self) -> None:
        """Close files and reading threads."""
        self._closed = True
        self.stop()
        if self._row_reader is not None:
            self._row_reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
