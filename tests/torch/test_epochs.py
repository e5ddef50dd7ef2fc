"""Workers agree on the epoch whenever they begin, and whatever else began meanwhile."""

import copy
import pickle

import pytest

from corgipile.errors import BadArgument
from corgipile.torch.epochs import MAX_WORKERS, TURNS_PER_WORKER, Epochs


def begun(epochs, workers, seed, again=0):
    return [epochs.begin(worker, len(workers), seed, again).epoch for worker in workers]


def test_each_iteration_runs_the_next_epoch():
    epochs = Epochs()
    assert begun(epochs, [0, 1], seed=5) == [0, 0]
    assert begun(epochs, [1, 0], seed=5, again=1) == [1, 1]
    assert epochs.begin().epoch == 2
    assert begun(epochs, [0, 2, 1], seed=8) == [3, 3, 3]
    epochs.set(1, [])
    assert epochs.latest() is None
    assert begun(epochs, [0, 1], seed=5, again=2) == [1, 1]
    assert epochs.latest().epoch == 1


def test_new_processes_of_the_same_seed_are_a_new_iteration():
    epochs = Epochs()
    for epoch in range(3 * TURNS_PER_WORKER):
        assert begun(epochs, [0, 1], seed=5) == [epoch, epoch]


def test_a_late_worker_joins_its_own_iteration():
    epochs = Epochs()
    first = epochs.begin(0, 2, seed=5, again=0)
    epochs.set(7, [])
    assert epochs.begin(0, 2, seed=5, again=1).epoch == 7
    assert epochs.begin(1, 2, seed=5, again=0) == first
    assert epochs.begin(1, 2, seed=5, again=1).epoch == 7


def test_other_workers_with_the_same_seed_are_a_new_iteration():
    """As of one seeded generator; one worker of the first iteration never came to begin, since it was left at once."""
    epochs = Epochs()
    assert epochs.begin(0, 1, seed=7).epoch == 0
    assert [epochs.begin(worker, 4, seed=7).epoch for worker in (3, 0, 2, 1)] == [1, 1, 1, 1]
    assert epochs.begin(1, 2, seed=8, first=10).epoch == 2
    assert [epochs.begin(worker, 2, seed=8, first=12).epoch for worker in (0, 1)] == [3, 3]


def test_what_is_set_meanwhile_does_not_part_an_iteration():
    epochs = Epochs()
    first = epochs.begin(0, 2, seed=5, first=3)
    epochs.set(7, [])
    assert epochs.begin(1, 2, seed=5, first=4) == first
    assert epochs.latest() is None
    assert epochs.begin(0, 2, seed=5, first=5).epoch == 7


def test_two_iterations_at_once():
    epochs = Epochs()
    assert [epochs.begin(0, 2, seed=seed, again=0).epoch for seed in (5, 6)] == [0, 1]
    assert [epochs.begin(1, 2, seed=seed, again=0).epoch for seed in (6, 5)] == [1, 0]


def test_what_is_done_is_for_the_first_iteration_only():
    epochs = Epochs()
    epochs.set(4, [{"any": "thing"}])
    assert epochs.planned() == (4, [{"any": "thing"}])
    assert [epochs.begin(worker, 2, seed=5).begins for worker in (0, 1)] == [1, 1]
    assert [epochs.begin(worker, 2, seed=6).begins for worker in (0, 1)] == [0, 0]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda epochs: pickle.loads(pickle.dumps(epochs))])  # noqa: S301
def test_a_copy_goes_its_own_way(copied):
    epochs = Epochs()
    epochs.set(4, [])
    other = copied(epochs)
    other.set(9, [])
    assert (epochs.planned()[0], other.planned()[0], other.begin().epoch) == (4, 9, 9)


def test_limits():
    with pytest.raises(BadArgument, match=f"{MAX_WORKERS} workers"):
        Epochs().begin(0, MAX_WORKERS + 1, seed=1)
    with pytest.raises(BadArgument, match="segments must take at most"):
        Epochs().set(0, ["x" * (1 << 16)])
