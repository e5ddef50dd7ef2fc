"""Writes statements as PostgreSQL takes them: values and names are quoted by the driver, all else is as it was."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from corgipile.sql.engines.engine import Values
from corgipile.sql.engines.postgres.faults import library, translated
from corgipile.sql.statements import Fragment, ModelCall, Parameter

if TYPE_CHECKING:
    from corgipile.sql.engines.postgres.session import Session

__all__ = ["Writer"]


class Writer:
    """Writes fragments of a statement.

    Values are written as literals, since utility statements take no parameters.

    Args:
        session: The session that the SQL is for.
        values: What the statement was given for its parameters.
        call: Writes a call of a model.
    """

    def __init__(self, session: "Session", values: Values, call: Callable[[ModelCall, "Writer"], str]) -> None:
        self._connection, self.values, self._call = session.connection, values, call

    def text(self, fragment: Fragment) -> str:
        """Write a fragment."""
        return fragment.written(lambda one: self.literal(one.of(self.values)), lambda one: self._call(one, self))

    def value(self, given: Any) -> Any:
        """Return a value of a setting: what was given, where it is a parameter."""
        return given.of(self.values) if isinstance(given, Parameter) else given

    def literal(self, value: Any) -> str:
        """Write a value."""
        if isinstance(value, dict):
            value = library().types.json.Jsonb(value)
        with translated():
            return str(library().sql.Literal(value).as_string(self._connection))

    def name(self, *parts: str) -> str:
        """Write a name, with its schema before it."""
        return str(library().sql.Identifier(*parts).as_string(self._connection))
