"""Batch samplers that look ahead: the same batches, each with what follows, and states that count what was given."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")
data = pytest.importorskip("torch.utils.data")
Lookahead = pytest.importorskip("corgipile.torch.lookahead").Lookahead


class Counted:
    """A sampler with a state, as resumable ones have."""

    def __init__(self, count):
        self.count, self.at, self.epoch = count, 0, 0

    def __iter__(self):
        while self.at < self.count:
            self.at += 1
            yield [self.at - 1, self.epoch]
        self.at = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=12), st.integers(0, 5))
def test_batches_are_the_samplers_and_know_what_follows(batches, ahead):
    for _ in range(2):
        given_ = list(Lookahead(batches, ahead))
        assert given_ == batches
        assert [batch.number for batch in given_] == list(range(len(batches)))
        assert len({batch.turn for batch in given_}) <= 1
        assert [batch.following for batch in given_] == [batches[i + 1 : i + 1 + ahead] for i in range(len(batches))]
    assert len(Lookahead(batches, ahead)) == len(batches)


def test_passes_differ_and_batches_travel():
    sampler = Lookahead([[1, 2], [3]], 1)
    one, two = list(sampler), list(sampler)
    assert one[0].turn != two[0].turn
    again = pickle.loads(pickle.dumps(one[0]))  # noqa: S301
    assert (again, again.turn, again.number, again.following) == ([1, 2], one[0].turn, 0, [[3]])


def test_what_else_is_asked_is_the_samplers():
    sampler = Lookahead(data.BatchSampler(range(10), batch_size=4, drop_last=True))
    assert (sampler.batch_size, sampler.drop_last, len(sampler)) == (4, True, 2)
    counted = Lookahead(Counted(3), 2)
    counted.set_epoch(5)
    assert list(counted) == [[0, 5], [1, 5], [2, 5]]
    with pytest.raises(AttributeError, match="nothing"):
        sampler.nothing  # noqa: B018
    pickle.loads(pickle.dumps(sampler))  # noqa: S301


@pytest.mark.parametrize("sampler", [lambda: Counted(8), lambda: [[i, 0] for i in range(8)]], ids=["own", "plain"])
@pytest.mark.parametrize("stop", range(9))
def test_a_state_counts_what_was_given_not_what_was_drawn(sampler, stop):
    first = Lookahead(sampler(), 3)
    begun = iter(first)
    for _ in range(stop):
        next(begun)
    again = Lookahead(sampler(), 3)
    again.load_state_dict(first.state_dict())
    assert list(again) == [[i, 0] for i in range(stop, 8)]
    if stop < 8:
        assert list(again) == [[i, 0] for i in range(8)]  # the pass after it is whole


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata's own
@pytest.mark.parametrize("sampler", [lambda: Counted(6), lambda: [[i, 0] for i in range(6)]], ids=["own", "plain"])
def test_stateful_data_loader_resumes(sampler):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    rows = list(range(10))
    loader = stateful.StatefulDataLoader(rows, batch_sampler=Lookahead(sampler(), 3), collate_fn=list)
    begun = iter(loader)
    seen = [next(begun), next(begun)]
    state = loader.state_dict()
    again = stateful.StatefulDataLoader(rows, batch_sampler=Lookahead(sampler(), 3), collate_fn=list)
    again.load_state_dict(state)
    assert seen + list(again) == [[i, 0] for i in range(6)]
