"""Unbuffered wide rows: each is read at its turn, straight into its batch.

A row of many pages is read as fast alone as with its neighbours, so it needs no buffer: the order gives the next rows,
and they are read some batches ahead.
"""

import os
import resource
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.arrow_memory import Tidy, frugal
from corgipile.errors import BadArgument
from corgipile.loader.buffer import Field, numbers
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.loader.groups import Group, Place
from corgipile.loader.prefetch import ENDED, FORKED
from corgipile.loader.shutdown import stop_at_exit
from corgipile.loader.stats import Progress
from corgipile.tables.io.column import PlacedColumn
from corgipile.tables.io.remote import files_of_layout
from corgipile.tables.spans import objects
from corgipile.tables.table import IntArray, Table

__all__ = ["WideRows"]

GROUP_BYTES = 1 << 20  # bytes of a group, which are read together
AHEAD_BYTES = 8 << 20  # read ahead, and at most half the budget: delivered rows may be in flight to another process
TIDY_BYTES = 64 << 20  # bytes read before free memory is returned: new pages take as long as their bytes
LENGTH_ROWS = 4096  # rows whose lengths are requested at a time
CACHED_RATE = 1 << 30  # smallest bytes per second of reads from the page cache
SLOW_GROUPS = 3  # consecutive slower groups that start reading ahead


