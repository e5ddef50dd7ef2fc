"""Workers agree on the epoch whenever they begin, and whatever else began meanwhile."""

import copy
import pickle

import pytest

from corgipile.errors import BadArgument
from corgipile.torch.epochs import KEPT, WORKERS, Passes


def epochs(passes, workers, seed, again=0):
    return [passes.begin(worker, len(workers), seed, again).epoch for worker in workers]


def test_each_iteration_runs_the_next_epoch():
    passes = Passes()
    assert epochs(passes, [0, 1], seed=5) == [0, 0]
    assert epochs(passes, [1, 0], seed=5, again=1) == [1, 1]
    assert passes.begin().epoch == 2
    assert epochs(passes, [0, 2, 1], seed=8) == [3, 3, 3]
    passes.set(1, [])
    assert passes.latest() is None
    assert epochs(passes, [0, 1], seed=5, again=2) == [1, 1]
    assert passes.latest().epoch == 1


def test_new_processes_of_the_same_seed_are_a_new_iteration():
    passes = Passes()
    for epoch in range(3 * KEPT):
        assert epochs(passes, [0, 1], seed=5) == [epoch, epoch]


def test_a_late_worker_joins_its_own_iteration():
    passes = Passes()
    first = passes.begin(0, 2, seed=5, again=0)
    passes.set(7, [])
    assert passes.begin(0, 2, seed=5, again=1).epoch == 7
    assert passes.begin(1, 2, seed=5, again=0) == first
    assert passes.begin(1, 2, seed=5, again=1).epoch == 7


def test_other_workers_with_the_same_seed_are_a_new_iteration():
    """As of one seeded generator; one worker of the first iteration never came to begin, since it was left at once."""
    passes = Passes()
    assert passes.begin(0, 1, seed=7).epoch == 0
    assert [passes.begin(worker, 4, seed=7).epoch for worker in (3, 0, 2, 1)] == [1, 1, 1, 1]
    assert passes.begin(1, 2, seed=8, first=10).epoch == 2
    assert [passes.begin(worker, 2, seed=8, first=12).epoch for worker in (0, 1)] == [3, 3]


def test_what_is_set_meanwhile_does_not_part_an_iteration():
    passes = Passes()
    first = passes.begin(0, 2, seed=5, first=3)
    passes.set(7, [])
    assert passes.begin(1, 2, seed=5, first=4) == first
    assert passes.latest() is None
    assert passes.begin(0, 2, seed=5, first=5).epoch == 7


def test_two_iterations_at_once():
    passes = Passes()
    assert [passes.begin(0, 2, seed=seed, again=0).epoch for seed in (5, 6)] == [0, 1]
    assert [passes.begin(1, 2, seed=seed, again=0).epoch for seed in (6, 5)] == [1, 0]


def test_what_is_done_is_for_the_first_iteration_only():
    passes = Passes()
    passes.set(4, [{"any": "thing"}])
    assert passes.planned() == (4, [{"any": "thing"}])
    assert [passes.begin(worker, 2, seed=5).begins for worker in (0, 1)] == [1, 1]
    assert [passes.begin(worker, 2, seed=6).begins for worker in (0, 1)] == [0, 0]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda passes: pickle.loads(pickle.dumps(passes))])  # noqa: S301
def test_a_copy_goes_its_own_way(copied):
    passes = Passes()
    passes.set(4, [])
    other = copied(passes)
    other.set(9, [])
    assert (passes.planned()[0], other.planned()[0], other.begin().epoch) == (4, 9, 9)


def test_limits():
    with pytest.raises(BadArgument, match=f"{WORKERS} workers at most"):
        Passes().begin(0, WORKERS + 1, seed=1)
    with pytest.raises(BadArgument, match="bytes of segments"):
        Passes().set(0, ["x" * (1 << 16)])
