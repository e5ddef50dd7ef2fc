"""Gathering of whole batches in groups: small batches share the cost of one call."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from corgipile.arrow_memory import Tidy
from corgipile.loader.array_pool import ArrayPool, Make
from corgipile.loader.async_gather import AsyncGather
from corgipile.loader.buffer import Arrays, SlotArray
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.loader.stats import Progress
from corgipile.tables.spans import Rows

__all__ = ["BatchGatherer", "BatchSource", "Group", "Place", "position_after"]

GATHER_ROWS, GATHER_BYTES = 8192, 1 << 20  # rows and bytes gathered at a time
POOLED = 4  # reusable arrays per column
POOLED_AHEAD, READY_GROUPS = 8, 2  # the same when gathering ahead; largest number of gathered groups that wait

Place = tuple[int, int, int]  # step, offset among its visits, rows


class Group(NamedTuple):
    """Some batches; only a pass's last may be short.

    Attributes:
        places: Steps and offsets at which the rows were visited.
        rows: Number of rows.
        columns: Each column: an array, an Arrow array, or a list with one object per row.
    """

    places: list[Place]
    rows: int
    columns: dict[str, Any]


class BatchSource(Protocol):
    """Source of a loader's batches, in groups."""

    def groups(self, epoch: int, step: int, skip: int, rows: int) -> Iterator[Group]:
        """Yield this many rows of an epoch, starting at an offset in a step."""

    @property
    def progress(self) -> Progress:
        """Return the reading progress."""

    @property
    def resident(self) -> int:
        """Return the bytes of rows in memory."""

    def close(self) -> None:
        """Close what the source has opened."""


