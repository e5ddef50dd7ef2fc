"""Synthetic tables."""

import numpy as np
import pyarrow as pa
import pytest

from corgipile import tables
from corgipile.datasets import bayes_accuracy, clustered, higgs_like
from corgipile.errors import BadArgument


def arrays(path):
    table = tables.open(path)
    rows = table.read(0, len(table))
    return rows["features"].flatten().to_numpy().reshape(len(table), -1), rows["label"].to_numpy()


def linear_accuracy(train, test):
    x = np.column_stack([train[0], np.ones(len(train[0]))])
    weights = np.linalg.lstsq(x, 2.0 * train[1] - 1, rcond=None)[0]
    return ((np.column_stack([test[0], np.ones(len(test[0]))]) @ weights > 0) == test[1]).mean()


def test_higgs_like_is_sorted_overlapping_and_learnable(tmp_path):
    higgs_like(tmp_path / "a.arrow", 40_000, test=tmp_path / "b.arrow", test_rows=20_000)
    train, test = arrays(tmp_path / "a.arrow"), arrays(tmp_path / "b.arrow")
    assert train[0].dtype == np.float32
    assert train[1].dtype == np.int32
    assert train[0].shape == (40_000, 28)
    assert (np.diff(train[1]) >= 0).all()
    assert train[1].mean() == pytest.approx(0.53)
    assert (np.diff(test[1]) != 0).mean() > 0.4
    assert linear_accuracy(train, test) == pytest.approx(bayes_accuracy(), abs=0.012)
    correlation = np.corrcoef(train[0].T) - np.eye(28)
    assert np.abs(correlation).max() > 0.3


def test_seeds_repeat_and_differ(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        higgs_like(tmp_path / name, 1000, seed=seed, sorted_by_label=False)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() != (tmp_path / "c").read_bytes()
    labels = arrays(tmp_path / "a")[1]
    assert 0.45 < labels.mean() < 0.6
    assert (np.diff(labels) < 0).any()


def test_clustered_tables():
    table = clustered(1000, classes=4, features=3, spread=0.1, seed=5)
    assert isinstance(table, pa.Table)
    assert np.bincount(table["label"]).tolist() == [250] * 4
    assert table.equals(clustered(1000, classes=4, features=3, spread=0.1, seed=5))
    mixed = clustered(1000, classes=4, sorted_by_label=False)["label"].to_numpy()
    assert np.bincount(mixed).tolist() == [250] * 4
    assert (np.diff(mixed) < 0).any()


def test_sizes_are_checked(tmp_path):
    with pytest.raises(BadArgument, match="at least 1, got 0, 28"):
        higgs_like(tmp_path / "a", 0)
    with pytest.raises(BadArgument, match="at least 1, got 5, 0, 8"):
        clustered(5, classes=0)
