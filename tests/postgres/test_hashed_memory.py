"""What hashed columns and their models take of a server's memory."""

from pathlib import Path

import pytest
from texts import call, make_rows, store

if not Path("/proc/self/status").exists():
    pytest.skip("the memory of processes is not shown here", allow_module_level=True)

PEAK = "SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\\s*(\\d+)')::int"


@pytest.mark.parametrize("given", [{"text": "review", "hash_bits": 8}, {"features": "review", "encode": "hash:8"}])
def test_long_texts_take_the_memory_of_one_row(server, given):
    """A page holds hundreds of rows whose texts lie elsewhere, compressed: 400 MB in all."""
    server.sql("CREATE TABLE IF NOT EXISTS hashed_toasted AS "
               "SELECT i % 2 AS label, repeat('good ', 100000) || i AS review "
               "FROM generate_series(1, 800) i")  # fmt: skip
    training = call("hashed_toasted", "logistic", None, given, epochs=1, block_size="64kB")
    before, after = map(int, server.text(f"{PEAK}; {training.replace('*', '')}; {PEAK}").split())
    assert after - before < 40 << 10


def test_a_model_takes_little_more_than_its_size_while_it_is_stored(server):
    """Of 2^20 features and seven lines of them that say how it was learnt, most of which are zeros."""
    store(server, "hashed_few", make_rows(300, seed=2))
    given = {"text": "note", "missing": "skip", "hash_bits": 20, "step": "auto", "buffer_size": "400MB"}
    trains = [call("hashed_few", "logistic", name, given, epochs=1) for name in (None, "hashed_large")]
    found = [server.text(f"{train.replace('*', 'count(*)')}; {PEAK}").split()[1] for train in trains]
    size = server.value("SELECT 8 * (cardinality(coefficients) + cardinality(learnt)) FROM corgipile.models "
                        "WHERE name = 'hashed_large'")  # fmt: skip
    server.sql("DROP TABLE hashed_few; DELETE FROM corgipile.models WHERE name = 'hashed_large'")
    assert size > 60 << 20
    assert (int(found[1]) - int(found[0])) << 10 < 2 * size
