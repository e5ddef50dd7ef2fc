"""Gathering of whole batches in groups: small batches share the cost of one call."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from corgipile.arrow_memory import Tidy
from corgipile.loader.array_pool import ArrayPool, Make
from corgipile.loader.async_gather import AsyncGather
from corgipile.loader.buffer import Arrays, SlotArray
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.loader.ragged import Lender, Ragged
from corgipile.loader.stats import Progress
from corgipile.loader.varlen import Varlen
from corgipile.tables.spans import Rows
from corgipile.tables.table import IntArray, is_list

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
        self._lender = Lender(GATHER_BYTES, feeder.limit, POOLED * len(self._buffer.varlen.names))
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
        group, ready = self._new_group(self._batch_size), deque["_Gathering"]()
        try:
            for number, visit in enumerate(visits, step):
                at, skip = min(skip, len(visit)), max(0, skip - len(visit))
                begin, stop, ends = at, at, None  # rows are sized in parts, since a step may visit the whole buffer
                while at < len(visit) and rows:
                    if at == stop:
                        begin, stop = at, min(len(visit), at + GATHER_ROWS)
                        ends = self._ends(visit[begin:stop]) if self._buffer.varlen else None
                    part = slice(at, min(stop, at + rows))
                    sizes = None if ends is None else ends[1 + at - begin : 1 + part.stop - begin] - ends[at - begin]
                    added = self._add(group, visit[part], sizes)
                    group.places.append((number, at, added))
                    at, rows = at + added, rows - added
                    if group.rows == group.most:
                        ready.append(group)
                        group = self._new_group(min(self.capacity, 2 * group.grown))
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

    def _ends(self, visit: SlotArray) -> IntArray:
        """Return the cumulative variable-length bytes of rows, from 0 on."""
        return np.append(0, np.cumsum(self._buffer.varlen.sizes(visit)))

    def _pop_ready(self, ready: deque["_Gathering"], left: int) -> Iterator[Group]:
        """Yield the oldest groups until only ``left`` are left."""
        while len(ready) > left:
            group = ready.popleft()
            if self._async_gather:
                self._async_gather.wait(group.last_request)
            done = group.finish(self._buffer.fields)
            if group.varlen:
                done = done._replace(columns=self._feeder.columns.in_order(done.columns))
            yield done
            group.arrays, group.varlen = (), None
            self._tidy.passed(group.nbytes - group.pooled)

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

    def _new_group(self, most: int) -> "_Gathering":
        fields, varlen = zip(self._pools, self._buffer.fields.values(), strict=True), self._buffer.varlen
        arrays = tuple(pool.array(self.capacity, field.shape, field.dtype) for pool, field in fields)
        return _Gathering(arrays, _GatheredVarlen(varlen, self._lender, arrow=self._arrow) if varlen else None, most)

    def _add(self, group: "_Gathering", visit: SlotArray, sizes: IntArray | None) -> int:
        """Gather the rows that fit; return their number. ``sizes``: cumulative variable-length bytes, if any."""
        visit = visit[: group.most - group.rows]
        if group.varlen and sizes is not None:
            visit = visit[: self._bounded(group, sizes[: len(visit)])]
            if len(visit):
                group.varlen.add(visit)
        end = group.rows + len(visit)
        (self._async_gather or self._buffer).gather(visit, group.arrays, group.rows)
        group.last_request = self._async_gather.last_request if self._async_gather else 0
        group.rows = end
        return len(visit)

    def _bounded(self, group: "_Gathering", sizes: IntArray) -> int:
        """End the group before the batch that exceeds its bytes, unless it is the first; return the rows that fit."""
        enough = int(np.searchsorted(sizes, GATHER_BYTES - group.nbytes))
        if enough < len(sizes):
            begun = -(-group.rows // self._batch_size)
            batches = max(1, begun, (group.rows + enough) // self._batch_size)
            group.most = min(group.most, batches * self._batch_size)
        fit = min(len(sizes), group.most - group.rows)
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


class _GatheredVarlen:
    """The variable-length columns of a group, gathered one visit after another.

    ``arrow``: columns are Arrow arrays; else `Rows` or lists with one object per row.
    """

    def __init__(self, varlen: Varlen, lender: Lender, *, arrow: bool) -> None:
        self._varlen, self._lender, self._arrow = varlen, lender, arrow
        self._parts: dict[str, list[Any]] = {name: [] for name in varlen.names}

    def add(self, visit: SlotArray) -> None:
        """Add the rows in these slots."""
        others = [name for name, parts in self._parts.items() if not self._add_items(name, parts, visit)]
        if others:
            found = self._varlen.take(visit, others) if self._arrow else self._varlen.objects(visit, others)
            for name, part in found.items():
                self._parts[name].append(part)

    def _add_items(self, name: str, parts: list[Any], visit: SlotArray) -> bool:
        """Add the items of a column's rows; return False if they must become objects or keep their nulls."""
        varlen, kind = self._varlen, self._varlen.kind(name)
        if not varlen.joinable(name) or not (self._arrow or is_list(kind)):
            return False
        if parts and isinstance(parts[-1], Ragged) and parts[-1].add(varlen.span(name), visit):
            return True
        part = Ragged(kind, self._lender.lend)
        added = part.add(varlen.span(name), visit)
        parts.extend([part] * added)
        return added

    def pooled(self) -> int:
        """Return the bytes of rows in reused memory."""
        parts = [part for parts in self._parts.values() for part in parts if isinstance(part, Ragged)]
        return sum(part.nbytes for part in parts if self._lender.pooled(part.room))

    def finish(self) -> dict[str, Any]:
        """Return the columns."""
        done = {}
        for name, parts in self._parts.items():
            arrow = self._arrow or any(isinstance(part, pa.Array) for part in parts)
            done[name] = _joined([part.column(arrow=arrow) if isinstance(part, Ragged) else part for part in parts])
        return done


def _joined(parts: Sequence[Any]) -> Any:
    """Concatenate the parts of a column; as Python objects if a part is a list of them."""
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, pa.Array) for part in parts):
        return pa.concat_arrays(parts)
    if all(isinstance(part, Rows) for part in parts):
        return Rows.joined(parts)
    return [row for part in parts for row in (part.to_pylist() if isinstance(part, pa.Array) else part)]


class _Gathering:
    """A group that is being gathered."""

    def __init__(self, arrays: Arrays, varlen: _GatheredVarlen | None, most: int) -> None:
        self.arrays, self.varlen, self.most, self.grown = arrays, varlen, most, most
        self.places: list[Place] = []
        self.rows = self.nbytes = self.pooled = self.last_request = 0

    def finish(self, names: Iterable[str]) -> Group:
        """Return the gathered rows."""
        rows = self.rows
        columns: dict[str, Any] = {name: array[:rows] for name, array in zip(names, self.arrays, strict=True)}
        if self.varlen:
            self.pooled, columns = self.varlen.pooled(), columns | self.varlen.finish()
        return Group(self.places, self.rows, columns)
