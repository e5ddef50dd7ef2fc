"""One pass over a table: the rows of each step are read into slots ahead of their visit.

Slots are reused: step i may be read once the visits up to step i - 1 - ahead are over.
"""

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from corgipile import _kernel
from corgipile.errors import BadArgument, BudgetTooSmall
from corgipile.loader.buffer import Buffer, SlotArray
from corgipile.loader.in_place import SHORT_RUNS, LayoutReader
from corgipile.loader.readers import RowReader
from corgipile.loader.shutdown import stop_at_exit
from corgipile.loader.stats import Progress
from corgipile.orders import Blocks, Key, Order, Step
from corgipile.orders.planned import Planned
from corgipile.sizes import format_bytes

__all__ = ["Overfull", "Prefetch", "begin"]

ENDED = "this iteration has ended: another one of the same loader or dataset began, or it was closed"
FORKED = "this iteration began before the process was forked; begin one in the child"
FAR_BYTES = 4 << 20  # announced to the device ahead of their reading: of rows, and of the steps they wait in
PLANNED_ROW = 12  # bytes of a row in a step of the kernel: where it goes, its place in the sweep, its visit


class Overfull(BudgetTooSmall):  # only reading tells: the order was fitted to some rows of the table
    """The rows that have to wait together do not fit the budget."""

    @classmethod
    def of(cls, needed: int, limit: int) -> "Overfull":
        """Make the error."""
        return cls(
            f"rows that have to wait together take {format_bytes(needed)}, memory={limit} was asked for: rows are "
            "longer here than at the beginning, the middle and the end of the table; give "
            f"memory={format_bytes(needed * 1.25).replace(' ', '')!r} or a smaller block and buffer"
        )


class Prefetch(Protocol):
    """One pass, with its threads."""

    def visits(self) -> Iterator[SlotArray]:
        """Yield the slots each step visits."""

    def progress(self) -> Progress:
        """Return how far it is, from any thread; after `stop`, how far it was."""

    def stop(self) -> None:
        """End the threads of this pass."""


def begin(
    order: Order, blocks: Blocks, key: Key, start: int, buffer: Buffer, row_reader: RowReader, row_bytes: float
) -> Prefetch:
    """Prepare one pass: in the kernel where it makes the steps and reads the rows, else by a Python thread."""
    far = getattr(row_reader, "ahead", 0) or FAR_BYTES
    planned = order if isinstance(order, Planned) and type(order).steps is Planned.steps else None
    if planned and isinstance(row_reader, LayoutReader) and not buffer.varlen and row_reader.hold():
        return KernelPrefetch(planned, blocks, key, start, row_reader, int(far / (row_bytes + PLANNED_ROW)))
    return StepPrefetch(order.steps(blocks, key, start), row_reader, buffer, order, far, row_bytes)


class KernelPrefetch:
    """One pass in the kernel, read ahead by one thread of its own; with ``ahead`` 0 there is none."""

    def __init__(
        self, order: Planned, blocks: Blocks, key: Key, start: int, row_reader: LayoutReader, far: int
    ) -> None:
        self._pass, self._row_reader = (order, blocks, key, start), row_reader
        self._far = far if blocks.rows >= SHORT_RUNS * blocks.count else 0
        self._run: object | None = None
        self._waited, self._reader_waited = 0.0, 0.0
        self._stopped, self._process = False, os.getpid()

    def _next(self) -> SlotArray | None:
        if os.getpid() != self._process:
            raise BadArgument(FORKED)
        if self._run is None:
            raise BadArgument(ENDED)
        since = time.perf_counter()
        visit = _kernel.run_next(self._run)
        self._waited += time.perf_counter() - since
        if visit is False or self._stopped:
            raise BadArgument(ENDED)
        if isinstance(visit, tuple):
            raise self._row_reader.failure(*visit)
        return None if visit is None else np.frombuffer(visit, np.int32)

    def visits(self) -> Iterator[SlotArray]:
        """Yield the slots each step visits."""
        if not self._stopped:
            order, blocks, key, start = self._pass
            reader = self._row_reader.reader(short=not self._far)
            self._run = _kernel.run_new(order.plan(blocks, key, start), reader, self._far)
        try:
            while (visit := self._next()) is not None:
                yield visit
        finally:
            self.stop()

    def progress(self) -> Progress:
        """Return how far it is."""
        run = self._run
        if run is None:
            return Progress(self._waited, self._reader_waited)
        ahead, waited = _kernel.run_look(run)
        return Progress(self._waited, waited / 1e9, ahead)

    def stop(self) -> None:
        """End the threads of this pass."""
        run, self._run = self._run, None
        if self._stopped:
            return
        self._stopped = True
        if run is not None:
            _kernel.run_stop(run)
            self._reader_waited = _kernel.run_look(run)[1] / 1e9
        del run
        self._row_reader.idle()


