"""Laws of the randomness everything else stands on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from corgipile import random
from corgipile.errors import BadArgument

keys = st.integers(0, 2**64 - 1)


@given(n=st.integers(1, 2000), key=keys)
def test_permute_is_a_permutation_and_unpermute_its_inverse(n, key):
    values = random.permute(n, key, 0, n)
    assert np.array_equal(np.sort(values), np.arange(n))
    assert np.array_equal(random.unpermute(n, key, values), np.arange(n))
    assert np.array_equal(random.permute_at(n, key, np.arange(n)[::-1]), values[::-1])


@given(n=st.integers(2**40, 2**63), key=keys, start=st.integers(0, 2**39))
def test_permute_reaches_huge_tables(n, key, start):
    values = random.permute(n, key, start, start + 50)
    assert len(np.unique(values)) == 50
    assert (values.astype(np.uint64) < n).all()
    assert np.array_equal(random.unpermute(n, key, values), np.arange(start, start + 50))


@given(n=st.integers(1, 500), key=keys, cut=st.integers(0, 500))
def test_a_stretch_equals_the_stretch_of_the_whole(n, key, cut):
    cut = min(cut, n)
    assert np.array_equal(random.permute(n, key, cut, n), random.permute(n, key, 0, n)[cut:])
    assert np.array_equal(random.randoms(key, cut, n), random.randoms(key, 0, n + cut)[cut:])


@pytest.mark.parametrize("n", [2, 3, 5, 7, 16, 33])
def test_every_value_is_as_likely_at_every_position(n):
    """Chi-square over n x n cells; the bound is the 1 - 1e-6 quantile, so a fair bijection fails once in a million."""
    tries = 4000
    seen = np.zeros((n, n))
    for seed in range(tries):
        seen[np.arange(n), random.permute(n, random.derive(seed, 1), 0, n)] += 1
    expected = tries / n
    statistic = ((seen - expected) ** 2 / expected).sum() * (n - 1) / n
    assert statistic < stats.chi2.ppf(1 - 1e-6, (n - 1) ** 2)


def parity(values):
    """Return 1 for an odd permutation: its length less its cycles."""
    left, cycles = set(range(len(values))), 0
    while left:
        cycles, at = cycles + 1, left.pop()
        while (at := int(values[at])) in left:
            left.remove(at)
    return (len(values) - cycles) % 2


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8, 15, 16, 17, 63, 64, 128, 511, 512, 600])
def test_half_of_all_keys_permute_oddly(n):
    """Odd ones of 800 keys are binomial; the bounds are exceeded by a fair coin once in a million."""
    odd = sum(parity(random.permute(n, random.derive(seed, 5), 0, n)) for seed in range(800))
    assert stats.binom.ppf(5e-7, 800, 0.5) <= odd <= stats.binom.isf(5e-7, 800, 0.5)


def shuffled(key):
    items = np.arange(4)
    random.shuffle(items, key)
    return items


@pytest.mark.parametrize("drawn", [shuffled, lambda key: random.permute(4, key, 0, 4)])
def test_all_permutations_of_four_are_as_likely(drawn):
    """Chi-square over 24 permutations, bound as above."""
    tries, seen = 24_000, {}
    for seed in range(tries):
        items = drawn(random.derive(seed))
        seen[tuple(items)] = seen.get(tuple(items), 0) + 1
    counts = np.array(list(seen.values()))
    assert len(counts) == 24
    assert ((counts - 1000) ** 2 / 1000).sum() < stats.chi2.ppf(1 - 1e-6, 23)


@given(n=st.integers(0, 300), key=keys, kind=st.sampled_from([np.int32, np.int64]))
def test_shuffle_keeps_the_items(n, key, kind):
    items = np.arange(n, dtype=kind)
    random.shuffle(items, key)
    assert np.array_equal(np.sort(items), np.arange(n))


def test_seed_and_epoch_are_hashed_not_added():
    assert random.derive(7, 1) != random.derive(8, 0)
    assert random.derive(7, 1) != random.derive(1, 7)
    assert random.derive(0) != random.derive(0, 0) != random.derive()
    assert len({random.derive(seed, epoch) for seed in range(100) for epoch in range(100)}) == 10_000


def test_randoms_are_uniform():
    """Kolmogorov-Smirnov at 1 - 1e-6, and bits of neighbouring keys are unrelated."""
    unit = random.randoms(random.derive(5), 0, 100_000) / 2.0**64
    assert stats.kstest(unit, "uniform").pvalue > 1e-6
    a, b = (random.randoms(random.derive(seed), 0, 100_000) / 2.0**64 for seed in (1, 2))
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(100_000)


def test_bad_arguments_are_errors():
    with pytest.raises(BadArgument, match="positions must be from 0 to 10"):
        random.permute(10, 1, 5, 11)
    with pytest.raises(BadArgument, match="must be from 0 to 9"):
        random.unpermute(10, 1, np.array([10]))
    with pytest.raises(BadArgument, match="positions must be from 0 to 9"):
        random.permute_at(10, 1, np.array([-1]))
    with pytest.raises(TypeError, match="must have elements of 4 or 8 bytes"):
        random.shuffle(np.arange(4, dtype=np.int16), 1)
