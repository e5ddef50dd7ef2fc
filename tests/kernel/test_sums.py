"""Sums without rounding: kernel/sgd/sums.h."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile import _kernel

NUMBERS = st.lists(st.floats(-1e300, 1e300), max_size=30)


def summed(*parts):
    total = bytearray(_kernel.SUM_BYTES)
    for part in parts:
        _kernel.sum_add(total, np.array(part, np.float64))
    return _kernel.sum_value(total)


@settings(max_examples=500)
@given(NUMBERS, st.integers(0, 30))
def test_a_sum_is_rounded_once_however_it_is_cut(numbers, cut):
    assert summed(numbers) == summed(numbers[cut:], numbers[:cut]) == math.fsum(numbers)


def test_many_numbers_of_all_sizes():
    draw = np.random.default_rng(0)
    numbers = draw.standard_normal(5000) * 2.0 ** draw.integers(-1074, 1000, 5000)
    assert summed(numbers) == math.fsum(numbers)
    assert summed(numbers, -numbers) == 0
    assert summed([5e-324] * 3) == 1.5e-323
    assert summed([1.0, 2.0**-53, 2.0**-1000]) == 1.0 + 2.0**-52


def test_what_is_not_finite_stays_so():
    assert summed([1.0, math.inf]) == math.inf
    assert math.isnan(summed([math.inf, -math.inf]))
    with pytest.raises(ValueError, match="bytes"):
        _kernel.sum_add(bytearray(8), np.zeros(1))
