"""Runs an order over a table: reads the rows of each step into slots ahead of their visit."""

import os
import queue
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, BudgetTooSmall
from corgipile.loader.fill import Filler, filler
from corgipile.loader.store import SlotArray, Store, fields_of
from corgipile.orders import Blocks, FullShuffle, Key, Order, Riffle, Step, named
from corgipile.sizes import Size, format_bytes, parse_bytes
from corgipile.tables import open as open_table
from corgipile.tables.base import IntArray, Table, check_columns, even_cuts
from corgipile.tables.pages import run_cuts
from corgipile.tables.sketch import Sketch, row_bytes, sketch

__all__ = ["DEFAULT_MEMORY", "Feeder"]

DEFAULT_MEMORY = 64 << 20
MOST_PREFETCH = 64
ENDED = "this iteration has ended: another one of the same loader began, or it was closed"
FAR_BYTES = 4 << 20  # announced to the device ahead of their reading


class Feeder:
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
        rank: This process of ``world``.
        world: Number of processes that share the table.
        disjoint: Let fewer than ``world`` rows go unvisited, where they do not divide, rather than visit some twice.

    Raises:
        BudgetTooSmall: The memory does not hold the smallest buffer that works; says what would.

    Example:
        >>> import pyarrow as pa
        >>> from corgipile.tables import MemoryTable
        >>> table = MemoryTable(pa.table({"x": pa.array(range(10), pa.int32())}))
        >>> with Feeder(table, order="riffle", memory=None) as feeder:
        ...     seen = [feeder.store.dense("x")[visit].tolist() for visit in feeder.epoch(0)]
        >>> sorted(sum(seen, []))
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    def __init__(
        self,
        table: Any,
        order: Order | str = "riffle",
        memory: Size | None = None,
        columns: Sequence[str] | None = None,
        *,
        casts: Mapping[str, npt.DTypeLike] | None = None,
        pack: Mapping[str, Sequence[str]] | None = None,
        widths: Mapping[str, int] | None = None,
        seed: int = 0,
        prefetch: int = 1,
        rank: int = 0,
        world: int = 1,
        disjoint: bool = False,
    ) -> None:
        _check(columns, seed, prefetch, rank, world)
        table = open_table(table)
        pack = pack or {}
        names = list(columns) if columns is not None else list(table.schema.names)
        sources = [source for name in names for source in pack.get(name, (name,))]
        check_columns(table.schema, sources)
        fields, held = fields_of(table.schema, names, casts or {}, pack, widths or {})
        self.table, self.seed, self.rank, self.world = table, int(seed), rank, world
        self._closed, self._disjoint = False, disjoint
        fixed = {source for field in fields for source in field.sources}
        loose = [source for source in sources if source not in fixed]
        self.row_bytes = sum(f.row_bytes for f in fields) + (row_bytes(table, loose) if loose else 0.0) or 1.0
        wanted = replace(named(order), ahead=int(prefetch))  # type: ignore[type-var]
        self.order, self.blocks = _fit(table, sources, wanted, memory, self.row_bytes, whole=bool(held))
        self.slots = max(1, self.order.slots(self.blocks))
        if self.slots >= 1 << 31:
            raise BadArgument(f"a buffer has at most 2^31 - 1 rows, got {self.slots}: give a smaller memory or buffer")
        self.store = Store(self.slots, fields, held)
        self._run: _Run | None = None
        self._filler: Filler = filler(table, self.store, sources, sequential=self.order.name == "no_shuffle")

    @property
    def buffer_bytes(self) -> int:
        """Return the bytes of rows in memory at most, read-ahead included."""
        return int(self.order.resident(self.blocks) * self.row_bytes)

    @property
    def bytes_read(self) -> int:
        """Return the bytes read so far."""
        return self._filler.bytes_read

    def key(self, epoch: int) -> Key:
        """Return the key of an epoch."""
        return Key(self.seed, epoch, self.rank, self.world, self._disjoint)

    def visits(self, epoch: int) -> int:
        """Return the rows that an epoch visits."""
        return self.order.visits(self.blocks, self.key(epoch))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[SlotArray]:
        """Yield the slots each step visits; a yielded step's rows may be gone once the next is asked for.

        There is one buffer, so a new epoch ends one that is still under way.
        """
        if self._closed:
            raise BadArgument("this loader was closed; make a new one")
        if self._run is not None:
            self._run.stop()
        steps = self.order.steps(self.blocks, self.key(epoch), start)
        self._run = _Run(steps, self._filler, self.store, self.order, int(FAR_BYTES / self.row_bytes))
        return self._run.visits()

    def close(self) -> None:
        """Close files and reading threads."""
        self._closed = True
        if self._run is not None:
            self._run.stop()
        self._filler.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Run:
    """One pass, read ahead by one thread that ends with it; with ``ahead`` 0 there is none.

    Slots are reused: step i may be read once the visits up to step i - 1 - ahead are over, which credits count.
    """

    def __init__(self, steps: Iterator[Step], reader: Filler, store: Store, order: Order, far: int) -> None:
        self._steps, self._reader, self._store, self._order = steps, reader, store, order
        self._marks: list[int] = []
        self._far = far
        ahead = order.ahead
        self._credits = threading.Semaphore(ahead + 1)
        self._ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stopped, self._process = False, os.getpid()
        self._thread = threading.Thread(target=self._read, name="corgipile-reader", daemon=True) if ahead else None

    def _read(self) -> None:
        try:
            for step in self._announced():
                hurry = self._credits.acquire(blocking=False)  # else the consumer is the slower one
                if not hurry:
                    self._credits.acquire()
                if self._stopped:
                    return
                self._fill(step, hurry=hurry)
                self._ready.put(step.visit)
            self._ready.put(None)
        except BaseException as error:  # noqa: BLE001  # whatever it is, it belongs to the consumer
            self._ready.put(error)

    def _announced(self) -> Iterator[Step]:
        """Yield the steps, having told the reader of those that follow, as far as keeps a device busy."""
        coming: deque[Step] = deque()
        ahead = 0  # rows of the steps announced
        for step in self._steps:
            if coming:
                self._reader.soon(step)
                ahead += len(step.into)
            coming.append(step)
            while ahead > self._far:
                yield coming.popleft()
                ahead -= len(coming[0].into)
        yield from coming

    def _next(self) -> Any:
        if os.getpid() != self._process:
            raise BadArgument("this iteration began before the process was forked; begin one in the child")
        if self._stopped:
            raise BadArgument(ENDED)
        if self._thread is not None:
            item = self._ready.get()
            return BadArgument(ENDED) if self._stopped else item
        step = next(self._steps, None)
        if step is None:
            return None
        self._fill(step, hurry=True)
        return step.visit

    def _fill(self, step: Step, *, hurry: bool) -> None:
        if not self._store.held:
            self._reader.fill(step, hurry=hurry)
            return
        self._marks.append(self._store.held.mark())
        done = len(self._marks) - 1 - self._order.ahead if self._order.drains else 0
        self._store.held.release(step.into, self._marks[done] if done > 0 else 0)
        self._reader.fill(step, hurry=hurry)
        self._store.held.settle(self._order.ahead)

    def visits(self) -> Iterator[SlotArray]:
        if self._thread is not None:
            self._thread.start()
        try:
            while (item := self._next()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
                self._credits.release()
        finally:
            self.stop()

    def stop(self) -> None:
        """End the threads of this pass."""
        if self._stopped:
            return
        self._stopped = True
        self._credits.release()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()
        self._ready.put(None)  # whoever waits in another thread learns that it ended
        self._reader.rest()


def _check(columns: Sequence[str] | None, seed: int, prefetch: int, rank: int, world: int) -> None:
    if isinstance(columns, str) or (columns is not None and not len(columns)):
        raise BadArgument(f"columns must be a list of names, at least one, got {columns!r}")
    for name, value in (("seed", seed), ("prefetch", prefetch), ("rank", rank), ("world", world)):
        if not isinstance(value, (int, np.integer)):
            raise BadArgument(f"{name} must be a whole number, got {value!r}")
    if not 0 <= prefetch <= MOST_PREFETCH:
        raise BadArgument(f"prefetch must be 0 to {MOST_PREFETCH} steps, got {prefetch}")
    if not 0 <= rank < world:
        raise BadArgument(f"rank must be 0 to world - 1, got rank {rank} of world {world}")


def _fit(
    table: Table, sources: Sequence[str], order: Order, memory: Size | None, row_bytes: float, *, whole: bool
) -> tuple[Order, Blocks]:
    """Turn sizes into rows and cut the table; where its natural blocks are wider than asked for, fit again."""
    sized = getattr(order, "buffer", None) is not None
    limit = parse_bytes(memory) if memory is not None else None if sized else DEFAULT_MEMORY
    budget = int(limit / row_bytes) if limit is not None else None
    fitted = order.fit(len(table), row_bytes, budget, whole=whole)
    blocks = _cut(table, sources, fitted)
    if blocks.widest > fitted.block_rows:
        fitted = replace(order, block=blocks.widest).fit(len(table), row_bytes, budget, whole=whole)  # type: ignore[type-var]
    resident = fitted.resident(blocks)
    if budget is not None and resident > max(budget, 1):
        raise BudgetTooSmall(
            f"memory={memory!r} holds {budget} rows, but {fitted.name} over blocks of {blocks.widest} rows needs "
            f"{resident} ({format_bytes(resident * row_bytes)})"
        )
    if isinstance(fitted, Riffle) and fitted.balance is not None:
        blocks = replace(blocks, sketch=seriate(sketch(table, _cuts(blocks), fitted.balance)))
    return fitted, blocks


def _cut(table: Table, sources: Sequence[str], order: Order) -> Blocks:
    """Cut a table into the units of an order."""
    if not isinstance(order, FullShuffle) or order.unit == "block":
        return Blocks.of(table.cuts(order.block_rows))
    if order.unit == "row":
        return Blocks(len(table), even=1)
    return Blocks.of(run_cuts(table, sources, order.run_bytes))


def _cuts(blocks: Blocks) -> IntArray:
    return even_cuts(blocks.rows, blocks.even) if blocks.cuts is None else blocks.cuts


def seriate(blocks: Sketch) -> npt.NDArray[np.float64]:
    """Return one number a block by which alike blocks become neighbours (RIFFLE, balanced blocks, step 1).

    Means and shares of one of two classes are such numbers; of more classes, the dominant one and its share.

    Example:
        >>> seriate(Sketch(np.array([[0.9, 0.1, 0.0], [0.2, 0.2, 0.6]]), np.arange(3.0))).tolist()
        [0.45, 2.3]
    """
    if not blocks.values.size:
        return np.zeros(len(blocks.values))
    if blocks.classes is None or blocks.values.shape[1] <= 2:
        return np.ascontiguousarray(blocks.values[:, -1])
    dominant = blocks.values.argmax(axis=1)
    return np.asarray(dominant + blocks.values.max(axis=1) / 2, np.float64)