class WideRows:
    """Reads rows of a table one by one.

    ``arrow``: variable-length columns are Arrow arrays, not lists of objects.
    """

    def __init__(self, feeder: BufferedReader, batch_size: int, *, arrow: bool) -> None:
        self._feeder, self._table, self._columns, self._arrow = feeder, feeder.open_source(), feeder.columns, arrow
        columns = feeder.columns
        self._batch_size, self._ahead = batch_size, min((feeder.limit or 2 * AHEAD_BYTES) // 2, AHEAD_BYTES)
        self._fixed_bytes = sum(field.row_bytes for field in columns.fields)
        self._fields = {field.name: field for field in columns.fields}
        self._in_place = _in_place(self._table, columns.fields)
        self._varlen = list(columns.varlen)
        self._by_column = {name for name in self._varlen if self._table.by_column(name)}
        self._tidy = Tidy(every=TIDY_BYTES)
        self._run: _Ahead | _Direct | None = None

    def groups(self, epoch: int, step: int, skip: int, rows: int) -> Iterator[Group]:
        """Read this many rows of an epoch, starting at an offset in a step."""
        self.close()
        plan = self._plan(epoch, step, skip, rows)
        run: _Ahead | _Direct = _Ahead(self, plan, self._ahead) if self._feeder.order.ahead else _Direct(self, plan)
        self._run = run
        try:
            yield from run.groups()
        finally:
            run.stop()

    @property
    def progress(self) -> Progress:
        """Return the reading progress."""
        return self._run.progress() if self._run else Progress()

    @property
    def resident(self) -> int:
        """Return the bytes of rows in memory, the last delivered batches included."""
        return self._run.bytes if self._run else 0

    def close(self) -> None:
        """Stop reading ahead."""
        if self._run is not None:
            self._run.stop()

    def _plan(self, epoch: int, step: int, skip: int, rows: int) -> Iterator["tuple[list[Place], IntArray, int]"]:
        """Cut rows into groups of whole batches, a single one first, then `GROUP_BYTES`: places, rows, bytes."""
        pending = _PendingRows(self._batch_size)
        most, look = 0, self._batch_size
        visits = self._visits(epoch, step, skip, rows)
        while some := _some(visits, look):
            numbers = np.concatenate([visited for _, visited in some])
            pending.add([place for place, _ in some], numbers, self._sizes(numbers))
            while (count := pending.whole(most)) > 0:
                yield pending.take(count)
                most = GROUP_BYTES
            look = min(2 * look, LENGTH_ROWS)
        while count := min(pending.count, pending.whole(most, last=True) or pending.count):
            yield pending.take(count)

    def _visits(self, epoch: int, step: int, skip: int, rows: int) -> Iterator[tuple[Place, IntArray]]:
        """Yield rows in visiting order, of one step or a part of it at a time."""
        for number, visited in enumerate(self._feeder.rows(epoch, step), step):
            at, skip = min(skip, len(visited)), max(0, skip - len(visited))
            for start in range(at, len(visited), LENGTH_ROWS):
                some = visited[start : min(start + LENGTH_ROWS, start + rows)]
                rows -= len(some)
                yield (number, start, len(some)), some
                if not rows:
                    return

    def _sizes(self, rows: IntArray) -> IntArray:
        sizes = self._table.row_sizes(rows, self._varlen) if self._varlen else None
        return np.full(len(rows), self._fixed_bytes) if sizes is None else sizes + self._fixed_bytes

    def _group(self, places: list[Place], rows: IntArray, nbytes: int) -> Group:
        self._feeder.unbuffered_bytes += nbytes
        self._tidy.passed(nbytes)
        return Group(places, len(rows), self._read(rows))

    def _read(self, rows: IntArray) -> dict[str, Any]:
        columns: dict[str, Any] = {}
        others = []
        for name in self._columns.sources:
            if (in_place := self._in_place.get(name)) is not None:
                columns[name] = in_place.take(rows)
            elif name in self._by_column and pa.types.is_binary(self._columns.varlen[name]) and not self._arrow:
                columns[name] = self._table.take_bytes(rows, name)
            else:
                others.append(name)
        if others:
            batch = self._table.take(rows, others)
            columns |= {name: self._loose(name, batch.column(name), rows) for name in others}
        return {name: columns[name] for name in self._columns.sources}

    def _loose(self, name: str, column: pa.Array, rows: IntArray) -> Sequence[Any] | npt.NDArray[Any] | pa.Array:
        field = self._fields.get(name)
        if field is None:
            return column if self._arrow else objects(column)
        return numbers(column, field, 0, rows).reshape(len(rows), *field.shape).astype(field.dtype)


def _in_place(table: Table, fields: Sequence[Field]) -> dict[str, PlacedColumn]:
    """Return the columns that lie in place, by a layout of all fields, or of halves of them recursively."""
    layout = table.layout([source for field in fields for source in field.sources]) if fields else None
    if layout is not None:
        files = files_of_layout(layout)
        return {field.name: PlacedColumn(layout, field.sources[0], files) for field in fields}
    half = len(fields) // 2
    return _in_place(table, fields[:half]) | _in_place(table, fields[half:]) if half else {}


def _some(visits: Iterator[tuple[Place, IntArray]], wanted: int) -> list[tuple[Place, IntArray]]:
    """Return the next visits of at least ``wanted`` rows, or all that are left."""
    some: list[tuple[Place, IntArray]] = []
    while wanted > 0 and (visit := next(visits, None)) is not None:
        some.append(visit)
        wanted -= len(visit[1])
    return some


class _PendingRows:
    """Rows that are not in a group yet."""

    def __init__(self, batch_size: int) -> None:
        self._size = batch_size
        self._places: deque[Place] = deque()
        self._rows, self._sizes = np.empty(0, np.int64), np.empty(0, np.int64)

    @property
    def count(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def add(self, places: list[Place], rows: IntArray, sizes: IntArray) -> None:
        """Add rows visited at these places."""
        self._places.extend(places)
        self._rows, self._sizes = np.concatenate([self._rows, rows]), np.concatenate([self._sizes, sizes])

    def whole(self, most: int, *, last: bool = False) -> int:
        """Return the rows of whole batches that fill a group of ``most`` bytes; 0 if more rows must be added first."""
        ends = np.cumsum(self._sizes)[self._size - 1 :: self._size]
        batches = int(np.searchsorted(ends, most, side="right"))
        if batches == len(ends) and not last:
            return 0
        return max(1, batches) * self._size if len(ends) else 0

    def take(self, count: int) -> tuple[list[Place], IntArray, int]:
        """Remove the first rows and return their places, numbers and bytes."""
        places, left = [], count
        while left:
            step, at, rows = self._places.popleft()
            some = min(rows, left)
            places.append((step, at, some))
            left -= some
            if some < rows:
                self._places.appendleft((step, at + some, rows - some))
        result = places, self._rows[:count], int(self._sizes[:count].sum())
        self._rows, self._sizes = self._rows[count:], self._sizes[count:]
        return result


def _device_blocks() -> int:
    """Return the number of blocks that this process has read from devices."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_inblock


class _Direct:
    """Reads each group on request."""

    def __init__(self, reader: WideRows, plan: Iterator[tuple[list[Place], IntArray, int]]) -> None:
        self._reader, self._plan = reader, plan
        self._waited, self.bytes = 0.0, 0

    def groups(self) -> Iterator[Group]:
        """Yield the groups in order."""
        for places, rows, nbytes in self._plan:
            since, self.bytes = time.perf_counter(), nbytes
            group = self._reader._group(places, rows, nbytes)  # noqa: SLF001  # same module
            self._waited += time.perf_counter() - since
            yield group
        self.bytes = 0

    def progress(self) -> Progress:
        """Return the progress of this pass."""
        return Progress(self._waited)

    def stop(self) -> None:
        """Do nothing: there is no thread."""


class _Ahead:
    """Reads groups ahead in a thread, bounded by bytes, at least one.

    Cached rows are read on request until several groups had to come from a device: passing rows between threads takes
    as long as copying them, and rows read earlier leave the processor's cache. With several workers each reads ahead
    at once, while it sends.
    """

    def __init__(self, reader: WideRows, plan: Iterator[tuple[list[Place], IntArray, int]], room: int) -> None:
        self._reader, self._plan, self._room = reader, plan, room
        self._changed = threading.Condition()
        self._ready: deque[tuple[Any, int]] = deque()
        self.bytes = self._consumer_bytes = 0  # bytes of groups not finished by the consumer; of the group it has
        self._waited = self._reader_waited = 0.0
        self._stopped, self._process = False, os.getpid()
        self._thread = threading.Thread(target=self._read, name="corgipile-reader", daemon=True)
        stop_at_exit(self)

    def _read(self) -> None:
        try:
            with frugal():
                self._read_all()
        except BaseException as error:  # noqa: BLE001  # the consumer raises it
            self._put([error], 0)

    def _read_all(self) -> None:
        for places, rows, nbytes in self._plan:
            with self._changed:
                since = time.perf_counter()
                while not self._stopped and self.bytes and self.bytes + nbytes > self._room:
                    self._changed.wait()
                self._reader_waited += time.perf_counter() - since
                if self._stopped:
                    return
                self.bytes += nbytes
            self._put(self._reader._group(places, rows, nbytes), nbytes)  # noqa: SLF001  # same module
        self._put(None, 0)

    def _put(self, item: Any, nbytes: int) -> None:
        with self._changed:
            self._ready.append((item, nbytes))
            self._changed.notify_all()

    def groups(self) -> Iterator[Group]:
        """Yield the groups in order."""
        if self._reader._feeder.shard.workers == 1:  # noqa: SLF001  # same module
            with frugal():
                yield from self._read_cached()
            self._check()
        self._thread.start()
        while (group := self._next()) is not None:
            yield group

    def _read_cached(self) -> Iterator[Group]:
        """Read groups in this thread, to the end or until they are slow."""
        slow = 0
        for places, rows, nbytes in self._plan:
            blocks, since, self.bytes = _device_blocks(), time.perf_counter(), nbytes
            group = self._reader._group(places, rows, nbytes)  # noqa: SLF001  # same module
            seconds = time.perf_counter() - since
            self._waited += seconds
            yield group
            self._check()
            slow = slow + 1 if nbytes < CACHED_RATE * seconds or _device_blocks() > blocks else 0
            if slow == SLOW_GROUPS:
                break
        self.bytes = 0

    def _check(self) -> None:
        if os.getpid() != self._process:
            raise BadArgument(FORKED)
        if self._stopped:
            raise BadArgument(ENDED)

    def _next(self) -> Group | None:
        self._check()
        with self._changed:
            self.bytes -= self._consumer_bytes
            self._changed.notify_all()
            since = time.perf_counter()
            self._changed.wait_for(lambda: self._ready or self._stopped)
            self._waited += time.perf_counter() - since
            self._check()
            item, self._consumer_bytes = self._ready.popleft()
        if isinstance(item, list):
            raise item.pop()  # a local name would create a reference cycle with the traceback's frames
        return cast("Group | None", item)

    def progress(self) -> Progress:
        """Return the progress of this pass."""
        return Progress(self._waited, self._reader_waited, len(self._ready))

    def stop(self) -> None:
        """Stop the thread."""
        if os.getpid() != self._process:
            return  # a forked process has no such thread
        with self._changed:
            self._stopped = True
            self._ready.clear()
            self._changed.notify_all()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()
