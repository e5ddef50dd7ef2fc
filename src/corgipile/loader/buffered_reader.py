"""Runs an order over a table: reads the rows of each step into slots ahead of their visit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt

from corgipile.errors import BadArgument
from corgipile.loader.budget import COLUMN_RUN, Sketch, columns_of, first_epoch_of, fit, found_alone, limit_of, sketched
from corgipile.loader.buffer import Buffer, SlotArray
from corgipile.loader.cached_rows import CachedRows, read_all, small
from corgipile.loader.content import Content, Embed
from corgipile.loader.default_order import LABEL, Reading, chosen
from corgipile.loader.materialize import worth_bringing
from corgipile.loader.mixed import MixReader
from corgipile.loader.prefetch import Prefetch, begin
from corgipile.loader.readers import RowReader, row_reader
from corgipile.loader.single_rows import bring_near
from corgipile.loader.stats import Progress
from corgipile.orders import GlobalBatches, Key, Order, Shard, visited_rows
from corgipile.orders.riffle import CONTENT
from corgipile.sizes import Size, to_rows, whole
from corgipile.tables import MemoryTable
from corgipile.tables import open as open_table
from corgipile.tables.columns import by_column
from corgipile.tables.encoded import unpack_shared, use_spilled
from corgipile.tables.io.arriving import within
from corgipile.tables.methods import Views
from corgipile.tables.sketch import sketch
from corgipile.tables.table import IntArray, Table

__all__ = ["MOST_PREFETCH", "BufferedReader"]

MOST_PREFETCH = 64
ALL = Shard()
WIDE = 32 << 10  # bytes of a row that is read as fast alone as among its neighbours


class BufferedReader:
    """Joins one table and one order; the buffer is allocated once and serves every epoch.

    Args:
        table: What to read: a table, or what `corgipile.open` takes.
        order: An order or its name.
        memory: Bytes for rows in memory, read-ahead included; None: what the order's buffer needs, or 64 MB.
        columns: Columns to read; None for all.
        casts: Number types to convert columns to, float32 or float64, by name.
        pack: Columns made of several scalar columns side by side, by name.
        widths: List columns that are dense, with their row length, by name.
        seed: Seed of all epochs.
        prefetch: Steps read ahead; 0 reads in the consumer's thread.
        shard: Whose part of the table it is; workers of a rank divide its memory, and the order's buffer.
        apart: Make no buffer where rows are so wide that each is better read when it is its turn: `rows` says which.
        update: Rows that a learner takes one step for: balance by content is decided for so many.
        keep: Read rows once and keep them, each in the slot of its number, where they are few enough.
        label: The column that orders balance by unless they name one; None: "label".
        sketch: What describes blocks by a column for that, see `corgipile.tables.sketch`.
        embed: What makes numbers of rows for balance by content, see `corgipile.loader.content`.

    Attributes:
        columns: What is read.
        asked: The order, its sizes as they were given.
        fitted: The same with sizes in rows, and the blocks it runs over.
        limit: Bytes that this worker may hold, None where the buffer's size was given instead.
        apart: Whether there is no buffer.

    Raises:
        BudgetTooSmall: The memory does not hold the smallest buffer that works; says what would.

    Example:
        >>> import pyarrow as pa
        >>> from corgipile.tables import MemoryTable
        >>> table = MemoryTable(pa.table({"x": pa.array(range(10), pa.int32())}))
        >>> with BufferedReader(table, order="riffle", memory=None) as feeder:
        ...     seen = [feeder.buffer.dense("x")[visit].tolist() for visit in feeder.epoch(0)]
        >>> sorted(sum(seen, []))
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    def __init__(
        self,
        table: Any,
        *,
        order: Order | str = "auto",
        memory: Size | None = None,
        columns: Sequence[str] | None = None,
        casts: Mapping[str, npt.DTypeLike] | None = None,
        pack: Mapping[str, Sequence[str]] | None = None,
        widths: Mapping[str, int] | None = None,
        seed: int = 0,
        prefetch: int = 1,
        shard: Shard = ALL,
        apart: bool = False,
        update: int = 1,
        keep: bool = False,
        label: str | None = None,
        sketch: Sketch = sketch,
        embed: Embed | None = None,
    ) -> None:
        seed, prefetch = whole(seed, "seed"), whole(prefetch, "prefetch", 0, MOST_PREFETCH)
        table = table if isinstance(table, Views) else open_table(table)
        self.columns = found = columns_of(table, columns, casts, pack, widths)
        self.table: Table = table
        self.seed, self.shard = seed, shard
        self._closed = False
        self._key = Key(self.seed, 0, *shard)
        self.row_bytes = found.row_bytes
        reading = Reading(found, memory, update) if embed is None else None
        wanted = replace(chosen(order, table, label, shard.batch, reading), ahead=prefetch)  # type: ignore[type-var]
        if isinstance(wanted, GlobalBatches):
            wanted = replace(wanted, parts=(shard.world, shard.workers))
        size = limit_of(wanted, memory, len(table) * found.row_bytes)
        self.limit = None if size is None else size // shard.workers
        self.asked = wanted
        self.fitted = fit(table, wanted, memory, found, shard.workers)
        self.order, blocks, *_, self._way = self.fitted
        near = keep and shard == ALL and not self._way.ahead
        self._kept = near and small(len(table), found.row_bytes, self.limit)
        self._filled = False
        if not self._kept and worth_bringing(table, self.order, found.sources, self._way):
            with within(self.limit):
                unpack_shared(table, found.sources)
        if embed is not None and self.order.sketch_column != CONTENT:
            raise BadArgument('sketch= describes blocks for balance="content": give order=Riffle(balance="content")')
        content = Content(tuple(found.sources), LABEL if label is None else label, embed, self._way.spilled, sketch)
        if first_epoch_of(self.order) is not None:
            content = content.waiting(table)
        self._passing = content.passing
        self.blocks = sketched(table, self.order, blocks, content)
        self.fitted = self.fitted._replace(blocks=self.blocks)
        self.slots = max(1, len(table) if self._kept else self.order.slots(self.blocks))
        if self.slots >= 1 << 31:
            raise BadArgument(f"a buffer has at most 2^31 - 1 rows, got {self.slots}: give a smaller memory or buffer")
        self._run: Prefetch | None = None
        self.bytes_apart = 0
        # A store takes as long for a row as for many, so there they are read together.
        # Each column that lies by itself is read by itself.
        lying = sum(by_column(table, name) for name in found.sources) if found.row_bytes >= WIDE and apart else 0
        self._wide = apart and found.row_bytes >= max(WIDE, COLUMN_RUN * lying) and not self._way.ahead
        self.apart = self._wide and found_alone(table, found)
        self._row_reader: RowReader | None = None
        if not self.apart:
            self.buffer = self._new_buffer()

    def _new_buffer(self) -> Buffer:
        limit = None if isinstance(self.table, MemoryTable) else self.limit  # its rows are in memory anyhow
        return Buffer(self.slots, self.columns.fields, self.columns.varlen, limit, self.shard.workers)

    @property
    def source(self) -> Table:
        """Return the table that is read: the same rows, unpacked if they must be, when it is first asked."""
        table: Table = self.table
        if not self._way.spilled or self._kept:
            return use_spilled(table, self.columns.sources) if self._way.ahead else table
        with within(self.limit):
            return unpack_shared(table, self.columns.sources)

    @property
    def coarser(self) -> str | None:
        """Say that blocks are larger than was asked for, where those of the table can be no smaller; None elsewhere."""
        asked = getattr(self.asked, "block", None)
        if asked is None or self.order.cuts_into != "block":
            return None
        rows, widest = to_rows(asked, len(self.table), self.row_bytes, "block"), self.blocks.widest
        if widest <= max(1, rows):
            return None
        return f"block is {asked!r}, {rows} rows; blocks are of {widest}, the units in which {self.table!r} is encoded"

    def _reader(self) -> RowReader:
        """Return what reads rows into slots."""
        if self._row_reader is None:
            sources, sequential = self.columns.sources, self.order.sequential
            with within(self.limit):
                bring_near(self.table, self.order, self.blocks, self.row_bytes, self._way)
            self._row_reader = row_reader(
                self.source, self.buffer, sources, self.buffer_bytes, sequential=sequential, ahead=self._way.ahead
            )
            if not isinstance(self._row_reader, MixReader):  # whose rows have the numbers of their own tables
                self.buffer.passing = self._passing
        return self._row_reader

    @property
    def buffer_bytes(self) -> int:
        """Return the bytes of rows in memory at most, read-ahead included."""
        return int((len(self.table) if self._kept else self.order.resident(self.blocks)) * self.row_bytes)

    def facts(self) -> dict[str, Any]:
        """Return what a model keeps of the order that it was trained in."""
        return {"order": self.order.name, "balance": self.order.sketch_column, "buffer_bytes": self.buffer_bytes}

    @property
    def bytes_read(self) -> int:
        """Return the bytes read so far."""
        return self.bytes_apart + (self._row_reader.bytes_read if self._row_reader else 0)

    @property
    def progress(self) -> Progress:
        """Return how far the latest pass is."""
        return self._run.progress() if self._run else Progress()

    def key(self, epoch: int) -> Key:
        """Return the key of an epoch."""
        return self._key._replace(epoch=epoch)

    def visits(self, epoch: int) -> int:
        """Return the rows that an epoch visits."""
        return self.order.visits(self.blocks, self.key(epoch))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[SlotArray]:
        """Yield the slots each step visits; a yielded step's rows may be gone once the next is asked for.

        There is one buffer, so a new epoch ends one that is still under way.
        """
        self._check_open()
        if self.apart:
            raise BadArgument("this feeder has no buffer: its rows are read one by one")
        self.stop()
        self.blocks.sketch_of(epoch)  # reads what it must in this thread
        if self.kept():
            self._run = CachedRows(self.rows(epoch, start))
        else:
            key = self.key(epoch)
            self._run = begin(self.order, self.blocks, key, start, self.buffer, self._reader(), self.row_bytes)
        return self._run.visits()

    def kept(self) -> bool:
        """Say whether all rows stay in memory, each in the slot of its number; they are read now, if nobody has."""
        if self._kept and not self._filled:
            self._keep()
        return self._kept

    def _keep(self) -> None:
        """Read all rows; where they take more than those looked at let think, none is kept."""
        reader = self._reader()
        self._kept = self._filled = read_all(reader, self.table, self.buffer, self.limit)
        reader.idle()
        if self._kept:
            return
        self.bytes_apart, self._row_reader = self.bytes_read, None
        reader.close()
        self.slots = max(1, self.order.slots(self.blocks))
        self.buffer = self._new_buffer()

    def rows(self, epoch: int, start: int = 0) -> Iterator[IntArray]:
        """Yield the numbers of the rows that each step visits; nothing is read."""
        self._check_open()
        return visited_rows(self.order, self.blocks, self.key(epoch), start)

    def _check_open(self) -> None:
        if self._closed:
            raise BadArgument("this loader was closed; make a new one")

    def part_wide(self) -> bool:
        """Give up the buffer if rows are wide and, unpacked now, each is found alone; say whether it was given up."""
        found = not self.apart and self._wide and self._way.spilled and found_alone(self.source, self.columns)
        if found:
            self.give_up_buffer()
        return found

    def give_up_buffer(self) -> None:
        """Let go of the buffer and read rows one by one from now on."""
        self.close()
        self.bytes_apart = self.bytes_read
        self._closed, self.apart, self._row_reader, self._run = False, True, None, None
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
