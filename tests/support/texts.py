"""Rows of text and other columns, in the server and in Arrow, and calls that train on them hashed."""

# ruff: noqa: S608  # tests write SQL

import datetime as dt
import json

import numpy as np
import pyarrow as pa
from pgservers import literal

ROWS = 1500
WORDS = [
    "good",
    "bad",
    "great",
    "dull",
    "fun",
    "not",
    "very",
    "film",
    "café",
    "naïve",
    "ΣΊΣΥΦΟΣ",
    "Ünïcode",
    "中文",
    "한글",
    "😀",
    "the",
    "a",
    "of",
    "and",
    "_x9",
    "don't",
    "42",
]
KINDS = {
    "review": pa.string(), "note": pa.string(), "city": pa.string(), "d": pa.date32(), "yes": pa.bool_(),
    "stars": pa.float32(), "n": pa.int32(), "label": pa.int32(), "w": pa.float32(),
}  # fmt: skip
COLUMNS = ", ".join(KINDS)


def make_rows(rows=ROWS, classes=2, seed=1):
    """Return rows of text and other columns, with a label that follows from the words."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(rows):
        label = i * classes // rows
        words = [WORDS[int(at)] for at in rng.integers(0, len(WORDS), int(rng.integers(0, 9)))]
        words += [WORDS[label]] * int(rng.integers(0, 2))
        made.append(
            {
                "review": ", ".join(words),
                "note": " ".join(words[:2]).upper(),
                "city": ("Rome", "Oslo", "Zürich")[int(rng.integers(3))],
                "d": dt.date(2020, 1, 1) + dt.timedelta(days=int(rng.integers(9))),
                "yes": bool(rng.integers(2)),
                "stars": float(rng.integers(0, 9)) / 2,
                "n": int(rng.integers(-2, 3)),
                "label": label,
                "w": float(i % 5) / 2,
            }
        )
    return made


def store(server, name, rows):
    """Make a table of rows; return them in physical order."""
    data = json.dumps(rows, default=str, ensure_ascii=False).replace("'", "''")
    server.sql(f"""
        DROP TABLE IF EXISTS {name};
        CREATE TABLE {name} (review text, note varchar, city text, d date, yes bool, stars real, n int, label int,
            w real);
        INSERT INTO {name} SELECT * FROM json_populate_recordset(NULL::{name}, '{data}');
    """)
    found = server.rows(f"SELECT {COLUMNS} FROM {name} ORDER BY ctid")
    return [{**row, "d": row["d"] and dt.date.fromisoformat(row["d"])} for row in found]


def arrow(rows):
    """Make an Arrow table of rows."""
    return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in KINDS.items()})


def call(table, kind, name, given, **more):
    """Write a call that trains."""
    given = {"features": None, "block_size": "8kB", "buffer_size": "600kB", "epochs": 2, **given, **more}
    arguments = ", ".join(f'"{key}" => {"NULL" if value is None else literal(value)}' for key, value in given.items())
    name = "" if name is None else f", name => '{name}'"
    return f"SELECT * FROM corgipile.train('{table}', '{kind}', label => 'label'{name}, {arguments})"


def asked(how):
    """Return Python's arguments in the extension's form."""
    given = dict(how)
    if "interactions" in given:
        given["interactions"] = ",".join(
            one if isinstance(one, str) else ":".join(one) for one in given["interactions"]
        )
    return given
