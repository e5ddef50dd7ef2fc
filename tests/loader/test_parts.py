"""Steps divided into parts: every row comes once, to its slot, and parts stay near the requested size."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corgipile.loader.parts import divide
from corgipile.orders import Step
from corgipile.orders.order import rows_of

RUNS = st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 400)), max_size=40)


def step_of(runs, seed):
    """Make a step of disjoint runs in any order, with varying gaps and lengths."""
    gaps, lengths = np.array(runs, np.int64).reshape(-1, 2).T
    stops = np.cumsum(gaps + lengths)
    random = np.random.default_rng(seed)
    extents = np.stack([stops - lengths, stops], axis=1)[random.permutation(len(runs))]
    return Step(extents, random.permutation(int(lengths.sum())).astype(np.int32), np.zeros(0, np.int32))


@given(RUNS, st.integers(0, 9), st.sampled_from([1.0, 7.5]), st.sampled_from([1, 200, 10_000]), st.booleans())
def test_every_row_comes_to_its_slot(runs, seed, row_bytes, most, whole):
    step = step_of(runs, seed)
    parts = divide(step, row_bytes, most, 64, whole=whole)
    pairs = [(row, slot) for part in parts for row, slot in zip(rows_of(part.extents), part.into, strict=True)]
    assert sorted(pairs) == sorted(zip(rows_of(step.extents), step.into, strict=True))
    assert [row for row, _ in pairs] == sorted(row for row, _ in pairs)
    for part in parts:
        wanted = len(part.into) * row_bytes
        assert wanted <= part.nbytes <= wanted + 64 * len(part.extents) + 1
        if whole:
            assert {tuple(run) for run in part.extents.tolist()} <= {tuple(run) for run in step.extents.tolist()}
        elif len(part.into) > 1:
            assert part.nbytes <= 3 * most + 64 + 2 * row_bytes