class StepPrefetch:
    """One pass of any order and reader, read ahead by one Python thread; credits count the visits that are over."""

    def __init__(
        self, steps: Iterator[Step], reader: RowReader, buffer: Buffer, order: Order, far: int, row_bytes: float
    ) -> None:
        self._steps, self._reader, self._buffer, self._order = steps, reader, buffer, order
        self._under_way: deque[SlotArray] = deque()  # visits of the steps loaded, those known to be over left out
        self._loaded = self._over = 0  # steps
        self._brought = 0  # bytes of varying length that came with the step loaded last
        self._waited = self._reader_waited = 0.0
        self._far, self._row_bytes = far, row_bytes
        ahead = order.ahead
        self._credits = threading.Semaphore(ahead + 1)
        self._left = threading.Event()  # a visit is over since it was cleared, or all shall end
        self._ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stopped, self._process = False, os.getpid()
        self._thread = threading.Thread(target=self._read, name="corgipile-reader", daemon=True) if ahead else None
        stop_at_exit(self)

    def _read(self) -> None:
        try:
            for step in self._announced():
                urgent = self._credits.acquire(blocking=False)  # else the consumer is the slower one
                if not urgent:
                    since = time.perf_counter()
                    self._credits.acquire()
                    self._reader_waited += time.perf_counter() - since
                if self._stopped:
                    return
                self._fill(step, urgent=urgent)
                self._ready.put(step.visit)
            self._ready.put(None)
        except BaseException as error:  # noqa: BLE001  # whatever it is, it belongs to the consumer
            self._ready.put([error])

    def _announced(self) -> Iterator[Step]:
        """Yield the steps, having told the reader of them and those that follow, as far as keeps a device busy."""
        coming: deque[Step] = deque()
        ahead = 0  # bytes of the steps announced and of their rows, but the next one's
        for step in self._steps:
            self._reader.hint(step)
            ahead += self._waiting(step) if coming else 0
            coming.append(step)
            while ahead > self._far:
                yield coming.popleft()
                ahead -= self._waiting(coming[0])
        yield from coming

    def _waiting(self, step: Step) -> int:
        """Return the bytes of a step that waits, and of its rows: of narrow ones, shuffled, the step takes more."""
        return int(len(step.into) * self._row_bytes) + step.extents.nbytes + step.into.nbytes + step.visit.nbytes

    def _next(self) -> Any:
        if os.getpid() != self._process:
            raise BadArgument(FORKED)
        if self._stopped:
            raise BadArgument(ENDED)
        if self._thread is not None:
            item = self._ready.get()
            return [BadArgument(ENDED)] if self._stopped else item
        step = next(self._steps, None)
        if step is None:
            return None
        self._fill(step, urgent=True)
        return step.visit

    def _timed(self) -> Any:
        since = time.perf_counter()
        item = self._next()
        self._waited += time.perf_counter() - since
        return item

    def progress(self) -> Progress:
        """Return how far it is."""
        return Progress(self._waited, self._reader_waited, 0 if self._stopped else self._ready.qsize())

    def _fill(self, step: Step, *, urgent: bool) -> None:
        varlen = self._buffer.varlen
        if varlen:
            self._let_go()
            varlen.release(step.into)
            self._make_room(step)
        before = varlen.nbytes
        self._reader.fill(step, urgent=urgent)
        if varlen:
            self._brought = varlen.nbytes - before
            self._check_room()
            varlen.settle(self._order.ahead, None if self._buffer.limit is None else self._buffer.most)
            self._under_way.append(step.visit)
            self._loaded += 1

    def _let_go(self) -> None:
        """Let go of rows whose visit is over, where there is no other to come."""
        while self._under_way and self._loaded - len(self._under_way) < self._over:
            visit = self._under_way.popleft()
            if self._order.once:
                self._buffer.varlen.release(visit)

    def _make_room(self, step: Step) -> None:
        """See to it that a step fits the budget, whatever its rows are like: if need be it is not read ahead.

        Raises:
            Overfull: It does not fit beside the rows that wait.
        """
        limit, most = self._buffer.limit, self._buffer.most
        if limit is None:
            return
        varlen, coming = self._buffer.varlen, self._reader.size(step) or self._brought
        while self._buffer.nbytes + coming > most:
            if self._over == self._loaded or self._stopped:
                if not self._reader.size(step):
                    return  # an estimate is no reason to give up
                raise Overfull.of(self._buffer.nbytes + coming, limit)
            since = time.perf_counter()
            self._left.wait()
            self._reader_waited += time.perf_counter() - since
            self._left.clear()
            self._let_go()
            varlen.release(step.into)

    def _check_room(self) -> None:
        """Where lengths show only when rows are there: raise Overfull if they take more than the budget."""
        limit = self._buffer.limit
        if limit is not None and self._buffer.nbytes > self._buffer.most:
            raise Overfull.of(self._buffer.nbytes, limit)

    def visits(self) -> Iterator[SlotArray]:
        """Yield the slots each step visits."""
        if self._thread is not None:
            self._thread.start()
        try:
            while (item := self._timed()) is not None:
                if isinstance(item, list):
                    raise item.pop()  # a name would create a cycle through its traceback and all frames above
                yield item
                self._over += 1
                self._left.set()
                self._credits.release()
        finally:
            self.stop()

    def stop(self) -> None:
        """End the threads of this pass."""
        if self._stopped:
            return
        self._stopped = True
        self._left.set()
        self._credits.release()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()
        self._ready.put(None)  # whoever waits in another thread learns that it ended
        self._reader.idle()
