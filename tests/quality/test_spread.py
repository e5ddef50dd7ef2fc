"""deff and prefix discrepancy: exact cases, naive definitions, and the scales that RIFFLE.md reports."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgipile.errors import BadArgument
from corgipile.quality import deff, expected_deff_corgipile, prefix_discrepancy

CLASSES = st.lists(st.integers(0, 4), min_size=8, max_size=200)


def one_hot(values):
    return (np.asarray(values)[:, None] == np.unique(values)[None, :]).astype(float)


def naive_deff(values, batch):
    hot = one_hot(values)
    p = hot.mean(axis=0)
    whole = hot[: len(hot) // batch * batch].reshape(-1, batch, len(p)).mean(axis=1)
    return batch * ((whole - p) ** 2).sum(axis=1).mean() / (1 - (p**2).sum())


def naive_prefix(values, norm):
    hot = one_hot(values)
    path = (hot - hot.mean(axis=0)).cumsum(axis=0)
    if norm == "worst":
        return (np.abs(path).max(axis=0) / hot.std(axis=0)).max() / len(hot) ** 0.5
    return np.linalg.norm(path, axis=1).max() / np.sqrt(hot.var(axis=0).sum() * len(hot))


def sorted_classes(classes, rows):
    return np.repeat(np.arange(classes), rows // classes)


@given(CLASSES, st.integers(1, 8))
def test_deff_is_its_definition(values, batch):
    if len(set(values)) > 1:
        assert deff(values, batch) == pytest.approx(naive_deff(values, batch))


@given(CLASSES, st.sampled_from(["worst", "euclidean"]))
def test_prefix_is_its_definition(values, norm):
    if len(set(values)) > 1:
        assert prefix_discrepancy(values, norm) == pytest.approx(naive_prefix(values, norm))


@given(st.lists(st.integers(0, 1), min_size=4, max_size=100), st.integers(1, 4))
def test_two_classes_are_one_number(bits, batch):
    numbers = np.array(bits, dtype=np.float64)
    assert deff(bits, batch) == pytest.approx(deff(numbers, batch))
    assert prefix_discrepancy(bits) == pytest.approx(prefix_discrepancy(numbers))


@given(CLASSES)
def test_one_kind_of_row_has_no_spread(values):
    assert deff([values[0]] * len(values), 2) == 0.0
    assert prefix_discrepancy([values[0]] * len(values)) == 0.0


def test_long_runs_agree_with_short_ones():
    values = np.random.default_rng(0).integers(0, 3, 150_000)
    assert deff(values, 256) == pytest.approx(naive_deff(values, 256))
    assert prefix_discrepancy(values) == pytest.approx(naive_prefix(values, "worst"))


def test_a_full_shuffle_has_the_documented_scale():
    rng = np.random.default_rng(1)
    labels = sorted_classes(10, 50_000)
    orders = [rng.permutation(labels) for _ in range(20)]
    assert np.mean([deff(order, 256) for order in orders]) == pytest.approx(1.0, abs=0.05)
    assert np.mean([prefix_discrepancy(order) for order in orders]) == pytest.approx(1.3, abs=0.2)
    assert np.mean([prefix_discrepancy(order, "euclidean") for order in orders]) == pytest.approx(0.61, abs=0.08)


def test_sorted_rows_have_batches_of_one_class():
    assert deff(sorted_classes(10, 100_000), 100) == pytest.approx(100)


def test_the_batch_formula_predicts_a_fill_and_drain_buffer():
    rng = np.random.default_rng(2)
    b, n, blocks, batch = 20, 50, 500, 100
    table = sorted_classes(10, b * blocks).reshape(blocks, b)
    measured = []
    for _ in range(40):
        buffers = table[rng.permutation(blocks)].reshape(blocks // n, n * b)
        measured.append(deff(rng.permuted(buffers, axis=1).ravel(), batch))
    assert np.mean(measured) == pytest.approx(expected_deff_corgipile(batch, n, b, blocks, b), rel=0.05)


def test_a_buffer_of_the_whole_table_is_a_full_shuffle():
    assert expected_deff_corgipile(50, n=10, b=10, blocks=10, h_d=10) == pytest.approx(50 / 99)
    assert expected_deff_corgipile(1, n=1, b=1, blocks=1, h_d=1) == 1.0


@pytest.mark.parametrize(
    ("values", "batch"),
    [([1, 2], 0), ([1, 2], 3), ([], 1), ([[[1]]], 1), ([1.0, float("nan")], 1), ([{}, {}], 1)],
)
def test_bad_values_are_refused(values, batch):
    with pytest.raises(BadArgument):
        deff(values, batch)


def test_bad_settings_are_refused():
    with pytest.raises(BadArgument, match="got 'max'"):
        prefix_discrepancy([0, 1], "max")
    with pytest.raises(BadArgument, match="n <= blocks"):
        expected_deff_corgipile(4, n=3, b=4, blocks=2, h_d=1)
