"""Rows whose TOASTed values are damaged: an error that says so, or the right rows; never a crash, a leak or a wait.

A superuser may change a TOAST table once the catalog calls it a plain one. The damaged row is the first, which tells
how many features there are.
"""

# ruff: noqa: S608  # tests write SQL

import re

import pytest
from patience import wait_for

ROWS, WIDTH = 5, 2000
WAVE = f"SELECT sin(i * j) FROM generate_series(1, {WIDTH}) j WHERE i >= 0"
HALF = f"SELECT CASE WHEN j > 1000 THEN sin(i * j) ELSE 0 END FROM generate_series(1, {WIDTH}) j WHERE i >= 0"
# Type, storage, compression and values: apart and plain, apart and compressed by each way, and in the row's own page.
TABLES = {
    "apart": ("float8", "EXTERNAL", "pglz", WAVE),
    "apart_real": ("real", "EXTERNAL", "pglz", WAVE),
    "pressed": ("float8", "EXTENDED", "pglz", HALF),
    "pressed_lz4": ("real", "EXTENDED", "lz4", HALF),
    "numerics": ("numeric", "EXTERNAL", "pglz", WAVE),
    "sparse": ("float8", "EXTERNAL", "pglz", WAVE),
}
PLAIN = ("apart", "apart_real", "numerics", "sparse")
NOISE = "decode(repeat(md5('noise'), 999), 'hex')"
VICTIM = "chunk_id = v AND chunk_seq"


def rewritten(at, number):
    """Return SQL that puts a number into the four bytes of the first chunk from `at` on."""
    data = number.to_bytes(4, "little", signed=True).hex()
    return f"UPDATE toast SET chunk_data = overlay(chunk_data PLACING '\\x{data}' FROM {at + 1}) WHERE {VICTIM} = 0"


# What is done to the chunks of one row, and whether rows must be refused then. Else they are other numbers.
CHUNKS = {
    "one deleted": (f"DELETE FROM toast WHERE {VICTIM} = 1", True),
    "first deleted": (f"DELETE FROM toast WHERE {VICTIM} = 0", True),
    "all deleted": ("DELETE FROM toast WHERE chunk_id = v", True),
    "shorter": (f"UPDATE toast SET chunk_data = substr(chunk_data, 1, 100) WHERE {VICTIM} = 1", True),
    "empty": (f"UPDATE toast SET chunk_data = '' WHERE {VICTIM} = 0", True),
    "longer": (f"UPDATE toast SET chunk_data = chunk_data || '\\x00' WHERE {VICTIM} = 1", True),
    "twice": (f"INSERT INTO toast SELECT * FROM toast WHERE {VICTIM} = 1", True),
    "renumbered": (f"UPDATE toast SET chunk_seq = 77 WHERE {VICTIM} = 1", True),
    "negative number": (f"UPDATE toast SET chunk_seq = -1 WHERE {VICTIM} = 0", True),
    "noise": (f"UPDATE toast SET chunk_data = substr({NOISE}, 1, length(chunk_data)) WHERE {VICTIM} >= 0", False),
    "noise behind the head": (
        f"UPDATE toast SET chunk_data = substr(chunk_data || {NOISE}, 40, length(chunk_data)) WHERE {VICTIM} > 0",
        False,
    ),
    "ones": (
        f"UPDATE toast SET chunk_data = decode(repeat('ff', length(chunk_data)), 'hex') WHERE {VICTIM} >= 0",
        True,
    ),
}
HEADS = {
    **{f"dimensions {n}": (rewritten(0, n), True) for n in (-1, 0, 2, 7, 2**31 - 1)},
    **{f"bitmap {n}": (rewritten(4, n), True) for n in (-(2**31), -8, 1, 24, 16_000, 2**31 - 1)},
    **{f"length {n}": (rewritten(12, n), True) for n in (-(2**31), -1, 0, 1999, 2001, 100_000_000, 2**31 - 1)},
    **{f"element {n}": (rewritten(20, n), False) for n in (-1, 0, 1, 2, 3, 2**31 - 1)},
}
PRESSED = {
    **{f"size {n}": (rewritten(0, n), True) for n in (0, 1, 15, 8000, 2**30 - 1, -(2**30), -1)},
    "larger, by lz4": (rewritten(0, 2**30 + 16_020), False),  # which holds if it was by lz4
}
TRIES = 5


