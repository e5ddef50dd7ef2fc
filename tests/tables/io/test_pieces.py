import threading

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corgipile.tables.io.pieces import Recent, merge_cuts, runs_of


@given(sizes=st.lists(st.integers(0, 50), min_size=1, max_size=30), rows=st.integers(1, 200))
def test_merged_cuts_keep_to_pieces_and_to_the_size_asked_for(sizes, rows):
    starts = np.cumsum([0, *sizes])
    cuts = merge_cuts(starts, rows)
    assert set(cuts.tolist()) <= set(starts.tolist())
    assert cuts[0] == 0
    assert cuts[-1] == starts[-1]
    assert (np.diff(cuts) > 0).all()
    for start, stop in zip(cuts[:-2].tolist(), cuts[1:-1].tolist(), strict=True):
        # No other edge is nearer.
        edges = starts[starts > start] - start
        assert abs(stop - start - rows) == np.abs(edges - rows).min()


@given(rows=st.lists(st.integers(0, 200), min_size=1, unique=True), gap=st.integers(0, 20))
def test_runs_cover_rows_and_bridge_small_gaps_only(rows, gap):
    wanted = np.array(sorted(rows))
    firsts, stops = runs_of(wanted, gap)
    covered = np.concatenate([np.arange(a, b) for a, b in zip(firsts, stops, strict=True)])
    assert np.isin(wanted, covered).all()
    assert (firsts[1:] - stops[:-1] > gap).all()
    assert np.isin(firsts, wanted).all()
    assert np.isin(stops - 1, wanted).all()


@given(rows=st.lists(st.integers(0, 200), min_size=1, unique=True), most=st.integers(1, 50))
def test_runs_are_no_longer_than_asked_for_and_cover_each_row_once(rows, most):
    wanted = np.array(sorted(rows))
    firsts, stops = runs_of(wanted, 200, most)
    assert (stops - firsts <= most).all()
    assert (firsts[1:] >= stops[:-1]).all()
    covered = np.concatenate([np.arange(a, b) for a, b in zip(firsts, stops, strict=True)])
    assert np.isin(wanted, covered).all()


def test_recent_forgets_the_oldest():
    made = []
    recent = Recent(2)
    for key in (1, 2, 1, 3, 2, 3):
        recent.get(key, lambda key=key: made.append(key))
    assert made == [1, 2, 3, 2]


def test_recent_takes_errors_and_threads():
    recent = Recent(1)
    barrier = threading.Barrier(4)

    def work():
        barrier.wait()
        for i in range(200):
            assert recent.get(i % 3, lambda i=i: i % 3) == i % 3

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
