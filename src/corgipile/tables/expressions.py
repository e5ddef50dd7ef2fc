"""Evaluation of pyarrow expressions on the rows of a table."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import arrow_compute as pc
from corgipile.errors import BadArgument, BadSchema, MissingColumn
from corgipile.lazy import lazy
from corgipile.suggestions import listed
from corgipile.tables.scan import scan
from corgipile.tables.spans import flat
from corgipile.tables.table import Table

__all__ = ["columns_of", "row_masks"]

acero = lazy("pyarrow.acero")


def columns_of(expression: Any, schema: pa.Schema) -> list[str]:
    """Return the columns that a boolean expression uses.

    Raises:
        BadArgument: The argument is not an expression, or is not boolean.
        MissingColumn: The expression names a column that does not exist.
        BadSchema: The expression does not fit the types of its columns.

    Example:
        >>> import pyarrow.compute as pc
        >>> columns_of(pc.field("x") > 1, pa.schema([("x", pa.int64()), ("y", pa.int64())]))
        ['x']
    """
    if not isinstance(expression, pc.Expression):
        raise BadArgument(
            "a filter must be an expression such as pyarrow.compute.field('year') > 2020, "
            f"got {type(expression).__name__}"
        )
    try:
        kind = _evaluated(expression, schema.empty_table()).type
    except pa.ArrowInvalid as error:
        if "No match for FieldRef" not in str(error):
            raise BadSchema(f"{expression} cannot be computed: {_first_line(error)}") from None
        raise MissingColumn(
            f"{expression} uses a column that does not exist; the table has {listed(schema.names)}"
        ) from None
    except pa.ArrowException as error:
        raise BadSchema(f"{expression} cannot be computed: {_first_line(error)}") from None
    if not pa.types.is_boolean(kind):
        raise BadArgument(f"{expression} must be true or false for each row, got {kind}")
    return [field.name for field in schema if _uses(expression, schema, field.name)]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def _uses(expression: Any, schema: pa.Schema, name: str) -> bool:
    """Return whether an expression uses a column, since it cannot be computed without it."""
    without = pa.schema([field for field in schema if field.name != name])
    try:
        _evaluated(expression, without.empty_table())
    except pa.ArrowException:
        return True
    return False


def _evaluated(expression: Any, rows: pa.Table) -> pa.ChunkedArray:
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["is"]), inputs=[source])
    return project.to_table(use_threads=False).column(0)


def row_masks(table: Table, expression: Any) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield masks of the rows, in batches, for which an expression is true; null counts as false.

    Example:
        >>> from corgipile.tables import open
        >>> import pyarrow.compute as pc
        >>> table = open(pa.table({"x": [1, None, 3], "y": [1, 2, 3]}))
        >>> [found.tolist() for found in row_masks(table, pc.field("x") > 1)]
        [[False, False, True]]
    """
    names = columns_of(expression, table.schema)
    if not names:  # a constant expression still needs one value a row
        names = table.schema.names[:1]
    for start, batch in scan(table, names):
        try:
            mask = _evaluated(expression, pa.Table.from_batches([batch]))
        except pa.ArrowException as error:
            raise BadSchema(
                f"{expression} cannot be computed for rows {start} to {start + batch.num_rows}: {_first_line(error)}"
            ) from None
        yield flat(mask.combine_chunks().fill_null(fill_value=False))
