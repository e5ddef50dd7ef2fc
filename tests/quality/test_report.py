"""Coverage audit and the report on somebody's loader."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgipile.errors import BadArgument
from corgipile.quality import Coverage, coverage, deff, measure, prefix_discrepancy


@given(st.integers(0, 50), st.integers(0, 1000))
def test_a_permutation_covers(rows, seed):
    assert coverage(np.random.default_rng(seed).permutation(rows), rows).exact


def test_an_audit_counts_what_is_wrong():
    assert coverage([0, 0, 0, 1, 1, 7, -1], 4) == Coverage(4, 7, missing=2, repeated=2, most=3, foreign=2)
    assert coverage([], 2) == Coverage(2, 0, missing=2, repeated=0, most=0, foreign=0)


def test_ids_must_be_row_numbers():
    with pytest.raises(BadArgument, match="row number"):
        coverage([0.5], 2)
    with pytest.raises(BadArgument, match="row numbers"):
        measure([[0.5], [1.0]], [0, 1], batch=1)


@given(st.integers(1, 9), st.integers(0, 1000))
def test_batches_and_one_array_measure_alike(batch, seed):
    rng = np.random.default_rng(seed)
    labels, ids = rng.integers(0, 3, 90), rng.permutation(90)
    report = measure(ids, labels, batch)
    assert report == measure((ids[i : i + 7] for i in range(0, 90, 7)), labels, batch)
    assert report == measure(ids.tolist(), labels, batch)
    assert report.deff == pytest.approx(deff(labels[ids], batch))
    assert report.prefix == pytest.approx(prefix_discrepancy(labels[ids]))
    assert report.coverage.exact


def test_classes_may_be_words_and_big_integers_are_numbers():
    words = measure(np.arange(6), ["a", "a", "b", "b", "c", "c"], batch=2)
    assert words.deff == pytest.approx(2.0)
    whole = np.arange(12) // 4
    assert measure(range(12), whole, 4) == measure(range(12), whole.astype(np.float32), 4)
    years = np.arange(3000)
    assert measure(years, years, 10).deff == pytest.approx(measure(years, years + 0.5, 10).deff)


def test_rows_without_a_label_are_refused():
    with pytest.raises(BadArgument, match="must be 0 to 2, the rows that have labels, got 2 others"):
        measure([0, 1, 3, 4], [0, 1, 2], batch=2)
