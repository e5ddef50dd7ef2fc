"""Classes of keys as they come: each value seen first is the next code."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import BadArgument
from corgipile.quality.keys import MOST_CLASSES, MOST_FLOAT_CLASSES

Codes = npt.NDArray[np.int64]
_LEAST, _MOST = -(1 << 15), 1 << 16  # whole numbers that are looked up instead of searched


class Classes:
    """Give codes to the values of a key; None says that it is no class but a number.

    Args:
        names: Those that are known.

    Example:
        >>> classes = Classes()
        >>> classes.codes(np.array(["cat", "dog", "cat"])), classes.codes(np.array(["eel", "dog"])), classes.names
        (array([0, 1, 0]), array([2, 1]), ['cat', 'dog', 'eel'])
        >>> classes.codes(np.array([0.5, 0.25])) is None
        True
    """

    def __init__(self, names: Iterable[Any] = ()) -> None:
        self.names: list[Any] = []
        self._known: dict[Any, int] = {}
        self._table: Codes | None = None
        self._room: Codes = np.zeros(0, np.int64)
        self.learn(list(names))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is made again."""
        return {**self.__dict__, "_table": None, "_room": self._room[:0]}

    def codes(self, values: npt.NDArray[Any]) -> Codes | None:
        """Return the code of each value, which the next call may overwrite; None if they are no classes."""
        if values.ndim != 1:
            return None
        most = MOST_CLASSES
        if values.dtype.kind == "f":
            if not (np.isfinite(values).all() and (values == np.floor(values)).all()):
                return None
            values, most = values.astype(np.int64), MOST_FLOAT_CLASSES
        if values.dtype.kind in "iub":
            return self._of_numbers(np.ascontiguousarray(values, np.int64), most)
        names, inverse = np.unique(values, return_inverse=True)
        return self.learn(names.tolist())[inverse]

    def _of_numbers(self, values: Codes, most: int) -> Codes | None:
        if self._table is None:
            self._table = np.full(_MOST - _LEAST, -1, np.int64)
        if len(self._room) < len(values):
            self._room = np.empty(len(values), np.int64)  # memory that is used again costs a fraction of fresh one
        codes = self._room[: len(values)]
        if _kernel.classes_find(values, self._table, _LEAST, codes) == len(values):
            return codes
        if values.min() >= _LEAST and values.max() < _MOST:
            fresh = np.unique(values)
            if len({*self.names, *fresh.tolist()}) > most:
                return None
            self._table[fresh - _LEAST] = self.learn(fresh.tolist())
            return self._table[values - _LEAST]
        names, inverse = np.unique(values, return_inverse=True)
        return None if len(names) > most else self.learn(names.tolist())[inverse]

    def learn(self, names: list[Any]) -> Codes:
        """Return the codes of classes, new ones of those that were not seen."""
        fresh = [name for name in names if name not in self._known]
        if len(self.names) + len(fresh) > MOST_CLASSES:
            kinds = f"more than {MOST_CLASSES} classes, such as {fresh[-1]!r}"
            raise BadArgument(f"key has {kinds}; a coarser key is right, such as a function of it")
        for name in fresh:
            self._known[name] = len(self.names)
            self.names.append(name)
        return np.array([self._known[name] for name in names], np.int64)
