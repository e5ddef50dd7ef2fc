"""Batch samplers whose batches carry the batches to come, for prefetching in any process."""

import secrets
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from corgipile.sizes import whole

__all__ = ["Announced", "Lookahead"]

MAX_AHEAD = 64


class Announced(list[Any]):
    """Row numbers of one batch; a plain list to all but `Concurrent`.

    Attributes:
        turn: Identifies the pass of the sampler.
        number: Number of the batch in the pass.
        following: Row numbers of the next batches.
    """

    turn: int
    number: int
    following: list[Any]


class Lookahead:
    """Yields the batches of a batch sampler, drawing some ahead; see `Concurrent.ahead`.

    Each batch carries the following ones, so sampler and dataset share nothing and worker processes get both with the
    row numbers. Other attributes, such as ``set_epoch``, are the sampler's.

    Example:
        >>> [(batch, batch.following) for batch in Lookahead([[3, 1], [0], [2]], batches=1)]
        [([3, 1], [[0]]), ([0], [[2]]), ([2], [])]
    """

    def __init__(self, sampler: Iterable[Any], batches: int = 4) -> None:
        self._sampler, self._batches = sampler, whole(batches, "batches", 0, MAX_AHEAD)
        self._state: Any = None
        self._yielded = self._skip = 0

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
        turn, self._yielded, self._skip = secrets.randbits(63), self._skip, 0
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
        batch.turn, batch.number, batch.following = turn, self._yielded, [rows for rows, _ in waiting]
        self._yielded += 1
        return batch

    def _sampler_state(self) -> Any:
        state = getattr(self._sampler, "state_dict", None)
        return state() if callable(state) else None

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the batches handed out, not those drawn ahead."""
        return {"batches": self._yielded, "sampler": self._state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue after the batches handed out: by the sampler's own state, or by drawing them again."""
        if state["sampler"] is not None:
            self._sampler.load_state_dict(state["sampler"])  # type: ignore[attr-defined]
        self._skip = state["batches"] if state["sampler"] is None else 0
