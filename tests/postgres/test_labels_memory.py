"""What arrays of labels take of a server's memory."""

# ruff: noqa: S608  # tests write SQL

from pathlib import Path

import pytest

if not Path("/proc/self/status").exists():
    pytest.skip("the memory of processes is not shown here", allow_module_level=True)

PEAK = "SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\\s*(\\d+)')::int"


def test_long_arrays_take_the_memory_of_one_row(server):
    """A block holds thousands of rows whose arrays are compressed: 400 MB in all."""
    server.sql("DROP TABLE IF EXISTS long_labels; CREATE TABLE long_labels AS SELECT ARRAY[i % 7, i % 2]::real[] AS x, "
               "ARRAY(SELECT repeat('x', 500) || (j * 7 + i % 40) FROM generate_series(1, 100) j) AS tags "
               "FROM generate_series(1, 8000) i")  # fmt: skip
    call = "'long_labels', 'logistic', 'x', labels => 'tags', epochs => 1, name => 'long', block_size => '20MB'"
    said = server.text(f"SELECT count(*) FROM long_labels WHERE tags[1] = 'y'; {PEAK}; "
                       f"SELECT epoch FROM corgipile.train({call}); {PEAK}; "
                       f"SELECT rows FROM corgipile.evaluate_labels('long', 'long_labels'); {PEAK}")  # fmt: skip
    read, before, epoch, trained, rows, judged = map(int, said.split())
    server.sql("DROP TABLE long_labels; DELETE FROM corgipile.models WHERE name = 'long'")
    assert (read, epoch, rows) == (0, 0, 8000)
    assert max(trained, judged) - before < 60 << 10
