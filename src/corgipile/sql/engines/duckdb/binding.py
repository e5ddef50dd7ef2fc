"""Writes a statement as DuckDB takes it: values are parameters, numbered anew, so that none is left over."""

from collections.abc import Callable, Mapping
from typing import Any

from corgipile.errors import BadArgument
from corgipile.sql.engines.engine import Values
from corgipile.sql.statements import Fragment, ModelCall, Parameter
from corgipile.suggestions import listed

__all__ = ["Bound", "literal", "value_of"]


class Bound:
    """SQL with the values of its parameters.

    Args:
        values: What the statement was given.
        call: Writes a call of a model, into this.

    Example:
        >>> bound = Bound([7, 8], None)
        >>> bound.text(Fragment(("SELECT ", Parameter(2), " + ", Parameter(2)))), bound.values
        ('SELECT $p1 + $p1', {'p1': 8})
    """

    def __init__(self, values: Values, call: "Callable[[ModelCall, Bound], str] | None") -> None:
        self.given, self.values = values, dict[str, Any]()
        self._call, self._names = call, dict[int | str, str]()

    def text(self, *fragments: Fragment) -> str:
        """Write fragments, one after another."""
        return "".join(self._piece(piece) for fragment in fragments for piece in fragment.pieces)

    def _piece(self, piece: str | Parameter | ModelCall) -> str:
        if isinstance(piece, str):
            return piece
        if isinstance(piece, ModelCall):
            if self._call is None:
                raise BadArgument(f"ML.{piece.function.upper()} cannot stand here")
            return self._call(piece, self)
        name = self._names.setdefault(piece.key, f"p{len(self._names) + 1}")
        self.values[name] = value_of(piece, self.given)
        return f"${name}"


def value_of(value: Any, given: Values) -> Any:
    """Return a value of a statement: one that was written there, or that was given for its place.

    Raises:
        BadArgument: None was given.

    Example:
        >>> value_of(Parameter(1), ["a"]), value_of(Parameter("n"), {"n": 2}), value_of(3, [])
        ('a', 2, 3)
    """
    if not isinstance(value, Parameter):
        return value
    if isinstance(given, Mapping) != isinstance(value.key, str):
        wanted = "a mapping from names" if isinstance(value.key, str) else "a list"
        raise BadArgument(f"the statement takes {wanted} of values for its parameters, got {type(given).__name__}")
    try:
        return given[value.key] if isinstance(given, Mapping) else given[int(value.key) - 1]
    except (KeyError, IndexError):
        known = listed(list(given)) if isinstance(given, Mapping) else str(len(given))
        raise BadArgument(f"no value was given for parameter {value.key!r}; given were {known}") from None


def literal(text: str) -> str:
    """Write text as SQL does.

    Example:
        >>> literal("it's")
        "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
