"""Names that stand in SQL for models which only the transaction under way sees; users see the models' own."""

from collections.abc import Iterator

import pyarrow as pa

from corgipile.sql.engines.duckdb.binding import literal

__all__ = ["Pins"]

MARK = "\x01"  # begins them all
EXPLAINED = ["explain_key", "explain_value"]


class Pins(dict[str, str]):
    r"""The models that a statement was given, by the names that stand for them in its SQL.

    Example:
        >>> pins = Pins({"\x0112": "m"})
        >>> pins.plain("predict('\x0112', x)")
        "predict('m', x)"
    """

    @staticmethod
    def key(number: int, name: str) -> str:
        r"""Make a name of a number; it is as long as the model's own, so that a caret below the SQL stays in place.

        Example:
            >>> Pins.key(12, "fraud")
            '\x010012'
        """
        return MARK + str(number).zfill(len(name) - 1)

    def plain(self, text: str) -> str:
        """Return a text of the engine with the models' own names."""
        if MARK in text:
            for key, name in self.items():
                text = text.replace(literal(key), literal(name)).replace(key, name)
        return text

    def answer(self, schema: pa.Schema, parts: Iterator[pa.RecordBatch]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return an answer whose columns are named after calls as users wrote them; so are calls in a plan."""
        planned = bool(self) and schema.names == EXPLAINED
        if not planned and not any(MARK in name for name in schema.names):
            return schema, parts
        named = pa.schema([field.with_name(self.plain(field.name)) for field in schema], schema.metadata)
        return named, (
            pa.RecordBatch.from_arrays(list(map(self._texts, part.columns) if planned else part.columns), schema=named)
            for part in parts
        )

    def _texts(self, column: pa.Array) -> pa.Array:
        return pa.array(map(self.plain, column.to_pylist()), column.type)
