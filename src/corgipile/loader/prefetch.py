"""A pass over a table: reads each step's rows into slots ahead of their visits.

Slots are reused: step i may be read once the visits up to step i - 1 - ahead are over.
"""

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from corgipile import _kernel
from corgipile.errors import BadArgument, BudgetTooSmall
from corgipile.loader.buffer import Buffer, SlotArray
from corgipile.loader.in_place import SHORT_RUNS, LayoutReader
from corgipile.loader.readers import RowReader
from corgipile.loader.shutdown import stop_at_exit
from corgipile.loader.staging import Piece, Stage, pieces
from corgipile.loader.stats import Progress
from corgipile.orders import Blocks, Key, Order, Step
from corgipile.orders.planned import Planned
from corgipile.sizes import format_bytes

__all__ = ["Overfull", "Prefetch", "begin"]

ENDED = "this iteration has ended: another one of the same loader or dataset began, or it was closed"
FORKED = "this iteration began before the process was forked; begin one in the child"
FAR_BYTES = 4 << 20  # rows and steps announced to the device ahead of their reads
PLANNED_ROW = 12  # bytes of a row in a kernel step: slot, place in the sweep, visit


class Overfull(BudgetTooSmall):  # only reading shows the size: the order was fitted to sampled rows
    """The rows buffered at once exceed the budget."""

    @classmethod
    def of(cls, needed: int, limit: int) -> "Overfull":
        """Make the error."""
        return cls(
            f"rows buffered at once take {format_bytes(needed)}, but memory={limit}: rows are longer here than at the "
            "beginning, the middle and the end of the table; give "
            f"memory={format_bytes(needed * 1.25).replace(' ', '')!r} or a smaller block and buffer"
        )


class Prefetch(Protocol):
    """A pass with its threads."""

    def visits(self) -> Iterator[Any]:
        """Yield the slots each step visits, or the pieces of staged steps."""

    def progress(self) -> Progress:
        """Return the progress, from any thread; after `stop` the final one."""

    def stop(self) -> None:
        """Stop this pass's threads."""


def begin(
    order: Order,
    blocks: Blocks,
    key: Key,
    start: int,
    buffer: Buffer,
    row_reader: RowReader,
    row_bytes: float,
    stage: Stage | None = None,
) -> Prefetch:
    """Prepare a pass: in the kernel if it can plan the steps and read the rows, else in a Python thread.

    ``stage``: the buffer is staging memory, and the pass yields pieces.
    """
    far = getattr(row_reader, "ahead", 0) or FAR_BYTES
    planned = order if isinstance(order, Planned) and type(order).steps is Planned.steps else None
    if planned and isinstance(row_reader, LayoutReader) and not buffer.varlen and row_reader.hold():
        return KernelPrefetch(planned, blocks, key, start, row_reader, int(far / (row_bytes + PLANNED_ROW)), stage)
    steps = order.steps(blocks, key, start)
    if stage is not None:
        return StagedPrefetch(steps, row_reader, buffer, order, far, row_bytes, stage)
    return StepPrefetch(steps, row_reader, buffer, order, far, row_bytes)


