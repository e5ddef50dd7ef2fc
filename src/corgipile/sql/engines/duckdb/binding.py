"""Writes SQL for DuckDB and numbers its parameters, so that no value is unused."""

from collections.abc import Callable
from typing import Any

from corgipile.errors import BadArgument
from corgipile.sql.engines.engine import Values
from corgipile.sql.statements import Fragment, ModelCall, Parameter, Path
from corgipile.sql.tokens import tokenize

__all__ = ["BoundSql", "is_persistent", "literal"]

PERSISTENT_KINDS = ("VIEW", "MACRO", "FUNCTION")
CREATE_PREFIXES = ("OR", "REPLACE", "TEMP", "TEMPORARY", "RECURSIVE")

WritePath = Callable[[Path], str]
Call = Callable[[ModelCall, "BoundSql"], str]


class BoundSql:
    """SQL with the values of its parameters.

    ``call`` writes a model call; None: calls are not allowed here. ``persistent``: the database stores the SQL.
    ``path`` writes a table's path in backticks.

    Example:
        >>> bound = BoundSql([7, 8], None)
        >>> bound.text(Fragment(("SELECT ", Parameter(2), " + ", Parameter(2)))), bound.values
        ('SELECT $p1 + $p1', {'p1': 8})
    """

    def __init__(
        self, values: Values, call: "Call | None", *, persistent: bool = False, path: WritePath = Path.written
    ) -> None:
        self.given, self.values, self.persistent, self.path = values, dict[str, Any](), persistent, path
        self._call, self._names = call, dict[int | str, str]()

    def text(self, *fragments: Fragment) -> str:
        """Write fragments and join them."""
        return "".join(fragment.written(self._place, self._called, self.path) for fragment in fragments)

    def _called(self, call: ModelCall) -> str:
        if self._call is None:
            raise BadArgument(f"ML.{call.function.upper()} is not allowed here")
        return self._call(call, self)

    def _place(self, parameter: Parameter) -> str:
        name = self._names.setdefault(parameter.key, f"p{len(self._names) + 1}")
        self.values[name] = parameter.of(self.given)
        return f"${name}"


def is_persistent(sql: Fragment) -> bool:
    """Return whether the database stores the SQL, which then must not use lent rows or pinned models.

    Example:
        >>> is_persistent(Fragment(("CREATE OR REPLACE VIEW v AS",))), is_persistent(Fragment(("CREATE TABLE v AS",)))
        (True, False)
    """
    first, *others = [*tokenize(str(next(iter(sql.pieces), ""))), None]
    if first is None or not first.matches("CREATE"):
        return False
    kind = next(token for token in others if token is None or not token.matches(*CREATE_PREFIXES))
    return kind is not None and kind.matches(*PERSISTENT_KINDS)


def literal(text: str) -> str:
    """Quote text as an SQL literal.

    Example:
        >>> literal("it's")
        "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
