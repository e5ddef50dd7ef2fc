"""Steps that a training leaves out: batches that were found to be bad, on all ranks and after every resume."""

from collections.abc import Iterable, Sequence
from typing import Any

from corgipile.errors import BadArgument, StateMismatch
from corgipile.loader.remaining import dealt, next_worker
from corgipile.sizes import MOST_EPOCH, whole

__all__ = ["Skips"]


class Skips:
    """Remember steps of epochs.

    Args:
        given: Pairs of epoch and step, the batch of the epoch from 0.

    Raises:
        BadArgument: Something else is given.

    Example:
        >>> skips = Skips([(0, 3), (2, 5), (2, 0)])
        >>> sorted(skips.of(2, [3, 3], worker=1)), skips.state()
        ([2], [[0, 3], [2, 0], [2, 5]])
    """

    def __init__(self, given: Iterable[Sequence[int]] = ()) -> None:
        self._steps: set[tuple[int, int]] = set()
        self.add(given)

    def add(self, given: Any) -> None:
        """Remember more of them."""
        right = "pairs of epoch and step, such as [(0, 340)], are right"
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise BadArgument(f"skip is {given!r}; {right}")
        for pair in given:
            if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
                raise BadArgument(f"skip has {pair!r}; {right}")
            self._steps.add((whole(pair[0], "epoch of skip", 0, MOST_EPOCH), whole(pair[1], "step of skip", 0)))

    def resume(self, state: Any) -> None:
        """Remember those of a state.

        Raises:
            StateMismatch: It has none that can be.
        """
        try:
            self.add(state)
        except BadArgument as error:
            raise StateMismatch(f"state: {error}") from None

    def state(self) -> list[list[int]]:
        """Return them for JSON."""
        return [list(pair) for pair in sorted(self._steps)]

    def of(self, epoch: int, totals: Sequence[int], worker: int) -> frozenset[int]:
        """Return which of its batches a worker leaves out; ``totals``: the batches of each, who take turns."""
        found = set()
        for step in (step for of, step in self._steps if of == epoch and step < sum(totals)):
            done = dealt(totals, step)
            if next_worker(done, totals) == worker:
                found.add(done[worker])
        return frozenset(found)
