"""Groups of whole batches: rows gathered together, since small batches then share the cost of a call."""

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.arrow_memory import Tidy
from corgipile.loader.array_pool import ArrayPool, Make
from corgipile.loader.async_gather import AsyncGather
from corgipile.loader.buffer import SlotArray
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.loader.stats import Progress
from corgipile.tables.arrow.spans import Rows

__all__ = ["BatchGatherer", "Group", "Place", "reached"]

GATHER_ROWS, GATHER_BYTES = 8192, 1 << 20  # gathered at a time
KEPT = 4  # arrays of a column that are used again
KEPT_AHEAD, STOCK = (
    8,
    2,
)  # the same where rows are gathered ahead, and whole groups that wait: a step may end within one

Place = tuple[int, int, int]  # step, place among its visits, rows


class Group(NamedTuple):
    """Some batches, of which only the last of a pass may be short.

    Attributes:
        places: Where its rows were visited.
        rows: How many there are.
        columns: Each column: an array, an Arrow array or a list with an object a row.
    """

    places: list[Place]
    rows: int
    columns: dict[str, Any]


class BatchGatherer:
    """Collects visited rows from the buffer into arrays of several batches.

    A group ends where it has rows or bytes enough. The first is a single batch, those after it twice as many each: who
    waits for the first batch does not wait for others.

    Args:
        feeder: What visits rows.
        batch_size: Rows of a batch.
        arrow: Leave columns of varying length Arrow arrays; else they are a list with an object a row.
    """

    def __init__(self, feeder: BufferedReader, batch_size: int, *, arrow: bool) -> None:
        self._feeder, self._buffer, self._batch_size, self._arrow = feeder, feeder.buffer, batch_size, arrow
        self._row_bytes = sum(field.row_bytes for field in self._buffer.fields.values())
        most = min(GATHER_ROWS, GATHER_BYTES // self._row_bytes if self._row_bytes else GATHER_ROWS)
        self.capacity = batch_size * max(1, most // batch_size)
        self._tidy = Tidy(feeder.limit)
        self._make: Make | None = None
        self._aside: AsyncGather | None = None
        self._spare = {name: ArrayPool(KEPT) for name in self._buffer.fields}

    def gather_ahead(self, make: Make | None) -> None:
        """Gather a group or two ahead, while whoever asked for the last one is busy, into arrays made so.

        Groups that are large for the budget are gathered when they are asked for, as all are with None.
        """
        if make != self._make:
            limit, taken = self._feeder.limit, KEPT_AHEAD * self.capacity * self._row_bytes
            fits = make is not None and (limit is None or taken <= limit // 2)
            self._make, self._aside = make, AsyncGather(self._buffer) if fits else None
            kept = KEPT_AHEAD if fits else KEPT
            self._spare = {name: ArrayPool(kept, make or np.empty) for name in self._buffer.fields}

    def groups(self, epoch: int, step: int, skip: int, rows: int) -> Iterator[Group]:
        """Gather so many rows of an epoch, from a place on."""
        visits = self._feeder.epoch(epoch, step)
        group, made = _Gathering(self._fresh(), self._batch_size), deque["_Gathering"]()
        try:
            for number, visit in enumerate(visits, step):
                at, skip = min(skip, len(visit)), max(0, skip - len(visit))
                while at < len(visit) and rows:
                    took = self._add(group, visit[at : at + rows])
                    group.places.append((number, at, took))
                    at, rows = at + took, rows - took
                    if group.rows == group.most:
                        made.append(group)
                        group = _Gathering(self._fresh(), min(self.capacity, 2 * group.grown))
                        yield from self._handed(made, STOCK if self._aside else 0)
                if not rows:
                    break
                while made and not self._at_hand():
                    yield from self._handed(made, len(made) - 1)
                self._settle()  # the next step may take the slots of this one
            if group.rows:
                made.append(group)
            yield from self._handed(made, 0)
        finally:
            self._settle()
            visits.close()  # type: ignore[attr-defined]  # a generator: ends its reading thread

    def _handed(self, made: deque["_Gathering"], left: int) -> Iterator[Group]:
        """Hand over groups, the first that were made first, until so many are left."""
        while len(made) > left:
            group = made.popleft()
            if self._aside:
                self._aside.wait(group.asked)
            found = group.made()
            yield found._replace(columns=self._feeder.columns.in_order(found.columns)) if group.varlen else found
            group.arrays.clear()
            group.varlen.clear()
            self._tidy.passed(group.nbytes)

    def _at_hand(self) -> bool:
        """Say whether another step can be had at once, and nothing of this one is still to be gathered."""
        feeder, aside = self._feeder, self._aside
        return aside is not None and aside.idle and (feeder.kept() or feeder.progress.ahead > 0)

    def _settle(self) -> None:
        if self._aside:
            self._aside.wait(self._aside.asked)

    @property
    def progress(self) -> Progress:
        """Return how far reading is."""
        return self._feeder.progress

    @property
    def resident(self) -> int:
        """Return the bytes of rows in memory."""
        return self._buffer.nbytes

    def close(self) -> None:
        """Do nothing: it is the feeder that reads."""

    def _fresh(self) -> dict[str, npt.NDArray[np.generic]]:
        fields = self._buffer.fields.items()
        return {name: self._spare[name].array(self.capacity, field.shape, field.dtype) for name, field in fields}

    def _add(self, group: "_Gathering", visit: SlotArray) -> int:
        """Gather rows that still fit; return how many."""
        varlen = self._buffer.varlen
        visit = visit[: group.most - group.rows]
        if varlen:
            visit = visit[: self._bounded(group, visit)]
            if len(visit):
                group.varlen.append(varlen.gather(visit) if self._arrow else varlen.objects(visit))
        end = group.rows + len(visit)
        gather = self._aside.gather if self._aside else self._buffer.gather
        for name, array in group.arrays.items():
            gather(name, visit, array[group.rows : end])
        group.asked = self._aside.asked if self._aside else 0
        group.rows = end
        return len(visit)

    def _bounded(self, group: "_Gathering", visit: SlotArray) -> int:
        """End the group before the batch in which it gets too many bytes, if it is not the first; return what fits."""
        sizes = np.cumsum(self._buffer.varlen.sizes(visit))
        enough = int(np.searchsorted(sizes, GATHER_BYTES - group.nbytes))
        if enough < len(visit):
            begun = -(-group.rows // self._batch_size)
            batches = max(1, begun, (group.rows + enough) // self._batch_size)
            group.most = min(group.most, batches * self._batch_size)
        fit = min(len(visit), group.most - group.rows)
        group.nbytes += int(sizes[fit - 1]) if fit else 0
        return fit


def reached(places: list[Place], rows: int) -> tuple[int, int] | None:
    """Return step and place of the first row after so many of a group; None of one without rows."""
    step = at = take = 0
    for step, at, take in places:
        if rows < take:
            return step, at + rows
        rows -= take
    return (step, at + take) if places else None


class _Gathering:
    """A group in the making."""

    def __init__(self, arrays: dict[str, npt.NDArray[np.generic]], most: int) -> None:
        self.arrays, self.most, self.grown = arrays, most, most
        self.varlen: list[Any] = []
        self.places: list[Place] = []
        self.rows = self.nbytes = self.asked = 0

    def made(self) -> Group:
        """Return what was gathered."""
        columns: dict[str, Any] = {name: array[: self.rows] for name, array in self.arrays.items()}
        if self.varlen:
            columns |= {name: _joined([part[name] for part in self.varlen]) for name in _names(self.varlen[0])}
        return Group(self.places, self.rows, columns)


def _names(part: Any) -> list[str]:
    return part.schema.names if isinstance(part, pa.RecordBatch) else list(part)


def _joined(parts: list[Any]) -> Any:
    """Join what was gathered of a column; as Python objects if some of it is already."""
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, pa.Array) for part in parts):
        return pa.concat_arrays(parts)
    if all(isinstance(part, Rows) for part in parts):
        return Rows.joined(parts)
    return [row for part in parts for row in (part.to_pylist() if isinstance(part, pa.Array) else part)]
