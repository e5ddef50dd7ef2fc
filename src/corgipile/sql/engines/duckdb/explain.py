"""The operators of a training, as the extension of PostgreSQL calls them."""

import resource
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from corgipile.linear.features import find_inputs
from corgipile.linear.nulls import NullsAsNaN
from corgipile.linear.train import order_of
from corgipile.orders.riffle import CONTENT
from corgipile.settings import TrainArguments, declared
from corgipile.sizes import parse_bytes
from corgipile.sql.engines.duckdb.files import text_of
from corgipile.sql.engines.duckdb.rows import Rows, chosen, opened
from corgipile.sql.engines.engine import Result, Values
from corgipile.sql.engines.results import lines
from corgipile.sql.engines.training import arguments
from corgipile.sql.options import settled
from corgipile.sql.statements import Explain, Train
from corgipile.stores.urls import is_url, redacted
from corgipile.tables.splitting import train_test_split
from corgipile.tables.table import Table

if TYPE_CHECKING:
    from corgipile.sql.engines.duckdb.engine import DuckDB

__all__ = ["explained"]

Properties = dict[str, Any]
DEFAULTS = {name: one.default for name, one in declared(TrainArguments).items()}


def explained(engine: "DuckDB", statement: Explain, values: Values) -> Result:
    """Answer the operators of a training, which runs for ANALYZE, its model kept nowhere."""
    train = settled(statement.train, values)
    settings = train.settings
    model, rows, past = engine.fitted(train, values) if statement.analyze else (None, None, 0)
    given, table, notes = _known(engine, train, values, rows)
    sizes = {} if table is None else _sizes(table, given)
    sgd, tuples, blocks = _learning(train, settings, sizes), _tuples(settings, sizes), _blocks(train, sizes)
    scan: Properties = {"Read": _way(train, rows)}
    if model is not None and rows is not None:
        _measured(model.history[past:], rows, sgd, scan)
    chain = [("SGD", sgd), ("TupleShuffle", tuples), ("BlockShuffle", blocks), ("Scan", scan)]
    return lines("plan", _drawn(chain), [*statement.notes, *notes, *sizes.get("notes", ())])


def _known(
    engine: "DuckDB", train: Train, values: Values, rows: Rows | None
) -> tuple[Properties, Table | None, list[str]]:
    """Return the arguments of the training, its rows where they can be looked at unread, and what is said of them."""
    source = train.source
    if rows is not None:
        return arguments(train, rows.columns), rows.table, rows.notes
    if (table := opened(source)) is not None:
        columns, notes = chosen(table.schema.names, source)
        return arguments(train, columns), table, notes
    bound = engine.bound(values)
    sql = text_of(engine.session, source, bound).sql
    columns, notes = chosen(engine.session.schema(sql, bound.values).names, source)
    return arguments(train, columns), None, notes


def _sizes(table: Table, given: Properties) -> Properties:
    """Return what an order makes of a table; nothing where columns must be encoded first."""
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
    if getattr(order, "balance", None) == CONTENT:  # as large, and nothing is read to explain it
        order = replace(order, balance=given["label"])
    flat = lambda _, cuts, __: np.zeros(len(cuts) - 1)  # noqa: E731 - which blocks are alike is no matter here
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


def _learning(train: Train, settings: Mapping[str, Any], sizes: Properties) -> Properties:
    held_out = settings.get("validation")
    return {
        "Model": train.model,
        "Epochs": settings.get("epochs", DEFAULTS["epochs"]),
        "Batch Size": settings.get("batch_size", DEFAULTS["batch_size"]),
        **({"Holdout": held_out} if held_out else {}),
        **({"Warm Start": train.warm_start} if train.warm_start else {}),
        **({"Numbers": sizes["numbers"], "Features": sizes["width"], "Rows per Epoch": sizes["rows"]} if sizes else {}),
    }


def _tuples(settings: Mapping[str, Any], sizes: Properties) -> Properties:
    if not sizes:
        order = settings.get("order", DEFAULTS["order"])
        memory = settings.get("memory", DEFAULTS["memory"])
        told = (
            {}
            if str(memory).endswith("%")
            else {"Buffer Memory": f"{parse_bytes(memory, 'memory', whole=0) // 1024} kB"}
        )
        return {"Order": getattr(order, "name", order), **told}
    return {
        "Order": sizes["order"],
        "Balanced": str(sizes["balanced"]).lower(),
        "Buffer Rows": sizes["slots"],
        "Buffer Memory": f"{sizes['bytes'] // 1024} kB",
    }


def _blocks(train: Train, sizes: Properties) -> Properties:
    source = train.source
    named = ".".join(source.table) if source.table and source.plain else "a query"
    if source.file is not None:
        named = redacted(source.file) if is_url(source.file) else source.file
    return {"Table": named, **({"Block Rows": sizes["block_rows"], "Blocks": sizes["blocks"]} if sizes else {})}


def _way(train: Train, rows: Rows | None) -> str:
    if train.source.file is not None and train.source.plain:
        return "from the file, in place"
    return rows.notes[0] if rows is not None and rows.notes else "once, into memory or a spill file, by DuckDB"


def _measured(learnt: list[dict[str, Any]], rows: Rows, sgd: Properties, scan: Properties) -> None:
    """Add what a training has taken."""
    sgd["Actual Rows"] = sum(record["rows"] for record in learnt)
    sgd["Epochs Run"] = len(learnt)
    sgd["Seconds"] = f"{sum(record['seconds'] for record in learnt):.3f}"
    sgd["Peak Memory"] = f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss} kB"
    scan["Rows"] = len(rows.table)
    scan["Bytes"] = sum(record["bytes_read"] for record in learnt)
    scan["Seconds"] = f"{rows.seconds:.3f}"


def _drawn(chain: list[tuple[str, Properties]]) -> list[str]:
    """Return the lines of operators, each in the one before."""
    found, indent = list[str](), ""
    for depth, (name, properties) in enumerate(chain):
        found.append(f"{indent}{'->  ' if depth else ''}{name}")
        inner = indent + ("      " if depth else "  ")
        found += [f"{inner}{key}: {value}" for key, value in properties.items()]
        indent = inner
    return found
