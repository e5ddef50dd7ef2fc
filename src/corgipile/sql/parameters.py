"""Parameters of statements and their values."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from corgipile.errors import BadArgument

__all__ = ["Parameter", "check_values", "plain"]

Values = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True)
class Parameter:
    """A parameter: ``?`` and ``$1`` have numbers from 1, ``:name`` and ``$name`` have names."""

    key: int | str

    def of(self, values: Values) -> Any:
        """Return the parameter's value; raise BadArgument if it is missing.

        Example:
            >>> Parameter(2).of(["a", "b"]), Parameter("x").of({"x": 7})
            ('b', 7)
        """
        shown = f":{self.key}" if isinstance(self.key, str) else f"number {self.key}"
        if isinstance(values, Mapping):
            key = self.key if self.key in values else str(self.key)
            if key in values:
                return plain(values[key])  # type: ignore[index]  # a mapping may have integer keys
            raise BadArgument(
                f"parameter {shown} has no value; values are given for {', '.join(map(str, values)) or 'none'}"
            )
        if isinstance(self.key, str) or not 0 < self.key <= len(values):
            raise BadArgument(f"parameter {shown} has no value; the list has {len(values)} values")
        return plain(values[self.key - 1])


def plain(value: Any) -> Any:
    """Convert a NumPy or pandas value to a Python value; return other values unchanged.

    Example:
        >>> import numpy as np
        >>> plain(np.float32(0.5)), plain(np.array([1, 2])), plain(np.datetime64("2026-01-02")), plain("x")
        (0.5, [1, 2], datetime.date(2026, 1, 2), 'x')
    """
    if not hasattr(value, "dtype") or not hasattr(value, "tolist"):
        return value
    kind = str(value.dtype)
    if kind in ("datetime64[ns]", "timedelta64[ns]"):
        value = value.astype(kind.replace("ns", "us"))  # Python's types have no nanoseconds
    return value.tolist()


def check_values(values: Any, statements: Iterable[Any]) -> Values:
    """Check that values are a mapping, or a list no longer than the number of parameters; None is an empty list.

    Example:
        >>> from corgipile.sql.grammar import parse
        >>> check_values([1, 2], parse("SELECT * FROM t WHERE x IN (?)"))
        Traceback (most recent call last):
        ...
        corgipile.errors.BadArgument: 2 values were given, but the statement takes 1
    """
    values = plain(values)
    if values is None or isinstance(values, Mapping):
        return () if values is None else values
    if not isinstance(values, Sequence) or isinstance(values, str | bytes | bytearray):
        raise BadArgument(f"values must be a list, for ? and $1, or a mapping, for :name; got {values!r}")
    if values:
        keys = [parameter.key for parameter in _parameters(tuple(statements))]
        last = max((key for key in keys if isinstance(key, int)), default=0)
        if len(values) > last and not any(isinstance(key, str) for key in keys):
            given = f"{len(values)} value{'s were' if len(values) > 1 else ' was'}"
            raise BadArgument(f"{given} given, but the statement takes {last}")
    return values


def _parameters(node: Any) -> Iterator[Parameter]:
    if isinstance(node, Parameter):
        yield node
    elif is_dataclass(node):
        for item in fields(node):
            yield from _parameters(getattr(node, item.name))
    elif isinstance(node, Mapping):
        yield from _parameters(tuple(node.values()))
    elif isinstance(node, tuple | list):
        for item in node:
            yield from _parameters(item)
