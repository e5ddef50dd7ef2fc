"""Which rows an epoch visits in which step, of a small state and no log: orders know it by seed and epoch alone."""

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
from corgipile.outputs import files_read
from corgipile.sizes import MOST_EPOCH, whole
from corgipile.tables.fingerprints import fingerprint_of
from corgipile.tables.subset import Subset
from corgipile.tables.table import IntArray, Table

__all__ = ["Rewind", "Rewindable", "Visit"]

MAX_NAMED_ROWS, MAX_NAMED_FILES = 64, 8  # of a batch, in messages


class Visit(NamedTuple):
    """A row's turn.

    Attributes:
        row: Its number in the table.
        epoch: The epoch.
        step: The batch of the epoch, from 0, that holds it; all ranks take one in a step.
        rank: The rank whose batch that is.
        place: Its place in the batch.
    """

    row: int
    epoch: int
    step: int
    rank: int
    place: int


@dataclass(frozen=True)
class _Stretch:
    """A segment of an epoch, over the rows that those before it left.

    Attributes:
        first: The step that it begins with.
        limits: The batches of each worker in it.
    """

    table: Table
    segment: EpochSegment
    order: Order
    blocks: Blocks
    first: int
    limits: list[int]

    @property
    def stop(self) -> int:
        """Return the step after its last."""
        return self.first + sum(self.limits)

    def numbers(self, rows: IntArray, below: Table) -> IntArray:
        """Return the numbers that rows have in the whole table."""
        table = self.table
        while table is not below and isinstance(table, Subset):
            rows, table = table.places(rows), table.table
        return rows

    def within(self, rows: IntArray, whole: Table) -> IntArray:
        """Return the numbers that rows of the whole table have in this one, those that it has."""
        tables: list[Subset] = []
        table = self.table
        while table is not whole and isinstance(table, Subset):
            tables.append(table)
            table = table.table
        for one in reversed(tables):
            rows = one.within(rows)
        return rows

    def step(self, worker: int, batches: IntArray) -> IntArray:
        """Return the steps of a worker's batches: workers take turns while they have any left."""
        others = (np.minimum(most, batches + (one < worker)) for one, most in enumerate(self.limits) if one != worker)
        return self.first + batches + sum(others, np.zeros(len(batches), np.int64))