@pytest.fixture(scope="module", autouse=True)
def tables(server):
    """Make a sound table of each kind, and a model of it."""
    server.sql("""
        CREATE FUNCTION tried(query text) RETURNS text LANGUAGE plpgsql AS $$
            DECLARE found text;
            BEGIN EXECUTE query INTO found; RETURN found; EXCEPTION WHEN OTHERS THEN RETURN 'ERROR ' || SQLERRM; END $$;
    """)
    can = server.value("SELECT enumvals FROM pg_settings WHERE name = 'default_toast_compression'")
    for name, (kind, storage, compression, values) in TABLES.items():
        x = "ARRAY['k', 'x']" if name == "sparse" else "'x'"
        indices, width = ("ARRAY(SELECT * FROM generate_series(0, 999))", 1000) if name == "sparse" else ("NULL", WIDTH)
        server.sql(f"""
            CREATE TABLE {name} (i int, label int, near real[], k int[], x {kind}[]);
            ALTER TABLE {name} ALTER near SET STORAGE PLAIN, ALTER k SET STORAGE MAIN, ALTER x SET STORAGE {storage},
                ALTER x SET COMPRESSION {compression if compression in can else "pglz"};
            INSERT INTO {name} SELECT i, i % 2, ARRAY[i % 5, i % 3], {indices}, (ARRAY({values}))[1:{width}]
                FROM generate_series(1, {ROWS}) i;
            SELECT count(*) FROM corgipile.train('{name}', 'linear', {x}, 'label', name => '{name}', epochs => 1,
                learning_rate => 1e-9);
        """)
    yield
    names = ", ".join([*TABLES, "damaged"])  # a server that dumps a damaged value may crash of itself
    server.sql(f"DROP TABLE IF EXISTS {names}; DROP FUNCTION tried")


def done_to(table, damage, which="min"):
    """Return SQL that damages a value of a table, its first by default."""
    return f"""
        SET allow_system_table_mods = on;
        DO $$ DECLARE toast regclass; v oid; BEGIN
            SELECT reltoastrelid INTO toast FROM pg_class WHERE oid = '{table}'::regclass;
            UPDATE pg_class SET relkind = 'r' WHERE oid = toast;
            UPDATE pg_index SET indisunique = false WHERE indrelid = toast;
            EXECUTE 'SELECT {which}(chunk_id) FROM ' || toast INTO v;
            EXECUTE replace(replace($q${damage}$q$, ' toast', ' ' || toast), 'chunk_id = v', 'chunk_id = ' || v);
            UPDATE pg_class SET relkind = 't' WHERE oid = toast;
        END $$;
        VACUUM {table};
    """


def damaging(table, damage):
    """Return SQL that makes a table of which a row is damaged, and prints what becomes of reading it."""
    x, row = ("ARRAY['k', 'x']", "k, x") if table == "sparse" else ("'x'", "x")
    queries = [
        f"SELECT rows FROM corgipile.train('damaged', 'linear', {x}, 'label', epochs => 1, learning_rate => 1e-9)",
        f"SELECT rows FROM corgipile.evaluate('{table}', 'damaged')",
        f"SELECT count(corgipile.predict('{table}', {row})) FROM damaged",
        f"SELECT count(corgipile.predict('{table}', {row})) FROM damaged WHERE i > 1",
        "SELECT rows FROM corgipile.train('damaged', 'linear', 'near', 'label', epochs => 1)",
    ]
    return f"""
        DROP TABLE IF EXISTS damaged;
        CREATE TABLE damaged (LIKE {table} INCLUDING ALL);
        INSERT INTO damaged SELECT * FROM {table};
        {done_to("damaged", damage)}
        {"".join(f"SELECT tried($q${query}$q$);" for query in queries)}
    """


def is_right(refused, said):
    """Return whether all who read the damaged row refuse it, if they can tell, and the others read theirs."""
    *touched, others, near = said
    right = "ERROR " if refused else ("ERROR ", str(ROWS))
    return all(line.startswith(right) for line in touched) and (others, near) == (str(ROWS - 1), str(ROWS))


@pytest.mark.every_server
@pytest.mark.parametrize("table", TABLES)
def test_damaged_rows_are_refused(server, table):
    cases, earlier = {**CHUNKS, **(HEADS if table in PLAIN else PRESSED)}, len(server.log())
    said = server.text("SET statement_timeout = '250s';"
                       + "".join(damaging(table, damage) for damage, _ in cases.values()))  # fmt: skip
    lines = iter(said.splitlines())
    found = {what: (refused, [next(lines) for _ in range(TRIES)]) for what, (_, refused) in cases.items()}
    assert {what: lines for what, (refused, lines) in found.items() if not is_right(refused, lines)} == {}
    assert not re.search("terminated by signal|PANIC|TRAP", server.log()[earlier:])
    others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    wait_for(lambda: server.value(others) == 0, "the end of all backends")  # the last one may be on its way out


@pytest.mark.parametrize("what", ["dimensions -1", "bitmap 16000", "length -1", "length 100000000"])
def test_damaged_models_are_refused(server, fails, what):
    damage, _ = HEADS[what]
    server.sql(f"""
        DELETE FROM corgipile.models WHERE name = 'damaged';
        SELECT count(*) FROM corgipile.train('apart', 'linear', 'x', 'label', name => 'damaged', epochs => 1,
            learning_rate => 1e-9);
        {done_to("corgipile.models", damage, "max")}
    """)
    assert "array" in fails("SELECT corgipile.predict('damaged', x) FROM apart")
    server.sql("DELETE FROM corgipile.models WHERE name = 'damaged'")
