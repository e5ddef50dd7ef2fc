"""A mix has exact counts, spreads each source evenly, and repeats rows as equally as possible."""

import itertools
import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.errors import BadArgument, BadSchema
from corgipile.loader.mixed import MixReader
from corgipile.orders.order import Step, rows_of
from corgipile.tables.mixing import divide_by_weight
from corgipile.testing import check_loader, check_table


def source(number, rows):
    return pa.table({"source": np.full(rows, number), "row": np.arange(rows)})


def origin(mixed, extents):
    """Return source and number of each row of some runs."""
    extents = np.array(extents)
    found = np.full((2, (extents[:, 1] - extents[:, 0]).sum()), -1)
    for number, places, rows in mixed.shares(extents):
        found[:, places] = np.stack([np.full(len(rows), number), rows])
    return found


@given(
    st.lists(st.tuples(st.integers(1, 60), st.floats(0.01, 100)), min_size=1, max_size=5),
    st.integers(1, 200),
    st.integers(0, 5),
)
@settings(max_examples=30, deadline=None)
def test_counts_are_exact_rows_even_and_order_spread(sizes, rows, part):
    sources = [(source(i, size), weight) for i, (size, weight) in enumerate(sizes)]
    mixed = cp.mix(sources, rows=rows, part=part)
    table = mixed.read(0, rows)
    owner, row = table["source"].to_numpy(), table["row"].to_numpy()
    weights = np.array([weight for _, weight in sizes])
    counts = np.bincount(owner, minlength=len(sizes))
    assert counts.sum() == len(mixed) == rows
    assert (np.abs(counts - rows * weights / weights.sum()) < 1).all()
    for number, (size, _) in enumerate(sizes):
        times = np.bincount(row[owner == number], minlength=size)
        assert times.max() - times.min() <= 1
        so_far = np.cumsum(owner == number)
        ideal = np.arange(1, rows + 1) * counts[number] / rows
        assert np.abs(so_far - ideal).max() <= len(sizes) / 2 + 1
        if 0 < counts[number] < size:  # evenly spread: equal stretches have equal counts
            starts = np.sort(row[owner == number])
            assert np.diff(starts).max(initial=0) <= -(-size // counts[number])


def test_laws(rows_of):
    one, two = rows_of(50, 1, nulls=True), rows_of(20, 2, nulls=True)
    mixed = cp.mix([(one, 1), (two, 2)], rows=90)
    source_of, row = origin(mixed, [[0, 90]])
    numbers = np.where(source_of == 0, row, row + 50)
    check_table(mixed, pa.concat_tables([one, two]).take(pa.array(numbers)))


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_any_runs_have_the_rows_of_the_whole(seed):
    rng = np.random.default_rng(seed)
    tables = [(source(i, int(rng.integers(1, 500))), float(rng.random() + 0.01)) for i in range(rng.integers(1, 5))]
    mixed = cp.mix(tables, rows=int(rng.integers(1, 3000)))
    whole = origin(mixed, [[0, len(mixed)]])
    runs = np.sort(rng.integers(0, len(mixed) + 1, (20, 2)), axis=1)
    expected = np.concatenate([np.zeros((2, 0), int), *(whole[:, a:b] for a, b in runs)], axis=1)
    assert np.array_equal(origin(mixed, runs), expected)


def test_parts_give_all_rows_of_what_is_not_all_taken():
    tables = [(source(0, 100), 1), (source(1, 7), 1)]
    seen, repeated = set(), np.zeros(7, int)
    for part in range(4):
        mixed = cp.mix(tables, rows=60, part=part)
        batch = mixed.read(0, 60)
        owner, row = batch["source"].to_numpy(), batch["row"].to_numpy()
        assert np.bincount(owner).tolist() == [30, 30]
        seen |= set(row[owner == 0].tolist())
        repeated += np.bincount(row[owner == 1], minlength=7)
    assert seen == set(range(100))
    assert repeated.max() - repeated.min() <= 1  # also over all parts
    assert cp.mix(tables, rows=60).fingerprint != mixed.fingerprint
    assert pickle.loads(pickle.dumps(mixed)).fingerprint == mixed.fingerprint  # noqa: S301


@pytest.mark.parametrize("kind", ["arrow", "memory", "parquet", "text"])
def test_a_loader_gives_each_row_its_times_and_goes_on_anywhere(tmp_path, kind):
    tables, sizes = [], (300, 50, 1000)
    for number, rows in enumerate(sizes):
        table = source(number, rows).append_column("x", pa.array(np.arange(rows) * 10.0 + number))
        if kind == "text":
            table = table.append_column("text", pa.array([f"{number} {i}" for i in range(rows)]))
        if kind == "arrow":
            with pa.ipc.new_file(str(tmp_path / f"{number}.arrow"), table.schema) as writer:
                writer.write_table(table, max_chunksize=90)
            tables.append(tmp_path / f"{number}.arrow")
        elif kind == "parquet":
            pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=100)
            tables.append(tmp_path / f"{number}.parquet")
        else:
            tables.append(table)
    mixed = cp.mix(list(zip(tables, (2, 1, 1), strict=True)), rows=800)
    for order in ("riffle", "full"):
        counts = [np.zeros(rows, int) for rows in sizes]
        with cp.Loader(mixed, batch_size=32, order=order, memory="30KB", seed=2) as loader:
            for batch in loader:
                assert np.array_equal(batch["x"], batch["row"] * 10.0 + batch["source"])
                if kind == "text":
                    assert [f"{s} {r}" for s, r in zip(batch["source"], batch["row"], strict=True)] == list(
                        batch["text"]
                    )
                for number, row in zip(batch["source"].tolist(), batch["row"].tolist(), strict=True):
                    counts[number][row] += 1
        assert [count.sum() for count in counts] == [400, 200, 200]
        assert [set(count.tolist()) for count in counts] == [{1, 2}, {4}, {0, 1}]
    if kind == "memory":
        check_loader(lambda: cp.Loader(mixed, batch_size=32, order="riffle", memory="20KB", seed=2))


