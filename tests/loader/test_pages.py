"""Full shuffle by runs of pages, from the file to the batch: each run is read once."""

import numpy as np
import pytest

import corgipile as cp
from corgipile.orders import FullShuffle
from corgipile.testing import Counting

ROWS = 3000


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Rows of 100 bytes, whose numbers are unique to the row."""
    path = tmp_path_factory.mktemp("pages") / "x.npy"
    np.save(path, np.repeat(np.arange(ROWS, dtype=np.float32)[:, None], 25, axis=1))
    return cp.open(path)


def rows_of(loader):
    return np.concatenate([batch["features"][:, 7].astype(int) for batch in loader]).tolist()


@pytest.mark.parametrize("prefetch", [0, 1])
def test_each_run_is_read_once_and_visited_together(table, prefetch):
    counting, order = Counting(table), FullShuffle(unit="page", pages=2)
    with cp.Loader(counting, batch_size=64, order=order, seed=3, prefetch=prefetch) as loader:
        seen = rows_of(loader)
    assert sorted(row for run in counting.runs for row in range(*run)) == list(range(ROWS))
    runs = [seen[at : at + 81] for at in range(0, ROWS, 81)]
    assert sorted(seen) == list(range(ROWS)) != seen
    assert any(run == list(range(run[0], run[0] + 81)) for run in runs)
    with cp.Loader(table, batch_size=64, order=order, seed=3, prefetch=prefetch) as location:
        assert rows_of(location) == seen
        assert 0 <= location.feeder.bytes_read - table.nbytes <= 81 * 100  # a run that two pieces share is read twice


def test_ranks_share_runs_exactly_and_any_batch_can_be_the_last(table):
    order = FullShuffle(unit="page", pages=2, buffer=200)
    with cp.Loader(table, batch_size=64, order=order, seed=3) as loader:
        whole = rows_of(loader)
    parts: list[int] = []
    for rank in range(3):
        with cp.Loader(table, batch_size=64, order=order, seed=3, rank=rank, world=3) as loader:
            begun, first = iter(loader), []
            for _ in range(5 + rank):
                first += next(begun)["features"][:, 7].astype(int).tolist()
            state = loader.state_dict()
            begun.close()
        with cp.Loader(table, batch_size=64, order=order, seed=3, rank=rank, world=3) as again:
            again.load_state_dict(state)
            parts += first + rows_of(again)
    assert parts == whole


def test_a_budget_that_holds_no_run_says_what_would_do(table):
    with pytest.raises(cp.errors.BudgetTooSmall, match="too few for full: give memory="):
        cp.Loader(table, batch_size=64, order=FullShuffle(unit="page"), memory="32KB")
