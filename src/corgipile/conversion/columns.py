"""Selection of columns, naming of the label, and packing of scalar columns into one list of features."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from corgipile.conversion.stream import Stream
from corgipile.errors import BadSchema, BadValue, MissingColumn
from corgipile.suggestions import did_you_mean, listed
from corgipile.tables.spans import array_of, flat
from corgipile.tables.table import check_columns

LABEL = "label"
FEATURES = "features"


def shape(found: Stream, label: str | int | None, columns: Sequence[str] | None, pack: bool) -> Stream:
    """Return the stream with selected columns, a named label and packed scalars."""
    schema = found.schema
    target = label_name(schema.names, label) if found.labelled else None
    if columns is not None:
        names = check_columns(schema, columns)
        selected = [field for field in schema if field.name in names or field.name == target]
        schema = pa.schema(selected, schema.metadata)
    if target is not None and target != LABEL and LABEL in schema.names:
        raise BadSchema(f"column {target!r} cannot be renamed 'label': another column has that name")
    names = list(schema.names)
    named = [LABEL if name == target else name for name in names]
    batches: Iterable[pa.RecordBatch] = (batch.select(names).rename_columns(named) for batch in found.batches)
    fields = [field.with_name(name) for field, name in zip(schema, named, strict=True)]
    schema = pa.schema(fields, schema.metadata)
    if not pack:
        return found._replace(schema=schema, batches=iter(batches))
    scalars = [field.name for field in schema if field.name != LABEL and _number(field.type)]
    schema = _packed_schema(schema, scalars)
    return found._replace(schema=schema, batches=_pack(batches, schema, scalars, found.first))


def label_name(names: Sequence[str], label: str | int | None) -> str | None:
    """Return the name of the label column, given by name or position; by default "label" if present.

    Example:
        >>> label_name(["x", "y"], -1)
        'y'
    """
    if label is None:
        return LABEL if LABEL in names else None
    if isinstance(label, int):
        if not -len(names) <= label < len(names):
            raise MissingColumn(f"label must be a column position below {len(names)}, got {label}")
        return names[label]
    if label not in names:
        raise MissingColumn(f"no column {label!r}; the source has {listed(names)}{did_you_mean(label, names)}")
    return label


def _number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _packed_schema(schema: pa.Schema, scalars: Sequence[str]) -> pa.Schema:
    if not scalars:
        raise BadSchema(f"pack needs a numeric column besides the label, got {schema.to_string()}")
    others = [field for field in schema if field.name not in scalars]
    if any(field.name == FEATURES for field in others):
        raise BadSchema("pack needs the name 'features', which a column that is not numeric has")
    packed = pa.list_(pa.field("item", pa.float32(), nullable=False), len(scalars))
    return pa.schema([pa.field(FEATURES, packed, nullable=False), *others], schema.metadata)


def _pack(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, scalars: Sequence[str], done: int
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        matrix = np.empty((batch.num_rows, len(scalars)), np.float32)
        for at, name in enumerate(scalars):
            column = batch.column(name)
            if column.null_count:
                row = done + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
                raise BadValue(f"column {name!r}, row {row} must be a number to be packed, got null")
            matrix[:, at] = flat(column)
        features = pa.FixedSizeListArray.from_arrays(array_of(matrix), type=schema.field(FEATURES).type)
        rest = [batch.column(name) for name in schema.names[1:]]
        yield pa.RecordBatch.from_arrays([features, *rest], schema=schema)
        done += batch.num_rows
