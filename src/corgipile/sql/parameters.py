"""Places for values in statements, and the values that are given for them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from corgipile.errors import BadArgument

__all__ = ["Parameter", "fitting", "plain"]

Values = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True)
class Parameter:
    """A place for a value: ``?`` and ``$1`` are numbers from 1 on, ``:name`` and ``$name`` names."""

    key: int | str

    def of(self, values: Values) -> Any:
        """Return the value that is given for it.

        Raises:
            BadArgument: None is.

        Example:
            >>> Parameter(2).of(["a", "b"]), Parameter("x").of({"x": 7})
            ('b', 7)
        """
        shown = f":{self.key}" if isinstance(self.key, str) else f"number {self.key}"
        if isinstance(values, Mapping):
            found = self.key if self.key in values else str(self.key)
            if found in values:
                return plain(values[found])  # type: ignore[index]  # a mapping may have numbers for names
            raise BadArgument(
                f"no value is given for parameter {shown}, only for {', '.join(map(str, values)) or 'none'}"
            )
        if isinstance(self.key, str) or not 0 < self.key <= len(values):
            raise BadArgument(f"no value is given for parameter {shown}; there are {len(values)} values in a list")
        return plain(values[self.key - 1])


def plain(value: Any) -> Any:
    """Return a value of NumPy's or pandas' as one of Python's, others as they are.

    Example:
        >>> import numpy as np
        >>> plain(np.float32(0.5)), plain(np.array([1, 2])), plain(np.datetime64("2026-01-02")), plain("x")
        (0.5, [1, 2], datetime.date(2026, 1, 2), 'x')
    """
    if not hasattr(value, "dtype") or not hasattr(value, "tolist"):
        return value
    kind = str(value.dtype)
    if kind in ("datetime64[ns]", "timedelta64[ns]"):
        value = value.astype(kind.replace("ns", "us"))  # of which Python has values
    return value.tolist()


def fitting(values: Any, statements: Iterable[Any]) -> Values:
    """Check that values are a list or a mapping, and that a list has no more of them than the statements have places.

    Args:
        values: What is given; None is nothing.
        statements: The statements of a script, as they were read.

    Raises:
        BadArgument: They are neither, or too many.

    Example:
        >>> from corgipile.sql.grammar import parse
        >>> fitting([1, 2], parse("SELECT * FROM t WHERE x IN (?)"))
        Traceback (most recent call last):
        ...
        corgipile.errors.BadArgument: 2 values are given, and the statement has places for 1
    """
    values = plain(values)
    if values is None or isinstance(values, Mapping):
        return () if values is None else values
    if not isinstance(values, Sequence) or isinstance(values, str | bytes | bytearray):
        raise BadArgument(f"values must be a list, for ? and $1, or a mapping, for :name; got {values!r}")
    if values:
        keys = [one.key for one in _places(tuple(statements))]
        most = max((key for key in keys if isinstance(key, int)), default=0)
        if len(values) > most and not any(isinstance(key, str) for key in keys):
            many = f"{len(values)} value{'s are' if len(values) > 1 else ' is'}"
            raise BadArgument(f"{many} given, and the statement has places for {most}")
    return values


def _places(found: Any) -> Iterator[Parameter]:
    if isinstance(found, Parameter):
        yield found
    elif is_dataclass(found):
        for one in fields(found):
            yield from _places(getattr(found, one.name))
    elif isinstance(found, Mapping):
        yield from _places(tuple(found.values()))
    elif isinstance(found, tuple | list):
        for one in found:
            yield from _places(one)
