"""Facts about tables."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile import tables
from corgipile.datasets import clustered
from corgipile.description import about
from corgipile.errors import BadSchema
from corgipile.quality import h_d
from corgipile.quality.labels import LabelTally


def test_classes_and_blocks():
    facts = about(clustered(1000, classes=4), block="10%")
    assert (facts.rows, facts.blocks, facts.block_rows, facts.unit) == (1000, 10, 100, 1)
    assert facts.classes == {"0": 250, "1": 250, "2": 250, "3": 250}
    assert facts.label_range is None


def test_row_groups_are_natural_units(tmp_path):
    pq.write_table(pa.table({"label": np.arange(100) % 2}), tmp_path / "a.parquet", row_group_size=30)
    facts = about(tmp_path / "a.parquet", block=10)
    assert (facts.unit, facts.blocks, facts.block_rows) == (30, 4, 30)
    assert facts.h_d == 0.0


def test_numbers_words_and_nothing():
    facts = about(pa.table({"label": [0.5, 1.0, 3.0]}), block=1)
    assert facts.label_range == (0.5, 1.5, 3.0)
    assert about(pa.table({"label": ["b", "b", "a"]})).classes == {"b": 2, "a": 1}
    assert about(pa.table({"label": [1.0, -1.0, 1.0]})).classes == {"1": 2, "-1": 1}
    assert about(pa.table({"label": pa.array([], pa.int32())})).h_d is None


def test_labels_count_as_they_do_in_memory():
    random, cuts = np.random.default_rng(0), np.append(np.arange(0, 150_000, 40_003), 150_000)
    columns = {"class": np.sort(random.integers(0, 50, 150_000)), "number": np.cumsum(random.random(150_000)) + 1e6}
    columns |= {"whole": random.integers(0, 60, 150_000) / 1.0, "yes": random.random(150_000) < 0.3}
    columns |= {"word": np.array([f"w{one}" for one in columns["class"]])}
    table = tables.open(pa.table(columns))
    for name, values in columns.items():
        tally = LabelTally.of(table, name, cuts)
        assert tally.h_d == pytest.approx(h_d(values, cuts), rel=1e-9)
        names, counts = np.unique(values, return_counts=True)
        assert (tally.counts is None) == (name == "number")
        assert tally.counts is None or sorted(tally.counts.items()) == list(zip(names, counts, strict=True))


def test_more_texts_than_are_told_apart_share_groups():
    many = pa.table({"label": [f"text {row // 2}" for row in range(20_000)]})
    facts = about(many, block=1000)
    assert (facts.classes, facts.label_range) == ({}, None)
    assert abs(facts.h_d - h_d(np.repeat(np.arange(10_000), 2).astype(str), np.arange(0, 20_001, 1000))) < 0.2
    few, kept = about(pa.table({"label": pa.array([0.5, None, 1.5])}), block=1), about(pa.table({"label": [None]}))
    assert (few.label_range, few.h_d) == ((0.5, 1.0, 1.5), 1.0)
    assert kept.classes == {"null": 1}


def test_which_columns_rows_are_clustered_by(tmp_path):
    random = np.random.default_rng(0)
    columns = {"mixed": random.random(20_000), "time": np.sort(random.random(20_000)), "name": ["a", "b"] * 10_000}
    columns |= {"id": np.arange(20_000), "word": [f"w{row:05}" for row in range(20_000)]}
    facts = about(pa.table(columns), block=100, columns=True)
    assert set(list(facts.by_column)[:3]) == {"time", "id", "word"}
    assert all(
        abs(facts.by_column[name][0] - 100) < 1 + 3 * facts.by_column[name][1] for name in ("time", "id", "word")
    )
    assert all(facts.by_column[name][0] < 1.5 + 3 * facts.by_column[name][1] for name in ("mixed", "name"))
    assert about(pa.table({"x": [1.0]}), columns=True).by_column == {}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")  # one row group, as pandas writes it
    assert set(list(about(tmp_path / "a.parquet", block=100, columns=True).by_column)[:3]) == {"time", "id", "word"}


@pytest.mark.parametrize("rows", [360, 2000, 9000])
def test_tables_of_one_or_two_blocks_are_told_by_smaller_ones(rows, tmp_path):
    """h_D of a table that is one unit, or a block and a bit, says what its neighbours have in common, not noise."""
    noise = {f"x{at}": np.random.default_rng(at).normal(size=rows) for at in range(12)}
    pq.write_table(pa.table({**noise, "kind": np.arange(rows) * 3 // rows}), tmp_path / "a.parquet")
    facts = about(tmp_path / "a.parquet", label="kind", columns=True)
    assert facts.blocks == 1
    assert rows // 18 <= facts.by_rows <= rows // 16
    value, error = facts.by_column.pop("kind")
    assert value == pytest.approx(facts.by_rows, rel=0.3)
    assert 0 <= error < 0.2 * value
    assert all(value < 1.5 + 3 * error for value, error in facts.by_column.values())


def test_lists_are_no_labels():
    with pytest.raises(BadSchema, match="'features' must have one value per row, got fixed_size_list"):
        about(clustered(10), label="features")


def test_columns_too_large_to_measure_are_named(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.zeros((2, 24 << 20), np.int8), chunks=(1, 24 << 20), compression="gzip")
        file.create_dataset("label", data=np.arange(2))
    assert about(tmp_path / "a.h5", columns=True).unmeasured == ("x",)


def test_long_rows_of_many_columns_are_sampled_a_few_at_a_time(monkeypatch):
    rows = pa.table({f"x{at}": ["a" * (1 << 18)] * 16 for at in range(16)} | {"label": [0, 1] * 8})
    table, taken = cp.open(rows), []
    take = type(table).take
    monkeypatch.setattr(type(table), "take", lambda *given: taken.append(take(*given).nbytes) or take(*given))
    assert about(table, columns=True).sampled == 8
    assert 0 < max(taken) <= 8 << 20  # all columns of the sampled rows take 32 MB
