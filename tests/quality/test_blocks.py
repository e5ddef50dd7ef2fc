"""h_D of a column."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgipile.errors import BadArgument
from corgipile.quality import h_d


@given(st.integers(1, 20), st.integers(2, 12))
def test_constant_blocks_give_their_rows(b, blocks):
    labels = np.repeat(np.arange(blocks), b)
    assert h_d(labels, np.arange(0, b * blocks + 1, b)) == pytest.approx(b)


@given(st.lists(st.integers(0, 3), min_size=6, max_size=6), st.integers(0, 1000))
def test_it_never_passes_the_rows_of_a_block(values, seed):
    labels = np.random.default_rng(seed).choice(values, 60)
    assert 0 <= h_d(labels, np.arange(0, 61, 6)) <= 6 + 1e-9


def test_shuffled_rows_give_one():
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 10, 100_000)
    assert h_d(labels, np.arange(0, 100_001, 100)) == pytest.approx(1.0, abs=0.1)


def test_a_short_last_block_hardly_counts():
    labels = np.append(np.tile([0, 1], 50), 1)
    assert h_d(labels, [*range(0, 101, 10), 101]) == pytest.approx(0.0, abs=0.05)


def test_numbers_work_as_labels_do():
    assert h_d(np.repeat([1.5, 2.5, 9.0], 4), [0, 4, 8, 12]) == pytest.approx(4)
    assert h_d(np.ones(4), [0, 2, 4]) == 0.0


@pytest.mark.parametrize("cuts", [[0], [0, 2], [1, 4], [0, 2, 2, 4], [[0, 4]]])
def test_cuts_that_do_not_cover_are_refused(cuts):
    with pytest.raises(BadArgument, match="cuts"):
        h_d([0, 1, 0, 1], cuts)


def test_words_of_more_kinds_than_fit_are_counted_as_any_are():
    draw = np.random.default_rng(0)
    words, cuts = draw.integers(0, 3000, 2400).astype(str), [0, 100, 1500, 2400]
    hot = (words[:, None] == np.unique(words)).astype(float)
    assert len(hot[0]) > 1024
    assert h_d(words, cuts) == pytest.approx(h_d(hot, cuts))


def test_a_million_kinds_take_no_room_for_each_of_a_row():
    assert h_d(np.arange(100_000).astype(str), [0, 50_000, 100_000]) == pytest.approx(0.5, rel=0.01)