def test_largest_remainders():
    assert divide_by_weight(100, [0.335, 0.335, 0.33]) == [34, 33, 33]
    assert divide_by_weight(3, [1e300, 1e300, 1e-300]) == [2, 1, 0]
    assert sum(divide_by_weight(10**15 + 7, [1, 3, 3.3])) == 10**15 + 7
    for total, count in itertools.product((1, 5, 17), (1, 3, 20)):
        assert sum(divide_by_weight(total, [1] * count)) == total


def test_columns_by_name_and_what_is_refused():
    one = pa.table({"x": [1], "label": [0]})
    mixed = cp.mix([(one, 1), (pa.table({"label": [1], "x": [2]}), 1)])
    assert sorted(mixed.read(0, 2)["x"].to_pylist()) == [1, 2]
    assert json.dumps(mixed.counts) == "[1, 1]"
    with pytest.raises(BadSchema, match="column 'x' is string"):
        cp.mix([(one, 1), (pa.table({"x": ["a"], "label": [1]}), 1)])
    for weight in (0, -1, float("nan"), float("inf"), "much", None):
        with pytest.raises(BadArgument, match="weight"):
            cp.mix([(one, 1), (one, weight)])
    for wrong in ([], one, [one], [(one, 1, 2)]):
        with pytest.raises(BadArgument, match=r"a list of at least one \(table, weight\)|a pair"):
            cp.mix(wrong)
    with pytest.raises(BadArgument, match="must have rows, as 1 are to be taken"):
        cp.mix([(one, 1), (one.slice(0, 0), 1)], rows=2)
    with pytest.raises(BadArgument, match="rows must be a whole number of at least 1"):
        cp.mix([(one, 1)], rows=0)
    assert cp.mix([(one, 1), (one.slice(0, 0), 1e-9)], rows=3).read(0, 3)["x"].to_pylist() == [1, 1, 1]


def test_a_part_of_a_mixture_that_changed_is_refused():
    def mixed(first, part, rows=60):
        return cp.mix([(source(10, 100), first), (source(11, 100), 1 - first)], rows=rows, part=part)

    seen = [mixed(0.8, part) for part in range(2)]
    for changed in ({"first": 0.5}, {"first": 0.8, "rows": 50}):
        with pytest.raises(BadArgument, match=r"part=2 must have the weights and rows .* \(48, 12\)"):
            mixed(part=2, **changed)
    rows = [row for one in (*seen, mixed(0.8, 2)) for row in zip(*one.read(0, 60).to_pydict().values(), strict=True)]
    assert len({row for row in rows if row[0] == 10}) == 100
    assert [len(mixed(0.5, part)) for part in range(4)] == [60] * 4  # another training from the start
    assert len(mixed(0.8, 3)) == 60


@pytest.mark.parametrize("stride", [1, 3, 4])
def test_each_source_reads_the_rows_that_its_runs_name(stride):
    """Rows of a source with gaps of one row, or two, are separate runs."""

    class Recorder:
        def fill(self, step, *, urgent=True):
            read.append((rows_of(step.extents).tolist(), step.into.tolist(), urgent))

    mixed, read = cp.mix([(source(0, 90), 1), (source(1, 90), 1)]), []
    rows = np.arange(0, len(mixed), stride)
    step = Step(np.stack([rows, rows + 1], axis=1), np.arange(len(rows), dtype=np.int32), np.zeros(0, np.int32))
    MixReader(mixed, [Recorder(), Recorder()]).fill(step)
    expected = [(numbers.tolist(), places.tolist(), True) for _, places, numbers in mixed.shares(step.extents)]
    assert read == expected
