"""EXPLAIN of a training, with the operator names of the PostgreSQL extension."""

import resource
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from corgipile.linear.features import find_inputs
from corgipile.linear.nulls import NullsAsNaN
from corgipile.linear.problem import order_of
from corgipile.orders.riffle import CONTENT
from corgipile.settings import TrainArguments, declared
from corgipile.sizes import parse_bytes
from corgipile.sql.engines.duckdb.files import select_text
from corgipile.sql.engines.duckdb.rows import Rows, choose_columns, open_source
from corgipile.sql.engines.engine import Result, Values
from corgipile.sql.engines.results import lines
from corgipile.sql.engines.training import arguments
from corgipile.sql.options import bind_settings
from corgipile.sql.statements import Explain, Train
from corgipile.tables.splitting import train_test_split
from corgipile.tables.table import Table
from corgipile.urls import is_url, redacted

if TYPE_CHECKING:
    from corgipile.sql.engines.duckdb.engine import DuckDB

__all__ = ["explain_training"]

Properties = dict[str, Any]
DEFAULTS = {name: one.default for name, one in declared(TrainArguments).items()}


def explain_training(engine: "DuckDB", statement: Explain, values: Values) -> Result:
    """Return the operators of a training; ANALYZE runs it without storing the model."""
    train = bind_settings(statement.train, values)
    model, rows, past = engine.fit(train, values) if statement.analyze else (None, None, 0)
    given, table, notes = _plan_inputs(engine, train, values, rows)
    sizes = {} if table is None else _sizes(table, given)
    sgd, scan = _sgd_properties(train, sizes), {"Read": _read_method(train, rows)}
    if model is not None and rows is not None:
        _add_measurements(model.history[past:], rows, sgd, scan)
    tuples, blocks = _tuple_shuffle_properties(train.settings, sizes), _block_shuffle_properties(train, sizes)
    chain = [("SGD", sgd), ("TupleShuffle", tuples), ("BlockShuffle", blocks), ("Scan", scan)]
    return lines("plan", _format_plan(chain), [*statement.notes, *notes, *sizes.get("notes", ())])


def _plan_inputs(
    engine: "DuckDB", train: Train, values: Values, rows: Rows | None
) -> tuple[Properties, Table | None, list[str]]:
    """Return the training's arguments, its rows if known without a query, and notes on them."""
    source = train.source
    if rows is not None:
        return arguments(train, rows.columns), rows.table, rows.notes
    if (table := open_source(source)) is not None:
        columns, notes = choose_columns(table.schema.names, source)
        return arguments(train, columns), table, notes
    bound = engine.bound(values)
    sql = select_text(engine.session, source, bound).sql
    columns, notes = choose_columns(engine.session.schema(sql, bound.values).names, source)
    return arguments(train, columns), None, notes


def _sizes(table: Table, given: Properties) -> Properties:
    """Return the sizes that an order chooses for a table; empty if columns must be encoded first."""
    kinds = [table.schema.field(name).type for name in given["features"]]
    if given.get("text") or given.get("interactions") or given.get("labels"):
        return {}
    if given.get("encode") or given.get("missing", "error") != "error" or any("string" in str(kind) for kind in kinds):
        return {}
    if given.get("validation") is not None:
        seed = given.get("seed", DEFAULTS["seed"])
        table, _ = train_test_split(table, given["validation"], seed, given.get("group"))
    inputs = find_inputs(table, given["features"], given["label"])
    order, memory, seed = (given.get(name, DEFAULTS[name]) for name in ("order", "memory", "seed"))
    order = order_of(order, memory)
    if getattr(order, "balance", None) == CONTENT:  # same sizes, without reading the rows
        order = replace(order, balance=given["label"])
    flat = lambda _, cuts, __: np.zeros(len(cuts) - 1)  # noqa: E731 - sizes do not depend on the sketch
    label, weight = given["label"], given.get("weight")
    rows = NullsAsNaN(table, inputs, label, weight)
    with inputs.feeder(rows, label, order, memory, seed, weight=weight, sketch=flat) as feeder:
        return {
            "order": feeder.order.name,
            "balanced": feeder.order.sketch_column is not None,
            "blocks": feeder.blocks.count,
            "block_rows": feeder.blocks.widest,
            "slots": feeder.slots,
            "bytes": feeder.buffer_bytes,
            "width": inputs.width,
            "numbers": "real" if inputs.dtype.itemsize == 4 else "double precision",
            "rows": len(table),
            "notes": [] if feeder.coarser is None else [feeder.coarser],
        }


def _sgd_properties(train: Train, sizes: Properties) -> Properties:
    settings, held_out = train.settings, train.settings.get("validation")
    return {
        "Model": train.model,
        "Epochs": settings.get("epochs", DEFAULTS["epochs"]),
        "Batch Size": settings.get("batch_size", DEFAULTS["batch_size"]),
        **({"Holdout": held_out} if held_out else {}),
        **({"Warm Start": train.warm_start} if train.warm_start else {}),
        **({"Numbers": sizes["numbers"], "Features": sizes["width"], "Rows per Epoch": sizes["rows"]} if sizes else {}),
    }


def _tuple_shuffle_properties(settings: Mapping[str, Any], sizes: Properties) -> Properties:
    if not sizes:
        order, memory = (settings.get(name, DEFAULTS[name]) for name in ("order", "memory"))
        shown = {"Order": getattr(order, "name", order)}
        if not str(memory).endswith("%"):
            shown["Buffer Memory"] = f"{parse_bytes(memory, 'memory', whole=0) // 1024} kB"
        return shown
    return {
        "Order": sizes["order"],
        "Balanced": str(sizes["balanced"]).lower(),
        "Buffer Rows": sizes["slots"],
        "Buffer Memory": f"{sizes['bytes'] // 1024} kB",
    }


def _block_shuffle_properties(train: Train, sizes: Properties) -> Properties:
    source = train.source
    named = ".".join(source.table) if source.table and source.plain else "a query"
    if source.file is not None:
        named = redacted(source.file) if is_url(source.file) else source.file
    return {"Table": named, **({"Block Rows": sizes["block_rows"], "Blocks": sizes["blocks"]} if sizes else {})}


def _read_method(train: Train, rows: Rows | None) -> str:
    if train.source.file is not None and train.source.plain:
        return "from the file, in place"
    return rows.notes[0] if rows is not None and rows.notes else "once, into memory or a spill file, by DuckDB"


def _add_measurements(epochs: list[dict[str, Any]], rows: Rows, sgd: Properties, scan: Properties) -> None:
    """Add the measurements of a training."""
    sgd["Actual Rows"] = sum(record["rows"] for record in epochs)
    sgd["Epochs Run"] = len(epochs)
    sgd["Seconds"] = f"{sum(record['seconds'] for record in epochs):.3f}"
    sgd["Peak Memory"] = f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss} kB"
    scan["Rows"] = len(rows.table)
    scan["Bytes"] = sum(record["bytes_read"] for record in epochs)
    scan["Seconds"] = f"{rows.seconds:.3f}"


def _format_plan(chain: list[tuple[str, Properties]]) -> list[str]:
    """Return the lines of nested operators."""
    plan, indent = list[str](), ""
    for depth, (name, properties) in enumerate(chain):
        plan.append(f"{indent}{'->  ' if depth else ''}{name}")
        inner = indent + ("      " if depth else "  ")
        plan += [f"{inner}{key}: {value}" for key, value in properties.items()]
        indent = inner
    return plan
