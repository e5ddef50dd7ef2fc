"""Writes SQL for PostgreSQL; the driver quotes values and names."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from corgipile.sql.engines.engine import Values
from corgipile.sql.engines.postgres.faults import library, translate_errors
from corgipile.sql.statements import Fragment, ModelCall

if TYPE_CHECKING:
    from corgipile.sql.engines.postgres.session import Session

__all__ = ["Writer"]


class Writer:
    """Writes fragments of a statement.

    Values become literals, since utility statements take no parameters.
    """

    def __init__(self, session: "Session", values: Values, call: Callable[[ModelCall, "Writer"], str]) -> None:
        self._connection, self.values, self._call = session.connection, values, call

    def text(self, fragment: Fragment) -> str:
        """Write a fragment."""
        return fragment.written(lambda one: self.literal(one.of(self.values)), lambda one: self._call(one, self))

    def literal(self, value: Any) -> str:
        """Write a value as a literal."""
        if isinstance(value, dict):
            value = library().types.json.Jsonb(value)
        with translate_errors():
            return str(library().sql.Literal(value).as_string(self._connection))

    def name(self, *parts: str) -> str:
        """Write a name with its schema, quoted."""
        return str(library().sql.Identifier(*parts).as_string(self._connection))
