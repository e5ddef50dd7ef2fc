import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from columns import make_rows

from corgipile.errors import ReadFailed
from corgipile.tables import open as open_table
from corgipile.testing import Counting, Failing, Slow, check_table


@pytest.mark.parametrize(
    "wrap",
    [Counting, lambda table: Slow(table, 0.0), lambda table: Failing(table, 10**6)],
    ids=["counting", "slow", "failing"],
)
def test_wrappers_are_tables(wrap):
    rows = make_rows(50, nulls=True)
    check_table(wrap(open_table(rows)), rows)


def test_counting():
    table = Counting(open_table(make_rows(50)))
    table.read(3, 9)
    table.take(np.array([7, 1]), ["label"])
    assert (table.calls, table.rows) == (2, 8)
    assert table.runs == [(3, 9), (7, 8), (1, 2)]
    again = pickle.loads(pickle.dumps(table))  # noqa: S301
    again.read(0, 1)
    assert (again.calls, table.calls) == (3, 2)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: table.read(i, i + 1), range(48)))
    assert table.calls == 50


def test_slow():
    table = Slow(open_table(make_rows(50)), 0.02)
    began = time.perf_counter()
    table.read(0, 1)
    table.take(np.array([1]))
    assert time.perf_counter() - began >= 0.04


def test_failing():
    table = Failing(open_table(make_rows(50)), after=1)
    table.read(0, 1)
    with pytest.raises(ReadFailed, match="read 2 of rows 3 to 9 failed on purpose"):
        table.read(3, 9)
    with pytest.raises(ReadFailed, match="read 3 of rows 4 to 8"):
        table.take(np.array([7, 4]))


def test_no_layout_passes_by(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    table = open_table(tmp_path / "x.npy")
    assert table.layout(["features"]) is not None
    assert Counting(table).layout(["features"]) is None
