"""Results as CSV or as one JSON document."""

import csv
import io
import json
from itertools import count
from typing import Any, BinaryIO, TextIO

import pyarrow as pa

from corgipile.lazy import lazy
from corgipile.sql.answers.answers import Answers
from corgipile.sql.answers.cells import json_values
from corgipile.sql.engines.engine import Result

__all__ = ["CsvAnswers", "JsonAnswers"]

arrow_csv = lazy("pyarrow.csv")


class CsvAnswers(Answers):
    r"""Writes UTF-8 CSV: a header, then all rows; text is quoted, NULL is empty, an empty line separates results.

    Example:
        >>> out, rows = io.BytesIO(), pa.table({"city": ["Oslo", None], "loss": [0.5, 0.25]})
        >>> CsvAnswers(out).show(Result(rows.schema, iter(rows.to_batches())))
        >>> print(out.getvalue().decode().strip())
        city,loss
        "Oslo",0.5
        ,0.25
    """

    def __init__(self, out: BinaryIO) -> None:
        self._out, self._some = out, False

    def show(self, result: Result) -> None:
        """Write the rows of a result, if it has any."""
        if result.schema is None:
            return
        head = io.StringIO()
        csv.writer(head, lineterminator="\n").writerow(result.schema.names)
        self._out.write(b"\n" * self._some + head.getvalue().encode())
        for batch in result.batches:
            arrow_csv.write_csv(_flat(batch), self._out, arrow_csv.WriteOptions(include_header=False))
        self._out.flush()
        self._some = True


def _flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [column if _is_flat(column.type) else _as_json(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, [str(at) for at in range(len(columns))])


def _is_flat(kind: pa.DataType) -> bool:
    types = pa.types
    tests = (types.is_integer, types.is_boolean, types.is_string, types.is_large_string, types.is_decimal)
    whole = types.is_float32(kind) or types.is_float64(kind)
    return whole or types.is_date(kind) or types.is_timestamp(kind) or any(test(kind) for test in tests)


def _as_json(column: pa.Array) -> pa.Array:
    values = json_values(column)
    plain = (value if value is None or isinstance(value, str) else json.dumps(value) for value in values)
    return pa.array(list(plain), pa.string())


class JsonAnswers(Answers):
    """Writes one JSON document: ``{"results": [{"columns": …, "rows": …, "changed": …, "notes": …}, …]}``.

    Rows are streamed, each an object; a repeated column name gets ``_2`` and so on. An error ends the document with the
    key ``"error"``.
    """

    def __init__(self, out: TextIO) -> None:
        self._out, self._open = out, False

    def show(self, result: Result) -> None:
        """Write a result."""
        self._out.write(",\n" if self._open else '{"results": [\n')
        self._open = True
        schema = pa.schema([]) if result.schema is None else result.schema
        names = _unique_names(schema.names)
        columns = [{"name": name, "type": str(one.type)} for name, one in zip(names, schema, strict=True)]
        self._out.write(f'{{"columns": {json.dumps(columns)}, "rows": [')
        before = "\n"
        try:
            for batch in result.batches:
                for row in zip(*(json_values(column) for column in batch.columns), strict=True):
                    self._out.write(before + json.dumps(dict(zip(names, row, strict=True))))
                    before = ",\n"
        finally:  # keeps the document valid after an error
            changed = None if result.count < 0 else result.count
            self._out.write(f'], "changed": {json.dumps(changed)}, "notes": {json.dumps(result.notes)}}}')

    def fail(self, kind: str, message: str, code: int) -> bool:
        """End the document with an error, if it was begun."""
        if self._open:
            self._end({"error": {"type": kind, "message": message, "code": code}})
        return self._open

    def close(self) -> None:
        """End the document."""
        if not self._open:
            self._out.write('{"results": [')
        self._end({})

    def _end(self, rest: dict[str, Any]) -> None:
        self._out.write("\n]" + "".join(f', "{name}": {json.dumps(value)}' for name, value in rest.items()) + "}\n")
        self._out.flush()


def _unique_names(names: list[str]) -> list[str]:
    """Make names unique.

    Example:
        >>> _unique_names(["a", "a", "a_2"])
        ['a', 'a_2', 'a_2_2']
    """
    unique: list[str] = []
    for name in names:
        tries = (name if many == 1 else f"{name}_{many}" for many in count(1))
        unique.append(next(one for one in tries if one not in unique))
    return unique
