"""Rows of each step of an epoch, computed from a small state without a log: seed and epoch determine orders."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, BadSchema, MissingColumn, StateMismatch
from corgipile.features import Encoding
from corgipile.loader.budget import Fitted, Sketch
from corgipile.loader.checkpoint import STATE_VERSION, checked
from corgipile.loader.content import Content
from corgipile.loader.default_order import LABEL
from corgipile.loader.segments import EpochSegment, dealt, next_worker, remainder
from corgipile.orders import Blocks, Key, Order, seek, turns_of, visited_rows
from corgipile.sizes import MAX_EPOCH, whole
from corgipile.tables.fingerprints import fingerprint_of
from corgipile.tables.io.sources import files_read
from corgipile.tables.row_place import origin
from corgipile.tables.subset import Subset
from corgipile.tables.table import IntArray, Table

__all__ = ["Rewind", "Rewindable", "Visit"]

MAX_NAMED_ROWS, MAX_NAMED_FILES = 64, 8  # rows and files of a batch that messages list


class Visit(NamedTuple):
    """A visit of a row.

    Attributes:
        row: Row number in the table.
        epoch: The epoch.
        step: The epoch's batch, from 0; each rank has one per step.
        rank: The rank that has the row.
        place: The row's place in the batch.
    """

    row: int
    epoch: int
    step: int
    rank: int
    place: int


@dataclass(frozen=True)
class _EpochPart:
    """A segment of an epoch, over the rows that earlier segments left.

    Attributes:
        first: The segment's first step.
        limits: Batches of each worker in the segment.
    """

    table: Table
    segment: EpochSegment
    order: Order
    blocks: Blocks
    first: int
    limits: list[int]

    @property
    def stop(self) -> int:
        """Return the step after the last one."""
        return self.first + sum(self.limits)

    def numbers(self, rows: IntArray, below: Table) -> IntArray:
        """Return the rows' numbers in the whole table."""
        table = self.table
        while table is not below and isinstance(table, Subset):
            rows, table = table.places(rows), table.table
        return rows

    def within(self, rows: IntArray, whole: Table) -> IntArray:
        """Return the numbers in this segment's table of the whole table's rows, if they have one."""
        tables: list[Subset] = []
        table = self.table
        while table is not whole and isinstance(table, Subset):
            tables.append(table)
            table = table.table
        for subset in reversed(tables):
            rows = subset.within(rows)
        return rows

    def step(self, worker: int, batches: IntArray) -> IntArray:
        """Return the steps of a worker's batches; workers take turns until they are done."""
        others = (np.minimum(most, batches + (i < worker)) for i, most in enumerate(self.limits) if i != worker)
        return self.first + batches + sum(others, np.zeros(len(batches), np.int64))


