"""Steps and rows that a training skips, on all ranks and after every resume."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, StateMismatch
from corgipile.loader.batches import Cut
from corgipile.loader.rewind import Rewind
from corgipile.loader.segments import dealt, next_worker
from corgipile.loader.sparse import SparseRows
from corgipile.sizes import MAX_EPOCH, whole
from corgipile.tables.spans import Rows

__all__ = ["Skipped", "Skips", "cut_without", "drop_rows"]

SKIP_RULE = "row numbers, and pairs of epoch and step such as (0, 340)"


class Skipped(NamedTuple):
    """A worker's skipped batches and rows of an epoch.

    Attributes:
        batches: Skipped batches.
        rows: Places of skipped rows in other batches, by batch.
    """

    batches: frozenset[int] = frozenset()
    rows: dict[int, list[int]] = {}  # noqa: RUF012 - a tuple's default, which nothing changes


class Skips:
    """Steps of epochs and rows to skip.

    Args:
        given: Row numbers, and pairs of epoch and step (the epoch's batch, from 0).

    Raises:
        BadArgument: ``given`` has something else.

    Example:
        >>> skips = Skips([(0, 3), 17, (2, 5), (2, 0)])
        >>> skips.steps(2), skips.state()
        ([0, 5], [17, [0, 3], [2, 0], [2, 5]])
    """

    def __init__(self, given: Iterable[Any] = ()) -> None:
        self._steps: set[tuple[int, int]] = set()
        self._rows: set[int] = set()
        self.add(given)

    def __bool__(self) -> bool:
        return bool(self._steps or self._rows)

    def add(self, given: Any) -> None:
        """Add rows and steps."""
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise BadArgument(f"skip must be {SKIP_RULE}, got {given!r}")
        for item in given:
            if not isinstance(item, str) and isinstance(item, Sequence | np.ndarray) and len(item) == 2:
                self._steps.add((whole(item[0], "epoch of skip", 0, MAX_EPOCH), whole(item[1], "step of skip", 0)))
            elif isinstance(item, int | np.integer) and not isinstance(item, bool):
                self._rows.add(whole(item, "row of skip", 0))
            else:
                raise BadArgument(f"skip must have {SKIP_RULE}, got {item!r}")

    def check(self, rows: int) -> None:
        """Raise BadArgument if a table of ``rows`` rows lacks a skipped row."""
        if self._rows and max(self._rows) >= rows:
            raise BadArgument(f"skip must have rows from 0 to {rows - 1}, got {max(self._rows)}")

    def resume(self, state: Any, rows: int) -> None:
        """Add a state's skips for a table of ``rows`` rows; raise StateMismatch for invalid ones."""
        try:
            self.add(state)
            self.check(rows)
        except BadArgument as error:
            raise StateMismatch(f"state is invalid: {error}") from None

    def state(self) -> list[Any]:
        """Return all skips as a JSON list."""
        return [*sorted(self._rows), *(list(pair) for pair in sorted(self._steps))]

    def steps(self, epoch: int) -> list[int]:
        """Return the skipped steps of an epoch."""
        return sorted(step for of, step in self._steps if of == epoch)

    def of(self, rewind: Rewind, epoch: int, totals: Sequence[int], rank: int, worker: int, first: int = 0) -> Skipped:
        """Return the batches and rows that a worker skips in an epoch.

        A step whose rows are all skipped on one rank is skipped on all ranks, which keeps them in step. The workers
        take turns from step ``first`` on until each has ``totals`` batches.
        """
        named = np.array(sorted(self._rows), np.int64)
        visits = [visit for visit in rewind.visits_of(named, epoch=epoch) if visit.step >= first] if self._rows else []
        lost = Counter((visit.step, visit.rank) for visit in visits)
        empty = {step for (step, of), skipped in lost.items() if skipped == rewind.size_of(step, rank=of, epoch=epoch)}
        steps = {step - first for step in {*self.steps(epoch), *empty} if 0 <= step - first < sum(totals)}
        places_by_step: dict[int, list[int]] = {}
        for visit in visits:
            if visit.rank == rank and visit.step - first not in steps:
                places_by_step.setdefault(visit.step - first, []).append(visit.place)
        turns = {step: _turn(totals, step, worker) for step in {*steps, *places_by_step}}
        return Skipped(
            frozenset(turn for step in steps if (turn := turns[step]) is not None),
            {turn: places for step, places in places_by_step.items() if (turn := turns[step]) is not None},
        )


def cut_without(
    lost: Mapping[int, Sequence[int]], first: int, cut: Cut, columns: dict[str, Any], rows: int, size: int
) -> Iterator[Any]:
    """Cut columns into batches of ``size`` rows without the lost rows; ``first`` is the first batch's number.

    Example:
        >>> from corgipile.loader.batches import cutter
        >>> batches = cut_without({4: [0, 2]}, 3, cutter("numpy"), {"x": np.arange(8)}, 8, 3)
        >>> [batch["x"].tolist() for batch in batches]
        [[0, 1, 2], [4], [6, 7]]
    """
    if not any(first <= batch < first + -(-rows // size) for batch in lost):
        return cut(columns, rows, size)

    def cut_batch(batch: int, start: int) -> Iterator[Any]:
        part = {name: column[start : start + size] for name, column in columns.items()}
        count, skipped = min(size, rows - start), lost.get(batch, ())
        return cut(drop_rows(part, count, skipped) if skipped else part, count - len(skipped), size)

    return chain.from_iterable(cut_batch(*at) for at in enumerate(range(0, rows, size), first))


def drop_rows(columns: dict[str, Any], rows: int, places: Sequence[int]) -> dict[str, Any]:
    """Return a batch's columns without some rows.

    Example:
        >>> drop_rows({"x": np.arange(4), "y": ["a", "b", "c", "d"]}, 4, [1, 3])
        {'x': array([0, 2]), 'y': ['a', 'c']}
    """
    left = np.delete(np.arange(rows), places)
    return {name: _take(column, left) for name, column in columns.items()}


def _take(column: Any, left: npt.NDArray[np.int64]) -> Any:
    if isinstance(column, Rows):
        return column.taken(left)
    if isinstance(column, list):
        return [column[row] for row in left.tolist()]
    return column.take(left) if isinstance(column, pa.Array | SparseRows) else column[left]


def _turn(totals: Sequence[int], step: int, worker: int) -> int | None:
    """Return a step's number among a worker's batches; None: it belongs to another worker."""
    done = dealt(totals, step)
    return done[worker] if next_worker(done, totals) == worker else None
