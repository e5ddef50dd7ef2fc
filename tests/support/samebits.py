"""Training in Python on the rows, blocks and order of a training in PostgreSQL."""

# ruff: noqa: S608  # tests write SQL

import numpy as np
import pyarrow as pa
from cut_table import CutTable

import corgipile as cp
from corgipile import random
from corgipile.linear import label_sets

ROWS, WIDTH = 4000, 9
HOLDOUT = 7  # purpose of the key
TYPES = {"real": pa.float32(), "double precision": pa.float64(), "integer": pa.int32(), "smallint": pa.int16()}


def columns_of_labels(params):
    """Return the label columns of a multi-label model, else an empty list."""
    return [params["label"]] if params.get("label") and "labels" in params else params.get("labels", [])


def stored_rows(server, model):
    """Return the training rows in physical order, the starts of blocks, and the validation rows."""
    params = model["params"]
    also = [params["by"]] if "by" in params else columns_of_labels(params)
    columns = ", ".join([*params["features"], "label", "w", *also])
    rows = server.rows(
        f"SELECT {columns}, tableoid::int AS part, "
        f"(ctid::text::point)[0]::int / {params['block_pages']} AS block FROM {model['source']} s "
        "ORDER BY s.tableoid, s.ctid"
    )
    chance = random.randoms(random.derive(params["seed"], 0, HOLDOUT), 0, len(rows))
    held = (chance < int(params.get("holdout", 0) * 2.0**64)).tolist()
    kept = [row for row, out in zip(rows, held, strict=True) if not out]
    blocks = np.array([(row["part"], row["block"]) for row in kept])
    cuts = np.flatnonzero(np.diff(blocks, axis=0).any(axis=1)) + 1
    return kept, [0, *cuts.tolist(), len(kept)], [row for row, out in zip(rows, held, strict=True) if out]


def arrow(rows, features, kind, label=None, by=None, labels=()):
    """Make an Arrow table of rows; with ``labels`` it lacks the single label."""
    kinds = [pa.list_(pa.int32()), pa.list_(TYPES[kind])] if len(features) == 2 else [pa.list_(TYPES[kind], WIDTH)]
    columns = {name: pa.array([row[name] for row in rows], of) for name, of in zip(features, kinds, strict=True)}
    one = {} if labels else {"label": pa.array([row["label"] for row in rows], label or pa.int32())}
    others = {name: pa.array([row[name] for row in rows]) for name in [*([] if by is None else [by]), *labels]}
    return pa.table({**columns, **one, "w": pa.array([row["w"] for row in rows], pa.float32()), **others})


def in_python(server, model, kind, label=None, *, rated=True):
    """Repeat the server's training in Python."""
    params = model["params"]
    features = params["features"]
    rows, cuts, held = stored_rows(server, model)
    widest = int(np.diff(cuts).max())
    by, labels = params.get("by"), columns_of_labels(params)
    table = CutTable(arrow(rows, features, kind, label, by, labels), cuts)
    assert params["blocks"] == len(cuts) - 1
    sizes = {"block": widest, "buffer": params["buffer_blocks"] * widest}
    if params["order"] == "riffle":
        named = (params["label"] or label_sets.NAME) if labels else "label"
        balance = params["balance"] if params["balance"] == "content" else named if params["balance"] else None
        order = cp.orders.Riffle(**sizes, group=params["group"], whole=params["whole"], balance=balance)
    else:
        names = {"no_shuffle": cp.orders.NoShuffle, "block_only": cp.orders.BlockOnly, "corgipile": cp.orders.CorgiPile}
        order = names[params["order"]](**sizes)
    settings = ("epochs", "batch_size", "learning_rate", "decay", "l2", "l1", "step", "intercept", "seed")
    chosen = {name: params[name] for name in settings} | {
        "tolerance": params.get("tolerance"),
        "standardize": params["standardize"],
        "average": params["average"],
        "weight": params.get("weight"),
        "patience": params.get("patience"),
        "max_norm": params.get("max_norm"),
        "class_weight": params.get("class_weight"),
        "by": by,
    }
    chosen["learning_rate"] = None if not rated or params["step"] == "auto" else chosen["learning_rate"]
    chosen["test"] = arrow(held, features, kind, label) if held else None
    features = features if len(features) == 2 else "x"
    chosen |= {"labels": params["label"] or labels} if labels else {"label": "label"}
    return cp.train(table, model=model["kind"], features=features, order=order, memory=None, **chosen)


def make_table(server, kind, classes=2):
    """Make a table clustered by label, with dead rows and dead pages.

    It has a dense column x, and a sparse pair k and v with 0 to 8 of 55 features per row.
    """
    scale = 10 if kind in ("integer", "smallint") else 1
    server.sql(f"""
        DROP TABLE IF EXISTS t;
        SELECT setseed(0.5);
        CREATE TABLE t AS SELECT i,
            (SELECT array_agg({scale} * (random() + (i * {classes} / {ROWS} = j % {classes})::int))
             FROM generate_series(1, {WIDTH}) j WHERE i >= 0)::{kind}[] AS x, i * {classes} / {ROWS} AS label,
            (i % 5)::real / 2 AS w,
            ARRAY(SELECT j * 6 + i * j % 5 FROM generate_series(1, i * 7 % 9) j) AS k,
            ARRAY(SELECT random() + (i * {classes} / {ROWS} = j % {classes})::int
                  FROM generate_series(1, i * 7 % 9) j)::{kind}[] AS v
        FROM generate_series(0, {ROWS - 1}) i;
        DELETE FROM t WHERE i % 7 = 3 OR i BETWEEN 1000 AND 1400;
    """)
