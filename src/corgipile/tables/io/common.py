"""What is kept for all tables of a process together, however many files a folder has."""

import os
import weakref
from collections.abc import Callable, Hashable
from typing import Any

from corgipile.tables.io.pieces import Recent, Value

__all__ = ["Common"]

FEWEST = 2  # values that are kept however large they are


class Common(Recent[Value]):
    """Keeps the last values made for any of many owners, as many as are of so many bytes in all.

    It is for one process: a child that is forked, perhaps while another thread has the lock, begins with none. Values
    of an owner that is gone go when the next value is made.

    Args:
        room: Bytes in all, beyond two values.
        size: Returns the bytes of a value.

    Example:
        >>> class Owner: ...
        >>> kept, one, other = Common(room=3, size=len), Owner(), Owner()
        >>> [kept.of(who, "a", lambda: "xy") for who in (one, other)], len(kept)
        (['xy', 'xy'], 2)
        >>> kept.of(one, "b", lambda: "z"), len(kept)
        ('z', 2)
    """

    def __init__(self, room: int, size: Callable[[Value], int]) -> None:
        self._size = size
        self._begin(room)
        os.register_at_fork(after_in_child=lambda: self._begin(room))

    def _begin(self, room: int) -> None:
        super().__init__(room)
        self._sizes: dict[Hashable, tuple[int, weakref.ref[Any]]] = {}
        self._total, self._gone = 0, list[Hashable]()  # bytes, and the values whose owners went

    def __len__(self) -> int:
        return len(self._values)

    def of(self, owner: Any, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value that an owner has by a key, made now if it is not kept."""
        return self.get((weakref.ref(owner), key), make)

    def _evict(self) -> None:
        last, gone = next(reversed(self._values)), self._gone
        watch = weakref.ref(last[0](), lambda _: gone.append(last))  # type: ignore[index]
        self._sizes[last] = self._size(self._values[last]), watch
        self._total += self._sizes[last][0]
        while gone:
            self._drop(gone.pop())
        while len(self._values) > FEWEST and self._total > self._room:
            self._drop(next(iter(self._values)))

    def _drop(self, key: Hashable) -> None:
        if key in self._sizes:
            del self._values[key]
            self._total -= self._sizes.pop(key)[0]
