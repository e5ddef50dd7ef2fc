from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile.errors import BadArgument, BadSchema, MissingColumn
from corgipile.tables import open as open_table
from corgipile.tables import scan as module
from corgipile.tables.sketch import sketch
from corgipile.testing import Counting

KINDS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
KINDS += [np.float16, np.float32, np.float64, np.bool_]


def told(values, cuts):
    """Return the documented sketch of blocks, by counting."""
    numbers = values.astype(np.float64)
    classes = np.unique(numbers)
    blocks = [numbers[start:stop] for start, stop in pairwise(cuts)]
    if len(classes) > (64 if values.dtype.kind == "f" else 1024) or (classes != np.floor(classes)).any():
        return [sum(block.tolist()) / max(len(block), 1) for block in blocks]
    shares = [(block[:, None] == classes).sum(axis=0) / max(len(block), 1) for block in blocks]
    if len(classes) <= 2:
        return [share[-1] if len(share) else 0.0 for share in shares]
    return [share.argmax() + share.max() / 2 for share in shares]


@given(
    labels=st.lists(st.integers(-3, 3) | st.sampled_from([-0.0, 0.5, 100, 101, 2**40]), max_size=60),
    kind=st.sampled_from(KINDS),
    step=st.integers(1, 30),
    run=st.integers(1, 20),
)
@settings(max_examples=200, deadline=None)
def test_blocks_are_described_as_by_counting(labels, kind, step, run):
    with np.errstate(all="ignore"):
        values = np.array(labels).astype(kind)
    values = np.nan_to_num(values, posinf=3, neginf=-3) if values.dtype.kind == "f" else values
    table = open_table(pa.table({"label": values}))
    cuts = table.cuts(step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "READ_BYTES", 8 * run)
        patch.setattr(module, "MAX_WHOLE_BYTES", 0)
        found = sketch(table, cuts, "label")
    assert found.tolist() == told(values, cuts)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(3000) % 1024 - 500,
        np.arange(3000) % 1025 - 500,
        np.arange(3000) * (2**53 // 3000),
        np.arange(3000.0) % 64 - 32,
        np.arange(3000.0) % 65 - 32,
        np.sort(np.arange(3000) % 3) * 2.0**60,
        np.arange(3000) // 1000 * np.uint64(2**62),
        np.r_[np.zeros(2000), 0.5, np.arange(999.0) % 3],
        np.r_[np.zeros(2999), 0.5],
        np.r_[0.5, np.zeros(2999)],
        np.arange(3000) % 2 * 5 + np.arange(3000) // 1000,
        np.linspace(-1, 1, 3000),
    ],
)
def test_classes_many_late_and_tied(values):
    table = open_table(pa.table({"label": values}))
    for cuts in (table.cuts(30), table.cuts(1), table.cuts(3000), np.array([0, 0, 7, 7, 7, 1900, 3000, 3000])):
        assert sketch(table, cuts, "label").tolist() == pytest.approx(told(values, cuts), rel=1e-12, abs=1e-12)


def test_sums_beyond_double_of_either_sign_are_ranked():
    labels = np.r_[[1e308, 1e308, -1e308, -1e308], [1e308] * 4, [-1e308] * 4, [0.5] * 4]
    table = open_table(pa.table({"label": labels}))
    assert sketch(table, table.cuts(4), "label").tolist() == [0.0, np.inf, -np.inf, 0.5]


def test_memory_does_not_grow_with_classes():
    table = open_table(pa.table({"label": np.arange(200_000) % 1024}))
    found = sketch(table, np.arange(200_001), "label")  # 200,000 blocks: 1.6 GB as a table of shares
    assert found.tolist() == (np.arange(200_000) % 1024 + 0.5).tolist()


def test_reads_only_the_column_in_runs(monkeypatch):
    monkeypatch.setattr(module, "READ_BYTES", 8 * 40)
    monkeypatch.setattr(module, "MAX_WHOLE_BYTES", 0)
    table = Counting(open_table(pa.table({"label": [0] * 100, "text": ["x"] * 100})))
    sketch(table, table.cuts(7), "label")
    assert table.runs == [(0, 40), (40, 80), (80, 100)]


@pytest.mark.parametrize(
    ("values", "filled"),
    [
        ([1.0, float("nan"), 0.0, float("inf"), 0.0], [1.0, 1.0, 0.0, 0.0, 0.0]),
        ([float("nan"), 1.0, float("-inf"), 0.0, 1.0], [0.0, 1.0, 1.0, 0.0, 1.0]),
        ([0, 1, None, None, 0], [0, 1, 1, 1, 0]),
        ([None, None, None, None, True], [False, False, False, False, True]),
    ],
)
def test_what_is_missing_counts_as_what_came_before(monkeypatch, values, filled):
    monkeypatch.setattr(module, "READ_BYTES", 8 * 2)
    monkeypatch.setattr(module, "MAX_WHOLE_BYTES", 0)
    table, whole = open_table(pa.table({"y": values})), open_table(pa.table({"y": filled}))
    assert sketch(table, table.cuts(2), "y").tolist() == sketch(whole, whole.cuts(2), "y").tolist()


def test_bad_columns_and_cuts():
    table = open_table(pa.table({"x": [[1], [2]], "y": [1, 2]}))
    with pytest.raises(BadSchema, match="column 'x' must hold one number, text or time a row, got list<"):
        sketch(table, table.cuts(1), "x")
    with pytest.raises(MissingColumn, match="no column 'z'"):
        sketch(table, table.cuts(1), "z")
    with pytest.raises(BadArgument, match=r"cuts must run from 0 to 2, got \[0\] to \[1\]"):
        sketch(table, np.array([0, 1]), "y")
