"""A process-wide cache with a byte limit, shared by all tables."""

import os
import weakref
from collections.abc import Callable, Hashable
from typing import Any

from corgipile.tables.io.pieces import Recent, Value

__all__ = ["Common"]

MIN_VALUES = 2  # values cached whatever their size


class Common(Recent[Value]):
    """Caches the values of many owners, evicting the least recently used beyond a byte limit.

    The cache is per process: a forked child starts with an empty one, because another thread may hold the lock. Values
    of a collected owner are dropped when the next value is made.

    Args:
        room: Bytes of all values; the last two stay whatever their size.
        size: Returns the bytes of a value.

    Example:
        >>> class Owner: ...
        >>> cache, first, second = Common(room=3, size=len), Owner(), Owner()
        >>> [cache.of(owner, "a", lambda: "xy") for owner in (first, second)], len(cache)
        (['xy', 'xy'], 2)
        >>> cache.of(first, "b", lambda: "z"), len(cache)
        ('z', 2)
    """

    def __init__(self, room: int, size: Callable[[Value], int]) -> None:
        self._size = size
        self._begin(room)
        os.register_at_fork(after_in_child=lambda: self._begin(room))

    def _begin(self, room: int) -> None:
        super().__init__(room)
        self._sizes: dict[Hashable, tuple[int, weakref.ref[Any]]] = {}
        self._total, self._orphans = 0, list[Hashable]()  # bytes; keys of collected owners

    def __len__(self) -> int:
        return len(self._values)

    def of(self, owner: Any, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return an owner's value by key; make it if it is not cached."""
        return self.get((weakref.ref(owner), key), make)

    def _evict(self) -> None:
        last, orphans = next(reversed(self._values)), self._orphans
        watch = weakref.ref(last[0](), lambda _: orphans.append(last))  # type: ignore[index]
        self._sizes[last] = self._size(self._values[last]), watch
        self._total += self._sizes[last][0]
        while orphans:
            self._drop(orphans.pop())
        while len(self._values) > MIN_VALUES and self._total > self._room:
            self._drop(next(iter(self._values)))

    def _drop(self, key: Hashable) -> None:
        if key in self._sizes:
            del self._values[key]
            self._total -= self._sizes.pop(key)[0]