class KernelPrefetch:
    """A pass in the kernel, which reads ahead in one thread; with ``ahead`` 0 there is no thread."""

    def __init__(
        self,
        order: Planned,
        blocks: Blocks,
        key: Key,
        start: int,
        row_reader: LayoutReader,
        far: int,
        stage: Stage | None,
    ) -> None:
        self._stage = stage or Stage(0, 0)
        self._pass, self._row_reader = (order, blocks, key, start), row_reader
        self._far = far if blocks.rows >= SHORT_RUNS * blocks.count else 0
        self._run: object | None = None
        self._waited, self._reader_waited = 0.0, 0.0
        self._stopped, self._process = False, os.getpid()

    def _next(self) -> SlotArray | Piece | None:
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
        if isinstance(visit, list):
            return Piece(np.frombuffer(visit[0], np.int32), np.frombuffer(visit[1], np.int32), visit[2])
        return None if visit is None else np.frombuffer(visit, np.int32)

    def visits(self) -> Iterator[SlotArray | Piece]:
        """Yield each step's slots, or the pieces of staged steps."""
        if not self._stopped:
            order, blocks, key, start = self._pass
            reader = self._row_reader.reader(short=not self._far)
            self._run = _kernel.run_new(order.plan(blocks, key, start), reader, self._far, *self._stage)
        try:
            while (visit := self._next()) is not None:
                yield visit
        finally:
            self.stop()

    def progress(self) -> Progress:
        """Return the progress of this pass."""
        run = self._run
        if run is None:
            return Progress(self._waited, self._reader_waited)
        ahead, waited = _kernel.run_look(run)
        return Progress(self._waited, waited / 1e9, ahead)

    def stop(self) -> None:
        """Stop this pass's threads."""
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
    """A pass of any order and reader, read ahead by one Python thread; credits count finished visits."""

    def __init__(
        self, steps: Iterator[Step], reader: RowReader, buffer: Buffer, order: Order, far: int, row_bytes: float
    ) -> None:
        self._steps, self._reader, self._buffer, self._order = steps, reader, buffer, order
        self._unreleased: deque[SlotArray] = deque()  # visits of loaded steps whose rows are not released
        self._loaded = self._over = 0  # steps read, steps visited
        self._last_bytes = 0  # variable-length bytes of the last step
        self._waited = self._reader_waited = 0.0
        self._far, self._row_bytes = far, row_bytes
        ahead = order.ahead
        self._credits = threading.Semaphore(ahead + 1)
        self._left = threading.Event()  # set when a visit ends or the pass stops
        self._ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stopped, self._process = False, os.getpid()
        self._thread = threading.Thread(target=self._read, name="corgipile-reader", daemon=True) if ahead else None
        stop_at_exit(self)

    def _read(self) -> None:
        try:
            for step in self._announced_steps():
                urgent = self._credits.acquire(blocking=False)  # else the consumer is the bottleneck
                if not urgent:
                    since = time.perf_counter()
                    self._credits.acquire()
                    self._reader_waited += time.perf_counter() - since
                if self._stopped:
                    return
                self._fill(step, urgent=urgent)
                self._ready.put(step.visit)
            self._ready.put(None)
        except BaseException as error:  # noqa: BLE001  # the consumer raises it
            self._ready.put([error])

    def _announced_steps(self) -> Iterator[Step]:
        """Yield steps, announced to the reader far enough ahead to keep a device busy."""
        coming: deque[Step] = deque()
        ahead = 0  # bytes of the announced steps and their rows, without the next step
        for step in self._steps:
            self._reader.hint(step)
            ahead += self._step_bytes(step) if coming else 0
            coming.append(step)
            while ahead > self._far:
                yield coming.popleft()
                ahead -= self._step_bytes(coming[0])
        yield from coming

    def _step_bytes(self, step: Step) -> int:
        """Return the bytes of an announced step and its rows: narrow shuffled rows take less than their step."""
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
        """Return the progress of this pass."""
        return Progress(self._waited, self._reader_waited, 0 if self._stopped else self._ready.qsize())

    def _fill(self, step: Step, *, urgent: bool) -> None:
        varlen = self._buffer.varlen
        if varlen:
            self._release_visited()
            varlen.release(step.into)
            self._wait_for_room(step)
        before = varlen.nbytes
        self._reader.fill(step, urgent=urgent)
        if varlen:
            self._last_bytes = varlen.nbytes - before
            self._check_room()
            varlen.compact(self._order.ahead, None if self._buffer.limit is None else self._buffer.most)
            self._unreleased.append(step.visit)
            self._loaded += 1

    def _release_visited(self) -> None:
        """Release rows whose visit is over, if the order visits rows once."""
        while self._unreleased and self._loaded - len(self._unreleased) < self._over:
            visit = self._unreleased.popleft()
            if self._order.once:
                self._buffer.varlen.release(visit)

    def _wait_for_room(self, step: Step) -> None:
        """Wait until a step fits the budget; raise Overfull if it never fits with the buffered rows."""
        limit, most = self._buffer.limit, self._buffer.most
        if limit is None:
            return
        varlen, coming = self._buffer.varlen, self._reader.size(step) or self._last_bytes
        while self._buffer.nbytes + coming > most:
            if self._over == self._loaded or self._stopped:
                if not self._reader.size(step):
                    return  # an estimate is not enough to raise
                raise Overfull.of(self._buffer.nbytes + coming, limit)
            since = time.perf_counter()
            self._left.wait()
            self._reader_waited += time.perf_counter() - since
            self._left.clear()
            self._release_visited()
            varlen.release(step.into)

    def _check_room(self) -> None:
        """Raise Overfull if rows, whose lengths only reading shows, exceed the budget."""
        limit = self._buffer.limit
        if limit is not None and self._buffer.nbytes > self._buffer.most:
            raise Overfull.of(self._buffer.nbytes, limit)

    def visits(self) -> Iterator[Any]:
        """Yield each step's slots."""
        if self._thread is not None:
            self._thread.start()
        try:
            while (item := self._timed()) is not None:
                if isinstance(item, list):
                    raise item.pop()  # a local name would create a reference cycle with the traceback's frames
                yield item
                self._over += 1
                self._left.set()
                self._credits.release()
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop this pass's threads."""
        if self._stopped:
            return
        self._stopped = True
        self._left.set()
        self._credits.release()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()
        self._ready.put(None)  # wakes a consumer in another thread
        self._reader.idle()


class StagedPrefetch(StepPrefetch):
    """A pass that reads the pieces of steps into the places of staging memory in turn."""

    def __init__(
        self,
        steps: Iterator[Step],
        reader: RowReader,
        buffer: Buffer,
        order: Order,
        far: int,
        row_bytes: float,
        stage: Stage,
    ) -> None:
        ahead = replace(order, ahead=stage.places - 2)  # type: ignore[type-var]
        super().__init__(self._staged(steps, stage), reader, buffer, ahead, far, row_bytes)
        self._pieces = deque[Piece]()

    def _staged(self, steps: Iterator[Step], stage: Stage) -> Iterator[Step]:
        """Yield each piece as a step into its place, and keep it for the consumer."""
        number = 0
        for step in steps:
            coming = list(pieces(step, stage.room))
            for piece in coming:
                self._pieces.append(Piece(piece.into, piece.visit, piece is coming[-1]))
                start = stage.rows(number).start
                yield Step(piece.extents, np.arange(start, start + len(piece.into), dtype=np.int32), piece.visit)
                number += 1

    def visits(self) -> Iterator[Piece]:
        """Yield pieces that are read."""
        for _ in super().visits():
            yield self._pieces.popleft()
