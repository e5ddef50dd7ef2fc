"""A subset obeys the table laws, keeps its table's block boundaries, and reads in place."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corgipile.errors import BadArgument
from corgipile.tables import MemoryTable, Subset
from corgipile.tables import open as open_table

ROWS = 120


def some_runs(rng, rows=ROWS):
    kept = np.flatnonzero(np.diff(np.concatenate([[0], rng.random(rows) < rng.random(), [0]])))
    return kept.reshape(-1, 2)


def numbers_of(runs):
    return np.concatenate([np.empty(0, np.int64), *(np.arange(a, b) for a, b in runs)])


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_laws(rows_of, laws, layout_law, tmp_path, seed, kind):
    rng = np.random.default_rng(seed)
    rows, runs = rows_of(ROWS, seed, nulls=True), some_runs(rng)
    table = MemoryTable(rows)
    if kind == "file":
        with pa.ipc.new_file(str(tmp_path / "t.arrow"), rows.schema) as writer:
            writer.write_table(rows, max_chunksize=17)
        table = open_table(tmp_path / "t.arrow")
    subset = Subset(table, runs)
    laws(subset, rows.take(pa.array(numbers_of(runs))), rng)
    if kind == "file" and len(subset):
        layout_law(subset, ["features", "label", "half"])


def test_manners(rows_of, manners):
    manners(Subset(MemoryTable(rows_of(ROWS)), [[3, 4], [5, 60], [60, 119]]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_blocks_are_at_most_as_wide_as_the_tables(seed, width):
    rng = np.random.default_rng(seed)
    table = MemoryTable(pa.table({"row": np.arange(ROWS)}))
    subset = Subset(table, some_runs(rng))
    cuts = subset.cuts(width)
    assert np.diff(cuts).max(initial=0) <= width
    assert len(cuts) - 1 <= 2 * -(-len(subset) // width)


def test_runs_are_checked():
    table = MemoryTable(pa.table({"row": np.arange(10)}))
    for runs in ([[4, 5], [2, 3]], [[0, 3], [2, 5]], [[3, 3]]):
        with pytest.raises(BadArgument, match="runs must ascend without overlap, none empty"):
            Subset(table, runs)
    for runs in ([[-1, 3]], [[4, 11]]):
        with pytest.raises(BadArgument, match="runs must lie within rows 0 to 10"):
            Subset(table, runs)
    assert Subset(table, [[0, 3]]).fingerprint != Subset(table, [[0, 4]]).fingerprint
