"""Internal names of models pinned for one statement; users see the models' own names."""

from collections.abc import Iterator

import pyarrow as pa

from corgipile.sql.engines.duckdb.binding import literal

__all__ = ["Pins"]

MARK = "\x01"  # first character of every internal name
EXPLAINED = ["explain_key", "explain_value"]


class Pins(dict[str, str]):
    r"""Maps a statement's internal model names to the models' own names.

    Example:
        >>> pins = Pins({"\x0112": "m"})
        >>> pins.plain("predict('\x0112', x)")
        "predict('m', x)"
    """

    @staticmethod
    def key(number: int, name: str) -> str:
        r"""Return the internal name for a number, as long as the model's own so that error carets stay in place.

        Example:
            >>> Pins.key(12, "fraud")
            '\x010012'
        """
        return MARK + str(number).zfill(len(name) - 1)

    def plain(self, text: str) -> str:
        """Replace internal names in the engine's text by the models' own."""
        if MARK in text:
            for key, name in self.items():
                text = text.replace(literal(key), literal(name)).replace(key, name)
        return text

    def answer(self, schema: pa.Schema, parts: Iterator[pa.RecordBatch]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Replace internal names in a result's column names and in the text of a query plan."""
        is_plan = bool(self) and schema.names == EXPLAINED
        if not is_plan and not any(MARK in name for name in schema.names):
            return schema, parts
        named = pa.schema([field.with_name(self.plain(field.name)) for field in schema], schema.metadata)
        return named, (
            pa.RecordBatch.from_arrays(list(map(self._texts, part.columns) if is_plan else part.columns), schema=named)
            for part in parts
        )

    def _texts(self, column: pa.Array) -> pa.Array:
        return pa.array(map(self.plain, column.to_pylist()), column.type)
