"""Physical re-layouts: exact, uniform, within memory, and gone without a trace if they fail."""

from collections import Counter
from itertools import permutations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile import tables
from corgipile.errors import BadArgument, BadSize, BudgetTooSmall
from corgipile.quality import h_d, measure
from corgipile.relayout import METHODS, reshuffle
from corgipile.relayout.external import External
from corgipile.relayout.plans import Shuffle


def make(rows):
    return pa.table(
        {
            "id": np.arange(rows),
            "features": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(3.0 * rows)), 3),
            "sparse": pa.array([list(range(i % 4)) for i in range(rows)], pa.list_(pa.int32())),
            "text": pa.array([None if i % 7 == 0 else "é" * (i % 5) for i in range(rows)], pa.string()),
        }
    )


def ids(path):
    table = tables.open(path)
    return table.read(0, len(table), ["id"])["id"].to_numpy()


@given(
    st.sampled_from(sorted(METHODS)),
    st.integers(0, 3000),
    st.sampled_from(["64KB", "150KB", "1MB"]),
    st.integers(0, 2**40),
)
@settings(max_examples=40, deadline=None)
def test_rows_are_kept_whole_and_once(tmp_path_factory, method, rows, memory, seed):
    folder = tmp_path_factory.mktemp("reshuffle")
    source = make(rows)
    assert reshuffle(source, folder / "out.arrow", method, memory=memory, seed=seed) == rows
    table = tables.open(folder / "out.arrow")
    result = pa.Table.from_batches([table.read(0, rows)])
    assert result.sort_by("id").to_pydict() == source.to_pydict()
    assert [entry.name for entry in folder.iterdir()] == ["out.arrow"]


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_repeats_and_seeds_differ(tmp_path, method):
    source = make(4000)
    orders = []
    for seed in (1, 1, 2):
        reshuffle(source, tmp_path / "a.arrow", method, memory="100KB", seed=seed)
        orders.append(ids(tmp_path / "a.arrow").tolist())
    assert orders[0] == orders[1] != orders[2]


def uniform_p_value(counts, cells, draws):
    stats = pytest.importorskip("scipy.stats")
    observed = np.array([counts.get(cell, 0) for cell in cells])
    return stats.chisquare(observed, np.full(len(cells), draws / len(cells))).pvalue


class Tiny(External):
    """Lets no more than two rows into memory, so that even four rows go through piles of piles."""

    def fits(self, rows):
        return rows <= 2

    def count(self, rows, plan):
        return 2


def test_the_two_pass_shuffle_is_uniform(tmp_path):
    """All 24 orders of 4 rows are equally likely: chi-square, fixed seeds, p > 0.001."""
    batch = pa.record_batch({"id": np.arange(4)})
    draws, counts = 1000, Counter()
    for seed in range(draws):
        out = []
        Tiny(tmp_path, 1 << 20, 8, out.append, lambda _: None).run(iter([batch]), 4, Shuffle(seed))
        counts[tuple(int(row) for part in out for row in part["id"].to_numpy())] += 1
    assert uniform_p_value(counts, list(permutations(range(4))), draws) > 0.001


