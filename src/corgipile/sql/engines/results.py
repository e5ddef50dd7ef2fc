"""Result schemas and rows shared by all engines."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from corgipile.sql.engines.engine import Result

__all__ = ["EPOCHS", "MODELS", "PROPERTIES", "epoch_row", "lines", "property_rows", "result_of"]

EPOCHS = pa.schema(
    [
        ("epoch", pa.int32()),
        *((name, pa.float64()) for name in ("loss", "accuracy", "r2")),
        *((f"holdout_{name}", pa.float64()) for name in ("loss", "accuracy", "r2")),
        ("rows", pa.int64()),
        ("seconds", pa.float64()),
    ]
)
MODELS = pa.schema(
    [
        *((name, pa.string()) for name in ("name", "model")),
        *((name, pa.int64()) for name in ("features", "epochs")),
        ("loss", pa.float64()),
        ("created", pa.timestamp("us", "UTC")),
    ]
)
PROPERTIES = pa.schema([("property", pa.string()), ("value", pa.string())])


def epoch_row(record: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a record of a model's history to a row of the result.

    Example:
        >>> epoch_row({"epoch": 0, "loss": 0.5, "test_loss": 0.6, "rows": 9, "seconds": 0.1})["holdout_loss"]
        0.6
    """
    row = {name: record.get(name.replace("holdout_", "test_")) for name in EPOCHS.names}
    if row["seconds"] is not None:
        row["seconds"] = round(row["seconds"], 6)  # more digits are noise and widen the table
    return row


def property_rows(properties: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the rows of a model's properties, without those that are None; other values than text are JSON."""
    return [
        {"property": name, "value": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}
        for name, value in properties.items()
        if value is not None
    ]


def result_of(schema: pa.Schema, rows: Sequence[Mapping[str, Any]], notes: Iterable[str] = ()) -> Result:
    """Build a result from rows in memory."""
    table = pa.Table.from_pylist(list(rows), schema)
    return Result(schema, iter(table.to_batches()), notes=list(notes))


def lines(name: str, texts: Sequence[str], notes: Iterable[str] = ()) -> Result:
    """Build a result with one text column."""
    return result_of(pa.schema([(name, pa.string())]), [{name: text} for text in texts], notes)
