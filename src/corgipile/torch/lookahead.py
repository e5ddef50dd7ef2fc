"""Batches of row numbers that know the batches to come, so that these can be fetched ahead in any process."""

import secrets
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from corgipile.sizes import whole

__all__ = ["Announced", "Lookahead"]

MOST_AHEAD = 64


class Announced(list[Any]):
    """Row numbers of one batch; a plain list to everybody but `Concurrent`.

    Attributes:
        turn: Names the pass of the sampler.
        number: Number of the batch in it.
        following: Row numbers of the batches that follow.
    """

    turn: int
    number: int
    following: list[Any]


class Lookahead:
    """Yields the batches of a batch sampler, drawing some ahead; see `Concurrent.ahead`.

    The batches carry what follows, so nothing is shared between sampler and dataset: worker processes get the word with
    the row numbers. What else is asked of this object, such as ``set_epoch``, is the sampler's.

    Args:
        sampler: Yields lists of row numbers.
        batches: How many batches are drawn ahead.

    Example:
        >>> [(batch, batch.following) for batch in Lookahead([[3, 1], [0], [2]], batches=1)]
        [([3, 1], [[0]]), ([0], [[2]]), ([2], [])]
    """

    def __init__(self, sampler: Iterable[Any], batches: int = 4) -> None:
        self._sampler, self._batches = sampler, whole(batches, "batches", 0, MOST_AHEAD)
        self._state: Any = None
        self._given = self._skip = 0

    def __len__(self) -> int:
        return len(self._sampler)  # type: ignore[arg-type]  # a sampler without length raises its own error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._sampler, name)

    def __iter__(self) -> Iterator[Announced]:
        drawn = iter(self._sampler)
        for _ in range(self._skip):
            next(drawn, None)
        turn, self._given, self._skip = secrets.randbits(63), self._skip, 0
        waiting: deque[tuple[Any, Any]] = deque()
        for rows in drawn:
            waiting.append((rows, self._sampler_state()))
            if len(waiting) > self._batches:
                yield self._announce(turn, waiting)
        while waiting:
            yield self._announce(turn, waiting)

    def _announce(self, turn: int, waiting: deque[tuple[Any, Any]]) -> Announced:
        rows, self._state = waiting.popleft()
        batch = Announced(rows)
        batch.turn, batch.number, batch.following = turn, self._given, [rows for rows, _ in waiting]
        self._given += 1
        return batch

    def _sampler_state(self) -> Any:
        state = getattr(self._sampler, "state_dict", None)
        return state() if callable(state) else None

    def state_dict(self) -> dict[str, Any]:
        """Return where the batches handed out end, not those drawn ahead."""
        return {"batches": self._given, "sampler": self._state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue after the batches handed out: by the sampler's own state, or by drawing those again."""
        if state["sampler"] is not None:
            self._sampler.load_state_dict(state["sampler"])  # type: ignore[attr-defined]
        self._skip = state["batches"] if state["sampler"] is None else 0