def test_every_place_is_equally_likely_after_spilling(tmp_path):
    """Where 39 rows of 4000 go, with 64 KB of memory: 10 strata, chi-square, fixed seeds, p > 0.001."""
    source, counts, draws = make(4000), Counter(), 40
    for seed in range(draws):
        reshuffle(source, tmp_path / "a.arrow", memory="64KB", seed=seed)
        place = np.empty(4000, np.int64)
        place[ids(tmp_path / "a.arrow")] = np.arange(4000)
        counts.update((place[:3900:100] // 400).tolist())
    assert uniform_p_value(counts, range(10), draws * 39) > 0.001


def labelled(rows, classes=10):
    return pa.table({"label": np.arange(rows) * classes // rows, "id": np.arange(rows)})


def test_two_pass_measures_as_a_full_shuffle(tmp_path):
    source = labelled(100_000)
    reshuffle(source, tmp_path / "a.arrow", memory="128KB", seed=3)
    report = measure(ids(tmp_path / "a.arrow"), source["label"].to_numpy(), 256)
    assert report.coverage.exact
    assert report.deff == pytest.approx(1.0, abs=0.15)
    assert report.prefix < 2.0


def test_corgi2_makes_blocks_nearly_random_samples(tmp_path):
    rows, b, memory = 40_000, 100, 3 * 20 * 100 * (16 + 8)
    source = labelled(rows)
    reshuffle(source, tmp_path / "a.arrow", "corgi2", memory=memory, block=b)
    labels = source["label"].to_numpy()[ids(tmp_path / "a.arrow")]
    cuts = np.arange(0, rows + 1, b)
    assert h_d(source["label"], cuts) == pytest.approx(b)
    assert h_d(labels, cuts) == pytest.approx(1 + b / 20, rel=0.15)


def test_corgi2_reads_every_block_once_and_whole(tmp_path):
    class Counting(type(tables.open(make(1)))):
        def read(self, start, stop, columns=None):
            if stop - start == 50:
                reads.append(start)
            return super().read(start, stop, columns)

    reads = []
    reshuffle(Counting(labelled(5000)), tmp_path / "a.arrow", "corgi2", memory="64KB", block=50)
    assert sorted(reads) == list(range(0, 5000, 50))
    assert reads != sorted(reads)


@pytest.mark.parametrize("memory", ["64KB", "4MB"])
def test_bmf_blocks_are_equal_random_and_in_storage_order(tmp_path, memory):
    reshuffle(labelled(10_000), tmp_path / "a.arrow", "bmf", memory=memory, block=400)
    blocks = ids(tmp_path / "a.arrow").reshape(25, 400)
    assert (np.diff(blocks, axis=1) > 0).all()
    assert len({tuple(block) for block in blocks // 400}) == 25
    assert pa.ipc.open_file(tmp_path / "a.arrow").num_record_batches == 25
    means = blocks.mean(axis=1)
    assert abs(means - 5000).max() < 5 * 10_000 / np.sqrt(12 * 400)


@pytest.mark.parametrize("method", METHODS)
def test_memory_stays_within_the_budget(tmp_path, method):
    rng = np.random.default_rng(0)
    source = tmp_path / "source.arrow"
    schema = pa.schema([("x", pa.list_(pa.float32(), 30)), ("t", pa.string())])
    with pa.ipc.new_file(source, schema) as writer:
        for _ in range(60):
            x = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(30_000, np.float32)), 30)
            writer.write_batch(pa.record_batch([x, pa.array(["t" * 20] * 1000)], schema=schema))
    budget = 1 << 20
    pools = {pool.backend_name: pool for pool in (pa.default_memory_pool(), pa.system_memory_pool())}.values()

    def taken():
        return sum(pool.bytes_allocated() for pool in pools)

    before, seen = taken(), []
    reshuffle(
        source,
        tmp_path / "a.arrow",
        method,
        memory=budget,
        progress=lambda *_: seen.append(taken() - before),
    )
    assert len(seen) > 20
    assert max(seen) <= budget


def test_progress_counts_every_row(tmp_path):
    told = []
    reshuffle(labelled(20_000), tmp_path / "a.arrow", memory="64KB", progress=lambda *now: told.append(now))
    assert told[-1] == (40_000, 40_000)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_parquet_and_record_batches(tmp_path):
    pq.write_table(labelled(1000), tmp_path / "a.parquet", row_group_size=300)
    reshuffle(tmp_path / "a.parquet", tmp_path / "a.arrow", record_batch=100, compression="zstd")
    assert sorted(ids(tmp_path / "a.arrow").tolist()) == list(range(1000))
    assert pa.ipc.open_file(tmp_path / "a.arrow").num_record_batches == 10


@pytest.mark.parametrize("method", METHODS)
def test_a_failure_leaves_nothing(tmp_path, method):
    def stop(done, _):
        if done > 6000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reshuffle(labelled(20_000), tmp_path / "a.arrow", method, memory="64KB", progress=stop)
    assert not list(tmp_path.iterdir())


def test_bad_requests(tmp_path):
    source, out = labelled(1000), tmp_path / "a.arrow"
    requests = [
        (BadArgument, "'two-pass', 'corgi2', 'bmf'", {"method": "sort"}),
        (BudgetTooSmall, "at least 64 KB for rows of 16 bytes", {"memory": "1KB"}),
        (BudgetTooSmall, "2 blocks of 500 rows", {"memory": "64KB", "block": 500, "method": "corgi2"}),
        (BadSize, "block", {"block": "0%", "method": "bmf"}),
        (BadArgument, "two-pass, which moves single rows", {"block": 100}),
        (BadArgument, "seed must be a whole number, got 0.5", {"seed": 0.5}),
        (BadSize, "memory", {"memory": "much"}),
    ]
    for error, message, options in requests:
        with pytest.raises(error, match=message):
            reshuffle(source, out, **options)
    assert not list(tmp_path.iterdir())
    reshuffle(source, out)
    for same in (str(out), tables.open(out)):
        with pytest.raises(BadArgument, match="give another"):
            reshuffle(same, out)
