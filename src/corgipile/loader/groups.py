"""Groups of whole batches: rows gathered together, since small batches then share the cost of a call."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.arrow_memory import Tidy
from corgipile.loader.buffer import SlotArray
from corgipile.loader.feeder import Feeder
from corgipile.loader.spare import Spare
from corgipile.loader.stats import Progress
from corgipile.tables.arrow.spans import Rows

__all__ = ["Gatherer", "Group", "Place"]

GATHER_ROWS, GATHER_BYTES = 8192, 1 << 20  # gathered at a time
KEPT = 4  # arrays of a column that are used again

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


class Gatherer:
    """Collects visited rows from the buffer into arrays of several batches.

    A group ends where it has rows or bytes enough. The first is a single batch, those after it twice as many each: who
    waits for the first batch does not wait for others.

    Args:
        feeder: What visits rows.
        batch_size: Rows of a batch.
        arrow: Leave columns of varying length Arrow arrays; else they are a list with an object a row.
    """

    def __init__(self, feeder: Feeder, batch_size: int, *, arrow: bool) -> None:
        self._feeder, self._buffer, self._batch_size, self._arrow = feeder, feeder.buffer, batch_size, arrow
        row_bytes = sum(field.row_bytes for field in self._buffer.fields.values())
        most = min(GATHER_ROWS, GATHER_BYTES // row_bytes if row_bytes else GATHER_ROWS)
        self.capacity = batch_size * max(1, most // batch_size)
        self._tidy = Tidy(feeder.limit)
        self._spare = {name: Spare(KEPT) for name in self._buffer.fields}

    def groups(self, epoch: int, step: int, skip: int, rows: int) -> Iterator[Group]:
        """Gather so many rows of an epoch, from a place on."""
        visits = self._feeder.epoch(epoch, step)
        most = self._batch_size
        group = _Gathering(self._fresh(), most)
        try:
            for number, visit in enumerate(visits, step):
                at, skip = min(skip, len(visit)), max(0, skip - len(visit))
                while at < len(visit) and rows:
                    took = self._add(group, visit[at : at + rows])
                    group.places.append((number, at, took))
                    at, rows = at + took, rows - took
                    if group.rows == group.most:
                        yield group.made()
                        group.arrays.clear()
                        group.varlen.clear()
                        self._tidy.passed(group.nbytes)
                        most = min(self.capacity, 2 * most)
                        group = _Gathering(self._fresh(), most)
                if not rows:
                    break
            if group.rows:
                yield group.made()
        finally:
            visits.close()  # type: ignore[attr-defined]  # a generator: ends its reading thread

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
        for name, array in group.arrays.items():
            self._buffer.gather(name, visit, array[group.rows : end])
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


class _Gathering:
    """A group in the making."""

    def __init__(self, arrays: dict[str, npt.NDArray[np.generic]], most: int) -> None:
        self.arrays, self.most = arrays, most
        self.varlen: list[Any] = []
        self.places: list[Place] = []
        self.rows = self.nbytes = 0

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
