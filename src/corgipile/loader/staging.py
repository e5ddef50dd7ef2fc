"""Steps cut into pieces that are read into staging memory, for slots that lie on a device."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from corgipile.loader.buffer import SlotArray
from corgipile.orders.order import Step

__all__ = ["Piece", "Stage", "pieces"]


class Stage(NamedTuple):
    """Staging memory: piece ``i`` is read into place ``i % places``, of ``room`` rows.

    A place is read into again once the consumer has requested the second piece after the one that lies there.
    """

    room: int
    places: int

    def rows(self, piece: int) -> slice:
        """Return the rows of the staging memory that hold a piece.

        Example:
            >>> Stage(10, 4).rows(5)
            slice(10, 20, None)
        """
        start = piece % self.places * self.room
        return slice(start, start + self.room)


class Piece(NamedTuple):
    """Rows in staging memory that go to slots, then slots that are visited.

    Attributes:
        into: int32[rows], the slot of each row; -1 for unwanted rows.
        visit: int32[m], slots in visiting order.
        last: Whether no later piece belongs to the same step.
    """

    into: SlotArray
    visit: SlotArray
    last: bool


def pieces(step: Step, room: int) -> Iterator[Step]:
    """Cut a step into steps of at most ``room`` rows and as many visits, which follow the rows.

    Example:
        >>> step = Step(np.array([[0, 3], [8, 10]]), np.arange(5, dtype=np.int32), np.zeros(1, np.int32))
        >>> [(piece.extents.tolist(), piece.into.tolist(), len(piece.visit)) for piece in pieces(step, 2)]
        [([[0, 2]], [0, 1], 0), ([[2, 3], [8, 9]], [2, 3], 0), ([[9, 10]], [4], 1)]
    """
    extents, into, visit = step.extents, step.into, step.visit
    rows, ends = len(into), np.cumsum(extents[:, 1] - extents[:, 0])
    if rows <= room and len(visit) <= room:
        yield step
        return
    for at in range(0, rows, room):
        stop = min(at + room, rows)
        first, last = np.searchsorted(ends, at, side="right"), np.searchsorted(ends, stop)
        part = extents[first : last + 1].copy()
        part[0, 0] = extents[first, 1] - (ends[first] - at)
        part[-1, 1] = extents[last, 1] - (ends[last] - stop)
        yield Step(part, into[at:stop], visit[: room if stop == rows else 0])
    for at in range(room if rows else 0, len(visit), room):
        yield Step(extents[:0], into[:0], visit[at : at + room])