class Rewind:
    """Finds rows by steps and steps by rows; no row is read, but for the column that an order balances by.

    Args:
        table: The table.
        seed: Seed of all epochs.
        epoch: The epoch that segments are of.
        segments: What was run of it, the last one perhaps under way; other epochs are taken to run like the last one.
        order: The order of the last segment over the whole table, if it is at hand, and its blocks.
        look: What describes blocks, see `corgipile.loader.budget.sketched`; by default a column, or all of them.
        rank: The rank that is asked about where none is named.

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
        self._known: dict[int, list[_Stretch]] = {}

    @classmethod
    def of(cls, table: Table, state: Mapping[str, Any]) -> "Rewind":
        """Return that of a state: of a loader, or of a dataset.

        Raises:
            StateMismatch: The state is of another table, is none, or says nothing of batches and ranks.
        """
        if not isinstance(state, Mapping):
            raise StateMismatch(f"a state is a dictionary, got {state!r}")
        encoding = state.get("encoding")
        if encoding is not None:
            try:
                table = Encoding.of(encoding).table(table)
            except (BadArgument, BadSchema, MissingColumn) as error:
                raise StateMismatch(f"state has features that are not of this table: {error}") from None
        identity = {"version": STATE_VERSION, "table": fingerprint_of(table), "encoding": encoding}
        epoch, segments = checked(state, identity)
        try:
            seed = whole(state.get("seed"), "seed")
        except BadArgument as error:
            raise StateMismatch(f"state has no seed: {error}") from None
        if not segments:
            raise StateMismatch("state is of an epoch that has not begun: it does not say how many ranks run it")
        return cls(table, seed, epoch, segments)

    def steps(self, epoch: int | None = None) -> int:
        """Return the steps of an epoch; None: that of the state."""
        return self._stretches(epoch)[-1].stop

    def world_of(self, step: int, *, epoch: int | None = None) -> int:
        """Return how many ranks run a step of an epoch."""
        return self._stretch(step, epoch).segment.world

    def rows_of(self, step: int, *, rank: int | None = None, epoch: int | None = None) -> IntArray:
        """Return the numbers of the rows that a rank's batch has, int64[rows].

        Args:
            step: The batch of the epoch, from 0.
            rank: The rank; None: this process's, or 0.
            epoch: The epoch; None: that of the state.

        Raises:
            BadArgument: There is no such step, or no such rank.
        """
        one = self._stretch(step, epoch)
        rank = self._rank if rank is None else whole(rank, "rank", 0)
        if rank >= one.segment.world:
            raise BadArgument(f"rank is {rank}; step {step} was run by {one.segment.world} ranks, from 0")
        done = dealt(one.limits, step - one.first)
        worker = next_worker(done, one.limits)
        key = one.segment.key(self._seed, self._epoch(epoch), rank, worker)
        size = one.segment.batch_size
        rows = _visited(one.order, one.blocks, key, done[worker] * size, size)
        return one.numbers(rows, self._table)

    def named(self, worker: int, batch: int) -> str:
        """Return a worker's batch in words, for messages: its step, rows and files."""
        step = int(self._stretches(None)[-1].step(worker, np.array([batch]))[0])
        rows = self.rows_of(step).tolist()
        found = [place_of(self._table, row) for row in rows[:MAX_NAMED_ROWS]]
        files = list(dict.fromkeys(path for _, path in found if path))
        some = ", ".join(map(str, rows[:MAX_NAMED_ROWS])) + ", ..." * (len(rows) > MAX_NAMED_ROWS)
        where = f" of {', '.join(files[:MAX_NAMED_FILES])}{', ...' * (len(files) > MAX_NAMED_FILES)}" if files else ""
        if len(rows) == 1 and files:
            some, where = f"{rows[0]}", f" (row {found[0][0]}{where})"
        return f"batch {step} of epoch {self.epoch}, row{'s' * (len(rows) > 1)} {some}{where}"

    def size_of(self, step: int, *, rank: int, epoch: int | None = None) -> int:
        """Return how many rows a rank's batch has."""
        one = self._stretch(step, epoch)
        done = dealt(one.limits, step - one.first)
        worker = next_worker(done, one.limits)
        visits = one.order.visits(one.blocks, one.segment.key(self._seed, self._epoch(epoch), rank, worker))
        return min(one.segment.batch_size, visits - done[worker] * one.segment.batch_size)

    def visits_of(self, rows: int | npt.ArrayLike, *, epoch: int | None = None) -> list[Visit]:
        """Return when rows are visited in an epoch, by step: each once, or as often as ranks repeat it; or not at all.

        All visits of the epoch are followed, without data: some seconds for a hundred million rows.

        Args:
            rows: A row's number, or several.
            epoch: The epoch; None: that of the state.

        Raises:
            BadArgument: The table has no such row.
        """
        wanted = np.unique(np.asarray(rows))
        if wanted.dtype.kind not in "iu" or (wanted.size and not 0 <= wanted[0] <= wanted[-1] < len(self._table)):
            raise BadArgument(f"row is {rows!r}; numbers from 0 to {len(self._table) - 1} are right")
        found = [visit for one in self._stretches(epoch) for visit in self._found(one, wanted, self._epoch(epoch))]
        return sorted(found, key=lambda visit: visit[1:])

    def _found(self, one: _Stretch, wanted: npt.NDArray[Any], epoch: int) -> Iterator[Visit]:
        size, local = one.segment.batch_size, one.within(wanted.astype(np.int64), self._table)
        for rank in range(one.segment.world) if len(local) else ():
            for worker, most in enumerate(one.limits):
                at, key = 0, one.segment.key(self._seed, epoch, rank, worker)
                for places, visited, count in turns_of(local, one.order, one.blocks, key) if most else ():
                    hits = at + places[at + places < most * size]
                    numbers = one.numbers(visited[: len(hits)], self._table).tolist()
                    for hit, row, step in zip(
                        hits.tolist(), numbers, one.step(worker, hits // size).tolist(), strict=True
                    ):
                        yield Visit(row, epoch, step, rank, hit % size)
                    at += count
                    if at >= most * size:
                        break

    def _epoch(self, epoch: int | None) -> int:
        return self.epoch if epoch is None else whole(epoch, "epoch", 0, MOST_EPOCH)

    def _stretch(self, step: int, epoch: int | None) -> _Stretch:
        step, steps = whole(step, "step", 0), self.steps(epoch)
        if step >= steps:
            raise BadArgument(f"step is {step}; epoch {self._epoch(epoch)} has {steps} steps, from 0")
        return next(stretch for stretch in self._stretches(epoch) if step < stretch.stop)

    def _stretches(self, epoch: int | None) -> list[_Stretch]:
        epoch = self._epoch(epoch)
        if epoch not in self._known:
            last = self._segments[-1]
            whole_epoch = [last._replace(batches=[0] * len(last.batches))]
            self._known = {epoch: self._made(epoch, self._segments if epoch == self.epoch else whole_epoch)}
        return self._known[epoch]

    def _made(self, epoch: int, segments: list[EpochSegment]) -> list[_Stretch]:
        made: list[_Stretch] = []
        table, first = self._table, 0
        for segment in segments:
            last = segment is segments[-1]
            known = self._order if last and table is self._table else None
            if known:
                fitted = Fitted(*known, segment.cut, segment.columns)
            else:
                fitted = segment.fitted(table, self._look, self.epoch)
            if epoch and not self.epoch and not known and fitted.blocks.later is not None:
                raise StateMismatch(
                    f"state is of the first epoch, which says nothing of what epoch {epoch} is balanced by; a state of "
                    "a later epoch does, or the loader itself"
                )
            limits = segment.totals(fitted, self._seed, epoch) if last else segment.batches
            made.append(_Stretch(table, segment, fitted.order, fitted.blocks, first, limits))
            first = made[-1].stop
            table = table if last else remainder(table, self._seed, epoch, [segment], self._look)
        return made


class Rewindable:
    """What is asked which rows a step has: see `Rewind`."""

    def rewind(self) -> Rewind:
        """Return what finds rows by steps and steps by rows, for many questions."""
        raise NotImplementedError

    def rows_of(self, step: int, *, rank: int | None = None, epoch: int | None = None) -> IntArray:
        """Return the numbers of the rows in a batch of an epoch, int64[rows]; nothing is read.

        Args:
            step: Which batch, from 0; with several workers, of all of theirs in turn.
            rank: Whose; None: this one's.
            epoch: The epoch; None: that of the iteration under way, or of the next one.

        Raises:
            BadArgument: There is no such step, or no such rank.

        Example:
            >>> import corgipile as cp, pyarrow as pa
            >>> loader = cp.Loader(pa.table({"x": range(10)}), batch_size=4)
            >>> [loader.rows_of(step).tolist() for step in range(3)] == [batch["x"].tolist() for batch in loader]
            True
        """
        return self.rewind().rows_of(step, rank=rank, epoch=epoch)

    def visits_of(self, rows: int | npt.ArrayLike, *, epoch: int | None = None) -> list[Visit]:
        """Return when rows have their turn in an epoch, on any rank: see `corgipile.loader.Rewind`."""
        return self.rewind().visits_of(rows, epoch=epoch)

    def visit_of(self, row: int, *, epoch: int | None = None) -> Visit | None:
        """Return when a row has its first turn in an epoch; None: it is left out (``drop_last``).

        Example:
            >>> import corgipile as cp, pyarrow as pa
            >>> loader = cp.Loader(pa.table({"x": range(10)}), batch_size=4)
            >>> visit = loader.visit_of(7)
            >>> loader.rows_of(visit.step, rank=visit.rank)[visit.place].item()
            7
        """
        return next(iter(self.visits_of(row, epoch=epoch)), None)


def place_of(table: Any, row: int) -> tuple[int, str]:
    """Return a table row's number within its file, and the file; for a table in memory, the row and ''.

    Example:
        >>> from corgipile.tables import open
        >>> place_of(open({"x": [1, 2]}), 1)
        (1, '')
    """
    inner = table
    while inner is not None:
        table, at = inner, np.array([row])
        inner = getattr(table, "table", None)
        if hasattr(table, "parts_of"):
            [(inner, _, at)] = table.parts_of(at)
        elif hasattr(table, "places"):
            at = table.places(at)
        elif inner is not None and len(inner) != len(table):
            break
        row = int(at[0])
    paths = {str(file.path) for file in files_read(table)}
    return row, paths.pop() if len(paths) == 1 else ""


def _visited(order: Order, blocks: Blocks, key: Key, start: int, most: int) -> IntArray:
    """Return some rows of a pass, from a visit on; fewer where it ends."""
    step, offset = seek(order, blocks, key, start)
    found = [np.zeros(0, np.int64)]
    for visited in visited_rows(order, blocks, key, step):
        some = visited[offset : offset + most]
        found.append(some)
        offset, most = max(0, offset - len(visited)), most - len(some)
        if not most:
            break
    return np.concatenate(found)
