"""A multi-label table for tests of PostgreSQL: labels in arrays, and in columns of 0 and 1."""

# ruff: noqa: S608  # tests write SQL

import pytest
from pgservers import literal
from samebits import make_table

__all__ = ["NAMES", "exported", "imported", "learn", "tagged"]

PIECES = [
    ("i % 5 = 0", "süd"), ("i * 7 % 11 < 3", 'a"b\\'), ("i < 1500", "大阪"), ("i % 3 = 0 AND i > 700", ""),
    ("i % 23 = 1", "z"), ("i % 5 = 0", "süd"),
]  # fmt: skip
COLUMNS = {
    "tags": "array_remove(ARRAY[" + ", ".join(f"CASE WHEN {when} THEN {literal(name)} END" for when, name in PIECES)
    + "]::text[], NULL)",
    "codes": "ARRAY(SELECT 9007199254740993 - j FROM generate_series(0, 2) j WHERE (i + j * j) % 4 < 2)",
    "small": "ARRAY(SELECT (j - 3)::smallint FROM generate_series(0, 17) j WHERE (i + i / 7 * j) % 5 = 0)",
    "one": "(i < 900)::int",
    "two": "i % 3 = 1",
}  # fmt: skip
NAMES = {
    "tags": ["", 'a"b\\', "süd", "z", "大阪"],
    "codes": [2**53 - 1, 2**53, 2**53 + 1],
    "small": list(range(-3, 15)),
    "two one": ["two", "one"],
}


@pytest.fixture
def tagged(server):
    """Return a function that makes a table with label columns."""

    def make(kind="real"):
        make_table(server, kind)
        columns = ", ".join(f"{text} AS {name}" for name, text in COLUMNS.items())
        server.sql(f"DROP TABLE IF EXISTS tagged CASCADE; CREATE TABLE tagged AS SELECT *, {columns} FROM t")

    yield make
    server.sql(
        "DROP TABLE IF EXISTS tagged CASCADE; DELETE FROM corgipile.models WHERE name IN ('tags', 'copy', 'one')"
    )


@pytest.fixture
def learn(server):
    """Return a function that trains multi-label models and returns a row per epoch."""

    def run(labels, source="tagged", **options):
        chosen = {"model": "logistic", "features": "x", "epochs": 2, "labels": labels, "name": "tags", **options}
        arguments = ", ".join(f'"{name}" => {literal(value)}' for name, value in chosen.items())
        return server.rows(f"SELECT * FROM corgipile.train({literal(source)}, {arguments})")

    return run


def exported(server, name="tags"):
    """Return the file of stored models."""
    return bytes.fromhex(server.text(f"SELECT encode(corgipile.export('{name}'), 'hex')"))


def imported(server, content, name="copy"):
    """Import models; return their version."""
    return server.value(f"SELECT corgipile.import('{name}', '\\x{content.hex()}')")
