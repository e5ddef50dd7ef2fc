from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile.errors import BadArgument, BadSchema, BadValue, MissingColumn
from corgipile.tables import open as open_table
from corgipile.tables import sketch as module
from corgipile.tables.sketch import row_bytes, sketch
from corgipile.tables.wrappers import Counting


@given(
    labels=st.lists(st.integers(-3, 3), max_size=60),
    kind=st.sampled_from([np.int64, np.int8, np.float32, np.bool_]),
    step=st.integers(1, 30),
    run=st.integers(1, 20),
)
@settings(max_examples=100, deadline=None)
def test_shares_agree_with_counting(labels, kind, step, run):
    values = np.array(labels).astype(kind)
    table = open_table(pa.table({"label": values}))
    cuts = table.cuts(step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "RUN_BYTES", 8 * run)
        found = sketch(table, cuts, "label")
    classes = np.unique(values).astype(np.float64)
    assert found.classes.tolist() == classes.tolist()
    assert found.values.shape == (len(cuts) - 1, len(classes))
    for shares, start, stop in zip(found.values, cuts[:-1], cuts[1:], strict=True):
        expected = [(values[start:stop] == label).mean() for label in classes.astype(kind)]
        assert shares.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("values", [np.linspace(0, 1, 100), np.arange(100.0), np.arange(3000), np.array([0.5, 1.0])])
def test_many_values_give_means(values):
    table = open_table(pa.table({"target": values}))
    cuts = table.cuts(30)
    found = sketch(table, cuts, "target")
    assert found.classes is None
    expected = [values[start:stop].mean() for start, stop in pairwise(cuts)]
    assert found.values[:, 0].tolist() == pytest.approx(expected)


def test_reads_only_the_column_in_runs(monkeypatch):
    monkeypatch.setattr(module, "RUN_BYTES", 8 * 40)
    table = Counting(open_table(pa.table({"label": [0] * 100, "text": ["x"] * 100})))
    sketch(table, table.cuts(7), "label")
    assert table.runs == [(0, 40), (40, 80), (80, 100)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.0, float("nan"), 1.0], "column 'y' is nan in row 1; it must be a finite number"),
        ([0.0, 1.0, float("-inf")], "column 'y' is -inf in row 2"),
        ([0, 1, None], "column 'y' is null in row 2; every row needs a number"),
    ],
)
def test_bad_values_are_told_with_their_row(monkeypatch, values, message):
    monkeypatch.setattr(module, "RUN_BYTES", 8 * 2)
    table = open_table(pa.table({"y": values}))
    with pytest.raises(BadValue, match=message):
        sketch(table, table.cuts(2), "y")


def test_bad_columns_and_cuts():
    table = open_table(pa.table({"text": ["a", "b"], "y": [1, 2]}))
    with pytest.raises(BadSchema, match="column 'text' is string; a column of numbers is needed"):
        sketch(table, table.cuts(1), "text")
    with pytest.raises(MissingColumn, match="no column 'x'"):
        sketch(table, table.cuts(1), "x")
    with pytest.raises(BadArgument, match=r"cuts must run from 0 to 2, got \[0\] to \[1\]"):
        sketch(table, np.array([0, 1]), "y")


def test_row_bytes_is_exact_for_fixed_width():
    rows = {"y": pa.array([1, 2], pa.int16()), "x": pa.array([[1.0] * 5] * 2, pa.list_(pa.float32(), 5))}
    assert row_bytes(open_table(pa.table(rows))) == 22
    assert row_bytes(open_table(pa.table(rows)), ["x"]) == 20


def test_row_bytes_is_sampled_else():
    table = open_table(pa.table({"y": [1.0] * 500, "text": ["x" * 100] * 500}))
    assert 110 <= row_bytes(table) <= 116
    assert row_bytes(open_table(pa.table({"text": pa.array([], pa.string())}))) == 0