class BatchGatherer:
    """Collects visited rows from the buffer into arrays of several batches.

    A full group has enough rows or bytes. The first group is a single batch and each later one twice the size: the
    consumer gets the first batch without waiting for others.

    Args:
        feeder: Reader that visits rows.
        batch_size: Rows of a batch.
        arrow: Return variable-length columns as Arrow arrays; else as lists with one object per row.
    """

    def __init__(self, feeder: BufferedReader, batch_size: int, *, arrow: bool) -> None:
        self._feeder, self._buffer, self._batch_size, self._arrow = feeder, feeder.buffer, batch_size, arrow
        self._row_bytes = sum(field.row_bytes for field in self._buffer.fields.values())
        most = min(GATHER_ROWS, GATHER_BYTES // self._row_bytes if self._row_bytes else GATHER_ROWS)
        self.capacity = batch_size * max(1, most // batch_size)
        self._tidy = Tidy(feeder.limit)
        self._make: Make | None = None
        self._async_gather: AsyncGather | None = None
        self._pools = [ArrayPool(POOLED) for _ in self._buffer.fields]

    def gather_ahead(self, make: Make | None) -> None:
        """Gather one or two groups while the consumer uses the last one, into arrays allocated by ``make``.

        Groups that are large for the budget, or all of them for None, are gathered on request.
        """
        if make != self._make:
            limit, needed = self._feeder.limit, POOLED_AHEAD * self.capacity * self._row_bytes
            fits = make is not None and (limit is None or needed <= limit // 2)
            self._make, self._async_gather = make, AsyncGather(self._buffer) if fits else None
            pooled = POOLED_AHEAD if fits else POOLED
            self._pools = [ArrayPool(pooled, make or np.empty) for _ in self._buffer.fields]

    def groups(self, epoch: int, step: int, skip: int, rows: int) -> Iterator[Group]:
        """Gather this many rows of an epoch, starting at an offset in a step."""
        visits = self._feeder.epoch(epoch, step)
        group, ready = _Gathering(self._fresh(), self._batch_size), deque["_Gathering"]()
        try:
            for number, visit in enumerate(visits, step):
                at, skip = min(skip, len(visit)), max(0, skip - len(visit))
                while at < len(visit) and rows:
                    added = self._add(group, visit[at : at + rows])
                    group.places.append((number, at, added))
                    at, rows = at + added, rows - added
                    if group.rows == group.most:
                        ready.append(group)
                        group = _Gathering(self._fresh(), min(self.capacity, 2 * group.grown))
                        yield from self._pop_ready(ready, READY_GROUPS if self._async_gather else 0)
                if not rows:
                    break
                while ready and not self._at_hand():
                    yield from self._pop_ready(ready, len(ready) - 1)
                self._wait()  # the next step may overwrite this step's slots
            if group.rows:
                ready.append(group)
            yield from self._pop_ready(ready, 0)
        finally:
            self._wait()
            visits.close()  # type: ignore[attr-defined]  # a generator: ends its reading thread

    def _pop_ready(self, ready: deque["_Gathering"], left: int) -> Iterator[Group]:
        """Yield the oldest groups until only ``left`` are left."""
        while len(ready) > left:
            group = ready.popleft()
            if self._async_gather:
                self._async_gather.wait(group.last_request)
            done = group.finish(self._buffer.fields)
            yield done._replace(columns=self._feeder.columns.in_order(done.columns)) if group.varlen else done
            group.arrays = ()
            group.varlen.clear()
            self._tidy.passed(group.nbytes)

    def _at_hand(self) -> bool:
        """Return whether another step is ready and all of this step's rows are gathered."""
        feeder, async_gather = self._feeder, self._async_gather
        return async_gather is not None and async_gather.idle and (feeder.all_in_memory() or feeder.progress.ahead > 0)

    def _wait(self) -> None:
        if self._async_gather:
            self._async_gather.wait(self._async_gather.last_request)

    @property
    def progress(self) -> Progress:
        """Return the reading progress."""
        return self._feeder.progress

    @property
    def resident(self) -> int:
        """Return the bytes of rows in memory."""
        return self._buffer.nbytes

    def close(self) -> None:
        """Do nothing: the reader owns the files."""

    def _fresh(self) -> Arrays:
        fields = zip(self._pools, self._buffer.fields.values(), strict=True)
        return tuple(pool.array(self.capacity, field.shape, field.dtype) for pool, field in fields)

    def _add(self, group: "_Gathering", visit: SlotArray) -> int:
        """Gather the rows that fit; return their number."""
        varlen = self._buffer.varlen
        visit = visit[: group.most - group.rows]
        if varlen:
            visit = visit[: self._bounded(group, visit)]
            if len(visit):
                group.varlen.append(varlen.gather(visit) if self._arrow else varlen.objects(visit))
        end = group.rows + len(visit)
        (self._async_gather or self._buffer).gather(visit, group.arrays, group.rows)
        group.last_request = self._async_gather.last_request if self._async_gather else 0
        group.rows = end
        return len(visit)

    def _bounded(self, group: "_Gathering", visit: SlotArray) -> int:
        """End the group before the batch that exceeds its bytes, unless it is the first; return the rows that fit."""
        sizes = np.cumsum(self._buffer.varlen.sizes(visit))
        enough = int(np.searchsorted(sizes, GATHER_BYTES - group.nbytes))
        if enough < len(visit):
            begun = -(-group.rows // self._batch_size)
            batches = max(1, begun, (group.rows + enough) // self._batch_size)
            group.most = min(group.most, batches * self._batch_size)
        fit = min(len(visit), group.most - group.rows)
        group.nbytes += int(sizes[fit - 1]) if fit else 0
        return fit


def position_after(places: list[Place], rows: int) -> tuple[int, int] | None:
    """Return step and offset after this many rows of a group; None for a group without rows."""
    step = at = take = 0
    for step, at, take in places:
        if rows < take:
            return step, at + rows
        rows -= take
    return (step, at + take) if places else None


class _Gathering:
    """A group that is being gathered."""

    def __init__(self, arrays: Arrays, most: int) -> None:
        self.arrays, self.most, self.grown = arrays, most, most
        self.varlen: list[Any] = []
        self.places: list[Place] = []
        self.rows = self.nbytes = self.last_request = 0

    def finish(self, names: Iterable[str]) -> Group:
        """Return the gathered rows."""
        rows = self.rows
        columns: dict[str, Any] = {name: array[:rows] for name, array in zip(names, self.arrays, strict=True)}
        if self.varlen:
            columns |= {name: _joined([part[name] for part in self.varlen]) for name in _names(self.varlen[0])}
        return Group(self.places, self.rows, columns)


def _names(part: Any) -> list[str]:
    return part.schema.names if isinstance(part, pa.RecordBatch) else list(part)


def _joined(parts: list[Any]) -> Any:
    """Concatenate the parts of a column; as Python objects if a part is a list of them."""
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, pa.Array) for part in parts):
        return pa.concat_arrays(parts)
    if all(isinstance(part, Rows) for part in parts):
        return Rows.joined(parts)
    return [row for part in parts for row in (part.to_pylist() if isinstance(part, pa.Array) else part)]
