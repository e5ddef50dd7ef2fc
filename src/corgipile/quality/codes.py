"""Class codes in order of first appearance."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import BadArgument
from corgipile.quality.keys import MAX_CLASSES, MAX_FLOAT_CLASSES

Codes = npt.NDArray[np.int64]
_MIN_TABLED, _MAX_TABLED = -(1 << 15), 1 << 16  # bounds of whole numbers in the lookup table


class Classes:
    """Assigns codes to the values of a key; None means that the key is numeric.

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
        self._buffer: Codes = np.zeros(0, np.int64)
        self.learn(list(names))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the lookup table and the buffer, which are rebuilt."""
        return {**self.__dict__, "_table": None, "_buffer": self._buffer[:0]}

    def codes(self, values: npt.NDArray[Any]) -> Codes | None:
        """Return each value's code, valid until the next call; None if values are not classes."""
        if values.ndim != 1:
            return None
        max_classes = MAX_CLASSES
        if values.dtype.kind == "f":
            if not (np.isfinite(values).all() and (values == np.floor(values)).all()):
                return None
            values, max_classes = values.astype(np.int64), MAX_FLOAT_CLASSES
        if values.dtype.kind in "iub":
            return self._number_codes(np.ascontiguousarray(values, np.int64), max_classes)
        names, inverse = np.unique(values, return_inverse=True)
        return self.learn(names.tolist())[inverse]

    def _number_codes(self, values: Codes, max_classes: int) -> Codes | None:
        if self._table is None:
            self._table = np.full(_MAX_TABLED - _MIN_TABLED, -1, np.int64)
        if len(self._buffer) < len(values):
            self._buffer = np.empty(len(values), np.int64)  # reused memory is cheaper than new
        codes = self._buffer[: len(values)]
        if _kernel.classes_find(values, self._table, _MIN_TABLED, codes) == len(values):
            return codes
        if values.min() >= _MIN_TABLED and values.max() < _MAX_TABLED:
            new = np.unique(values)
            if len({*self.names, *new.tolist()}) > max_classes:
                return None
            self._table[new - _MIN_TABLED] = self.learn(new.tolist())
            return self._table[values - _MIN_TABLED]
        names, inverse = np.unique(values, return_inverse=True)
        return None if len(names) > max_classes else self.learn(names.tolist())[inverse]

    def learn(self, names: list[Any]) -> Codes:
        """Return the codes of classes, assigning new codes to new ones."""
        new = [name for name in names if name not in self._known]
        if len(self.names) + len(new) > MAX_CLASSES:
            excess = f"at most {MAX_CLASSES} classes, got more, such as {new[-1]!r}"
            raise BadArgument(f"key must have {excess}: give a coarser key, such as a function of it")
        for name in new:
            self._known[name] = len(self.names)
            self.names.append(name)
        return np.array([self._known[name] for name in names], np.int64)
