"""Blocks are asked for before they are read, where the table is on a device and not in memory."""

# ruff: noqa: S608  # tests write SQL

import os
import statistics
import subprocess
import threading
import time
from pathlib import Path

import pytest

ROWS = 40_000
TRAIN = "corgipile.train('far', 'logistic', 'x', 'label', epochs => {}, block_size => '64kB', {})"

pytestmark = [
    pytest.mark.every_server,
    pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="no posix_fadvise: nothing is evicted"),
]


@pytest.fixture(autouse=True, scope="module")
def table(server):
    """Make a table of which a scan leaves nothing in shared buffers, on disk."""
    server.sql(f"""
        CREATE TABLE far AS SELECT ARRAY(SELECT random()::real FROM generate_series(1, 28) WHERE i >= 0) AS x,
            i % 2 AS label FROM generate_series(0, {ROWS - 1}) i;
        VACUUM FREEZE far;
    """)
    server.sql("CHECKPOINT")
    return server.data / server.text("SELECT pg_relation_filepath('far')").strip()


def evict(path):
    """Drop a file from the system's cache."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


@pytest.mark.parametrize("options", ["threads => 2", "threads => 1", "balance => true", "\"order\" => 'block_only'"])
def test_a_table_on_a_device_gives_the_same_model(server, table, options):
    drop = f"\\! dd of={table} oflag=nocache conv=notrunc,fdatasync count=0 status=none\n"
    fetch = "FETCH 1 FROM q;\n"
    query = f"SELECT epoch, loss, rows FROM {TRAIN.format(3, options)}"
    evicted = [drop + fetch for _ in range(3)]
    found = {
        setting: server.text(f"SET effective_io_concurrency = {setting}; BEGIN; DECLARE q CURSOR FOR {query};" + script)
        for setting, script in (("0", 3 * fetch), ("1", "".join(evicted)), ("200", "".join(evicted)))
    }
    assert found["0"] == found["1"] == found["200"]
    assert found["0"].count(f"|{ROWS}\n") == 3


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are not listed here")
def test_a_table_in_memory_is_not_asked_for(server, table):
    """Pages in shared buffers are none that the system has kept: they are read here, beside the server."""
    assert table.read_bytes()
    with subprocess.Popen(server.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, cwd="/") as psql:  # fmt: skip
        psql.stdin.write(f"SELECT pg_backend_pid();\nSELECT * FROM {TRAIN.format(1_000_000, 'threads => 2')};\n")
        psql.stdin.close()
        pid, seen = psql.stdout.readline().strip(), []
        while len(seen) < 50:
            if (threads := len([*Path(f"/proc/{pid}/task").iterdir()])) > 1:
                seen.append(threads)
            time.sleep(0.002)
        server.sql(f"SELECT pg_terminate_backend({pid})")
    assert statistics.median(seen) == 2  # the backend and the one that learns


def test_interrupted_while_the_device_is_asked(server, table):
    done = threading.Event()

    def keep_evicting():
        while not done.wait(0.002):
            evict(table)

    crew = threading.Thread(target=keep_evicting)
    crew.start()
    try:
        for limit in range(20, 120, 5):
            query = TRAIN.format(100_000, f"threads => {1 + limit % 2}")
            said = server.text(
                f"SET statement_timeout = {limit};\n\\set ON_ERROR_STOP off\nSELECT count(*) FROM {query};\n"
                "\\set ON_ERROR_STOP on\nRESET statement_timeout;\nSELECT 'alive';"
            )
            assert said == "alive\n"
    finally:
        done.set()
        crew.join()
    assert "was terminated by signal" not in server.log()
