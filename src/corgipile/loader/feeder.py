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

from corgipile.errors import BadArgument
from corgipile.loader.fill import Filler, filler
from corgipile.loader.fitting import columns_of, fit, sketched
from corgipile.loader.store import SlotArray, Store
from corgipile.orders import Key, Order, Step, named
from corgipile.sizes import Size
from corgipile.tables import open as open_table

__all__ = ["Feeder"]

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
        worker: This worker of the rank's ``workers``.
        workers: Workers that share the rank's rows and divide its memory, and the order's buffer.
        batch: Rows that workers are dealt at a time.

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
        worker: int = 0,
        workers: int = 1,
        batch: int = 1,
    ) -> None:
        _check(seed, prefetch, rank, world)
        table = open_table(table)
        found = columns_of(table, columns, casts, pack, widths)
        self.table, self.seed, self.rank, self.world = table, int(seed), rank, world
        self._closed = False
        self._key = Key(self.seed, 0, rank, world, disjoint, worker, workers, batch)
        self.row_bytes = found.row_bytes
        wanted = replace(named(order), ahead=int(prefetch))  # type: ignore[type-var]
        self.order, blocks, *_ = fit(table, wanted, memory, found, workers)
        self.blocks = sketched(table, self.order, blocks)
        self.slots = max(1, self.order.slots(self.blocks))
        if self.slots >= 1 << 31:
            raise BadArgument(f"a buffer has at most 2^31 - 1 rows, got {self.slots}: give a smaller memory or buffer")
        self.store = Store(self.slots, found.fields, found.held)
        self._run: _Run | None = None
        self._filler: Filler = filler(table, self.store, found.sources, sequential=self.order.name == "no_shuffle")

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
        return self._key._replace(epoch=epoch)

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


def _check(seed: int, prefetch: int, rank: int, world: int) -> None:
    for name, value in (("seed", seed), ("prefetch", prefetch), ("rank", rank), ("world", world)):
        if not isinstance(value, (int, np.integer)):
            raise BadArgument(f"{name} must be a whole number, got {value!r}")
    if not 0 <= prefetch <= MOST_PREFETCH:
        raise BadArgument(f"prefetch must be 0 to {MOST_PREFETCH} steps, got {prefetch}")
    if not 0 <= rank < world:
        raise BadArgument(f"rank must be 0 to world - 1, got rank {rank} of world {world}")