class Rewind:
    """Finds rows by steps and steps by rows, without reading rows but for the column that an order balances by.

    Args:
        table: The table.
        seed: Seed of all epochs.
        epoch: The segments' epoch.
        segments: The epoch's segments; the last one may be running, and other epochs are assumed to run like it.
        order: The last segment's order over the whole table and its blocks, if known.
        look: Describes blocks, see `corgipile.loader.budget.sketched`; by default by a column or by content.
        rank: Default rank of queries.

    Example:
        >>> import corgipile as cp, pyarrow as pa
        >>> table = cp.open(pa.table({"x": range(10)}))
        >>> loader = cp.Loader(table, batch_size=4, seed=1)
        >>> state = loader.state_dict()
        >>> rewind = Rewind.of(table, state)
        >>> rows = rewind.rows_of(1)
        >>> rows.tolist() == next(batch["x"].tolist() for step, batch in enumerate(loader) if step == 1)
        True
        >>> rewind.visits_of(int(rows[2]))[0][1:]
        (0, 1, 0, 2)
    """

    def __init__(
        self,
        table: Table,
        seed: int,
        epoch: int,
        segments: Sequence[EpochSegment],
        order: tuple[Order, Blocks] | None = None,
        look: Sketch | None = None,
        rank: int = 0,
    ) -> None:
        self._look: Sketch = look or Content(tuple(table.schema.names), LABEL)
        self._table, self._seed, self.epoch, self._segments, self._order = table, seed, epoch, list(segments), order
        self._rank = rank
        self._cache: dict[int, list[_EpochPart]] = {}

    @classmethod
    def of(cls, table: Table, state: Mapping[str, Any]) -> "Rewind":
        """Return a rewind of a loader's or dataset's state.

        Raises:
            StateMismatch: The state belongs to another table, is no state, or has no batches and ranks.
        """
        if not isinstance(state, Mapping):
            raise StateMismatch(f"a state must be a dictionary, got {state!r}")
        encoding = state.get("encoding")
        if encoding is not None:
            try:
                table = Encoding.of(encoding).table(table)
            except (BadArgument, BadSchema, MissingColumn) as error:
                raise StateMismatch(f"state has features that this table lacks: {error}") from None
        identity = {"version": STATE_VERSION, "table": fingerprint_of(table), "encoding": encoding}
        epoch, segments = checked(state, identity)
        try:
            seed = whole(state.get("seed"), "seed")
        except BadArgument as error:
            raise StateMismatch(f"state has no seed: {error}") from None
        if not segments:
            raise StateMismatch("state belongs to an epoch that has not begun: its number of ranks is unknown")
        return cls(table, seed, epoch, segments)

    def steps(self, epoch: int | None = None) -> int:
        """Return the number of steps of an epoch; None: the state's epoch."""
        return self._parts(epoch)[-1].stop

    def world_of(self, step: int, *, epoch: int | None = None) -> int:
        """Return the number of ranks that run a step."""
        return self._part(step, epoch).segment.world

    def rows_of(self, step: int, *, rank: int | None = None, epoch: int | None = None) -> IntArray:
        """Return the row numbers of a rank's batch, int64[rows].

        Args:
            step: The epoch's batch, from 0.
            rank: The rank; None: this process's rank, or 0.
            epoch: The epoch; None: the state's epoch.

        Raises:
            BadArgument: The epoch has no such step, or the step no such rank.
        """
        part = self._part(step, epoch)
        rank = self._rank if rank is None else whole(rank, "rank", 0)
        if rank >= part.segment.world:
            raise BadArgument(f"rank must be below {part.segment.world}, the ranks of step {step}, got {rank}")
        done = dealt(part.limits, step - part.first)
        worker = next_worker(done, part.limits)
        key = part.segment.key(self._seed, self._epoch(epoch), rank, worker)
        size = part.segment.batch_size
        rows = _visited(part.order, part.blocks, key, done[worker] * size, size)
        return part.numbers(rows, self._table)

    def describe_batch(self, worker: int, batch: int) -> str:
        """Return a message's description of a worker's batch: its step, rows and files."""
        step = int(self._parts(None)[-1].step(worker, np.array([batch]))[0])
        rows = self.rows_of(step).tolist()
        places = [place_of(self._table, row) for row in rows[:MAX_NAMED_ROWS]]
        files = list(dict.fromkeys(path for _, path in places if path))
        some = ", ".join(map(str, rows[:MAX_NAMED_ROWS])) + ", ..." * (len(rows) > MAX_NAMED_ROWS)
        where = f" of {', '.join(files[:MAX_NAMED_FILES])}{', ...' * (len(files) > MAX_NAMED_FILES)}" if files else ""
        if len(rows) == 1 and files:
            some, where = f"{rows[0]}", f" (row {places[0][0]}{where})"
        return f"batch {step} of epoch {self.epoch}, row{'s' * (len(rows) > 1)} {some}{where}"

    def size_of(self, step: int, *, rank: int, epoch: int | None = None) -> int:
        """Return the number of rows of a rank's batch."""
        part = self._part(step, epoch)
        done = dealt(part.limits, step - part.first)
        worker = next_worker(done, part.limits)
        visits = part.order.visits(part.blocks, part.segment.key(self._seed, self._epoch(epoch), rank, worker))
        return min(part.segment.batch_size, visits - done[worker] * part.segment.batch_size)

    def visits_of(self, rows: int | npt.ArrayLike, *, epoch: int | None = None) -> list[Visit]:
        """Return the visits of rows in an epoch, by step; ``drop_last`` may leave out a row, and ranks may repeat one.

        This follows all visits without data: some seconds for a hundred million rows.

        Args:
            rows: A row number, or several.
            epoch: The epoch; None: the state's epoch.

        Raises:
            BadArgument: The table has no such row.
        """
        wanted = np.unique(np.asarray(rows))
        if wanted.dtype.kind not in "iu" or (wanted.size and not 0 <= wanted[0] <= wanted[-1] < len(self._table)):
            raise BadArgument(f"row must be from 0 to {len(self._table) - 1}, got {rows!r}")
        visits = [visit for part in self._parts(epoch) for visit in self._find_visits(part, wanted, self._epoch(epoch))]
        return sorted(visits, key=lambda visit: visit[1:])

    def _find_visits(self, part: _EpochPart, wanted: npt.NDArray[Any], epoch: int) -> Iterator[Visit]:
        size, local = part.segment.batch_size, part.within(wanted.astype(np.int64), self._table)
        for rank in range(part.segment.world) if len(local) else ():
            for worker, most in enumerate(part.limits):
                at, key = 0, part.segment.key(self._seed, epoch, rank, worker)
                for places, visited, count in turns_of(local, part.order, part.blocks, key) if most else ():
                    hits = at + places[at + places < most * size]
                    numbers = part.numbers(visited[: len(hits)], self._table).tolist()
                    for hit, row, step in zip(
                        hits.tolist(), numbers, part.step(worker, hits // size).tolist(), strict=True
                    ):
                        yield Visit(row, epoch, step, rank, hit % size)
                    at += count
                    if at >= most * size:
                        break

    def _epoch(self, epoch: int | None) -> int:
        return self.epoch if epoch is None else whole(epoch, "epoch", 0, MAX_EPOCH)

    def _part(self, step: int, epoch: int | None) -> _EpochPart:
        step, steps = whole(step, "step", 0), self.steps(epoch)
        if step >= steps:
            raise BadArgument(f"step must be below {steps}, the steps of epoch {self._epoch(epoch)}, got {step}")
        return next(part for part in self._parts(epoch) if step < part.stop)

    def _parts(self, epoch: int | None) -> list[_EpochPart]:
        epoch = self._epoch(epoch)
        if epoch not in self._cache:
            last = self._segments[-1]
            whole_epoch = [last._replace(batches=[0] * len(last.batches))]
            self._cache = {epoch: self._make_parts(epoch, self._segments if epoch == self.epoch else whole_epoch)}
        return self._cache[epoch]

    def _make_parts(self, epoch: int, segments: list[EpochSegment]) -> list[_EpochPart]:
        parts: list[_EpochPart] = []
        table, first = self._table, 0
        for segment in segments:
            last = segment is segments[-1]
            order = self._order if last and table is self._table else None
            if order:
                fitted = Fitted(*order, segment.cut, segment.columns)
            else:
                fitted = segment.fitted(table, self._look, self.epoch)
            limits = segment.totals(fitted, self._seed, epoch) if last else segment.batches
            parts.append(_EpochPart(table, segment, fitted.order, fitted.blocks, first, limits))
            first = parts[-1].stop
            table = table if last else remainder(table, self._seed, epoch, [segment], self._look)
        return parts


class Rewindable:
    """Base of loaders and datasets that find the rows of a step, see `Rewind`."""

    def rewind(self) -> Rewind:
        """Return a `Rewind` that answers many queries."""
        raise NotImplementedError

    def rows_of(self, step: int, *, rank: int | None = None, epoch: int | None = None) -> IntArray:
        """Return the row numbers of a batch, int64[rows], without reading data.

        Args:
            step: The epoch's batch, from 0, with all workers' batches in turn.
            rank: The rank; None: this process's rank.
            epoch: The epoch; None: that of the running iteration, or the next one.

        Raises:
            BadArgument: The epoch has no such step, or the step no such rank.

        Example:
            >>> import corgipile as cp, pyarrow as pa
            >>> loader = cp.Loader(pa.table({"x": range(10)}), batch_size=4)
            >>> [loader.rows_of(step).tolist() for step in range(3)] == [batch["x"].tolist() for batch in loader]
            True
        """
        return self.rewind().rows_of(step, rank=rank, epoch=epoch)

    def visits_of(self, rows: int | npt.ArrayLike, *, epoch: int | None = None) -> list[Visit]:
        """Return the visits of rows in an epoch, on all ranks: see `corgipile.loader.Rewind`."""
        return self.rewind().visits_of(rows, epoch=epoch)

    def visit_of(self, row: int, *, epoch: int | None = None) -> Visit | None:
        """Return a row's first visit in an epoch; None: the epoch leaves it out (``drop_last``).

        Example:
            >>> import corgipile as cp, pyarrow as pa
            >>> loader = cp.Loader(pa.table({"x": range(10)}), batch_size=4)
            >>> visit = loader.visit_of(7)
            >>> loader.rows_of(visit.step, rank=visit.rank)[visit.place].item()
            7
        """
        return next(iter(self.visits_of(row, epoch=epoch)), None)


def place_of(table: Table, row: int) -> tuple[int, str]:
    """Return a row's number within its file, and the file; in memory, the row and ''.

    Example:
        >>> from corgipile.tables import open
        >>> place_of(open({"x": [1, 2]}), 1)
        (1, '')
    """
    table, row = origin(table, row)
    paths = {str(file.path) for file in files_read(table)}
    return row, paths.pop() if len(paths) == 1 else ""


def _visited(order: Order, blocks: Blocks, key: Key, start: int, most: int) -> IntArray:
    """Return the rows of up to ``most`` visits of a pass, from visit ``start`` on."""
    step, offset = seek(order, blocks, key, start)
    places = [np.zeros(0, np.int64)]
    for visited in visited_rows(order, blocks, key, step):
        some = visited[offset : offset + most]
        places.append(some)
        offset, most = max(0, offset - len(visited)), most - len(some)
        if not most:
            break
    return np.concatenate(places)
