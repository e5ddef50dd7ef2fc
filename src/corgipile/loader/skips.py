"""Steps and rows that a training leaves out: what was found to be bad, on all ranks and after every resume."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, StateMismatch
from corgipile.loader.batches import Cut
from corgipile.loader.rewind import Rewind
from corgipile.loader.segments import dealt, next_worker
from corgipile.sizes import MOST_EPOCH, whole
from corgipile.tables.arrow.spans import Rows

__all__ = ["LeftOut", "Skips", "cut_without", "without"]

RIGHT = "numbers of rows, and pairs of epoch and step such as (0, 340), are right"


class LeftOut(NamedTuple):
    """What a worker leaves out of an epoch.

    Attributes:
        batches: Which of its batches.
        rows: Places of rows in its other batches, by batch.
    """

    batches: frozenset[int] = frozenset()
    rows: dict[int, list[int]] = {}  # noqa: RUF012 - a tuple's default, which nothing changes


class Skips:
    """Remember steps of epochs, and rows.

    Args:
        given: Numbers of rows, and pairs of epoch and step, the batch of the epoch from 0.

    Raises:
        BadArgument: Something else is given.

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
        """Remember more of them."""
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise BadArgument(f"skip is {given!r}; {RIGHT}")
        for one in given:
            if not isinstance(one, str) and isinstance(one, Sequence | np.ndarray) and len(one) == 2:
                self._steps.add((whole(one[0], "epoch of skip", 0, MOST_EPOCH), whole(one[1], "step of skip", 0)))
            elif isinstance(one, int | np.integer) and not isinstance(one, bool):
                self._rows.add(whole(one, "row of skip", 0))
            else:
                raise BadArgument(f"skip has {one!r}; {RIGHT}")

    def check(self, rows: int) -> None:
        """Raise BadArgument if a table of so many rows has not all that are named."""
        if self._rows and max(self._rows) >= rows:
            raise BadArgument(f"skip has row {max(self._rows)}; the table has rows 0 to {rows - 1}")

    def resume(self, state: Any, rows: int) -> None:
        """Remember those of a state, of a table of so many rows.

        Raises:
            StateMismatch: It has none that can be.
        """
        try:
            self.add(state)
            self.check(rows)
        except BadArgument as error:
            raise StateMismatch(f"state: {error}") from None

    def state(self) -> list[Any]:
        """Return them for JSON."""
        return [*sorted(self._rows), *(list(pair) for pair in sorted(self._steps))]

    def steps(self, epoch: int) -> list[int]:
        """Return the steps of an epoch that were named."""
        return sorted(step for of, step in self._steps if of == epoch)

    def of(self, rewind: Rewind, epoch: int, totals: Sequence[int], rank: int, worker: int, first: int = 0) -> LeftOut:
        """Return what a worker of a rank leaves out of an epoch.

        A step of which nothing would be left on one rank is left out on all of them, so that they stay in step.

        Args:
            rewind: What finds rows in the epoch; followed only where rows were named.
            epoch: The epoch.
            totals: The batches of each worker, who take turns.
            rank: The rank.
            worker: The worker.
            first: The step that they begin with.
        """
        named = np.array(sorted(self._rows), np.int64)
        visits = [visit for visit in rewind.visits_of(named, epoch=epoch) if visit.step >= first] if self._rows else []
        lost = Counter((visit.step, visit.rank) for visit in visits)
        empty = {step for (step, of), gone in lost.items() if gone == rewind.size_of(step, rank=of, epoch=epoch)}
        steps = {step - first for step in {*self.steps(epoch), *empty} if 0 <= step - first < sum(totals)}
        found: dict[int, list[int]] = {}
        for visit in visits:
            if visit.rank == rank and visit.step - first not in steps:
                found.setdefault(visit.step - first, []).append(visit.place)
        turns = {step: _turn(totals, step, worker) for step in {*steps, *found}}
        return LeftOut(
            frozenset(turn for step in steps if (turn := turns[step]) is not None),
            {turn: places for step, places in found.items() if (turn := turns[step]) is not None},
        )


def cut_without(
    lost: Mapping[int, Sequence[int]], first: int, cut: Cut, columns: dict[str, Any], rows: int, size: int
) -> Iterator[Any]:
    """Cut columns into batches of so many rows, of which the first is that of this number, without rows that are lost.

    Example:
        >>> from corgipile.loader.batches import cutter
        >>> made = cut_without({4: [0, 2]}, 3, cutter("numpy"), {"x": np.arange(8)}, 8, 3)
        >>> [batch["x"].tolist() for batch in made]
        [[0, 1, 2], [4], [6, 7]]
    """
    if not any(first <= batch < first + -(-rows // size) for batch in lost):
        return cut(columns, rows, size)

    def one(batch: int, start: int) -> Iterator[Any]:
        part = {name: column[start : start + size] for name, column in columns.items()}
        count, gone = min(size, rows - start), lost.get(batch, ())
        return cut(without(part, count, gone) if gone else part, count - len(gone), size)

    return chain.from_iterable(one(*at) for at in enumerate(range(0, rows, size), first))


def without(columns: dict[str, Any], rows: int, places: Sequence[int]) -> dict[str, Any]:
    """Return the columns of one batch without some of its rows.

    Example:
        >>> without({"x": np.arange(4), "y": ["a", "b", "c", "d"]}, 4, [1, 3])
        {'x': array([0, 2]), 'y': ['a', 'c']}
    """
    kept = np.delete(np.arange(rows), places)
    return {name: _taken(column, kept) for name, column in columns.items()}


def _taken(column: Any, kept: npt.NDArray[np.int64]) -> Any:
    if isinstance(column, np.ndarray):
        return column[kept]
    if isinstance(column, Rows):
        return column.taken(kept)
    if isinstance(column, list):
        return [column[row] for row in kept.tolist()]
    return column.take(kept)  # of Arrow, or sparse


def _turn(totals: Sequence[int], step: int, worker: int) -> int | None:
    """Return which of a worker's batches a step is; None if it is another's."""
    done = dealt(totals, step)
    return done[worker] if next_worker(done, totals) == worker else None
