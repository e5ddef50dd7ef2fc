"""Writes a statement as DuckDB takes it: values are parameters, numbered anew, so that none is left over."""

from collections.abc import Callable
from typing import Any

from corgipile.errors import BadArgument
from corgipile.sql.engines.engine import Values
from corgipile.sql.statements import Fragment, ModelCall, Parameter
from corgipile.sql.tokens import tokenize

__all__ = ["Bound", "lasts", "literal"]

LASTING = ("VIEW", "MACRO", "FUNCTION")
KINDS_OF = ("OR", "REPLACE", "TEMP", "TEMPORARY", "RECURSIVE")  # what may stand before

Call = Callable[[ModelCall, "Bound"], str]


class Bound:
    """SQL with the values of its parameters.

    Args:
        values: What the statement was given.
        call: Writes a call of a model, into this; None: none may stand there.
        lasting: Whether the statement keeps the SQL for later, as CREATE VIEW does.

    Example:
        >>> bound = Bound([7, 8], None)
        >>> bound.text(Fragment(("SELECT ", Parameter(2), " + ", Parameter(2)))), bound.values
        ('SELECT $p1 + $p1', {'p1': 8})
    """

    def __init__(self, values: Values, call: "Call | None", *, lasting: bool = False) -> None:
        self.given, self.values, self.lasting = values, dict[str, Any](), lasting
        self._call, self._names = call, dict[int | str, str]()

    def text(self, *fragments: Fragment) -> str:
        """Write fragments, one after another."""
        return "".join(fragment.written(self._place, self._called) for fragment in fragments)

    def _called(self, call: ModelCall) -> str:
        if self._call is None:
            raise BadArgument(f"ML.{call.function.upper()} cannot stand here")
        return self._call(call, self)

    def _place(self, parameter: Parameter) -> str:
        name = self._names.setdefault(parameter.key, f"p{len(self._names) + 1}")
        self.values[name] = parameter.of(self.given)
        return f"${name}"


def lasts(sql: Fragment) -> bool:
    """Say whether a statement keeps SQL for later, when rows that were lent are gone and models are found by name.

    Example:
        >>> lasts(Fragment(("CREATE OR REPLACE VIEW v AS",))), lasts(Fragment(("CREATE TABLE view AS",)))
        (True, False)
    """
    first, *others = [*tokenize(str(next(iter(sql.pieces), ""))), None]
    if first is None or not first.says("CREATE"):
        return False
    made = next(one for one in others if one is None or not one.says(*KINDS_OF))
    return made is not None and made.says(*LASTING)


def literal(text: str) -> str:
    """Write text as SQL does.

    Example:
        >>> literal("it's")
        "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
