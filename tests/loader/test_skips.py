"""Skipped steps and rows: on all ranks and workers, in every order, after every resume; the rest is unchanged."""

import json
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile.errors import BadArgument, StateMismatch
from corgipile.loader import Loader
from corgipile.orders import CorgiPile, FullShuffle, Reservoir, Riffle

ORDERS = [Riffle(block=5, buffer=40), CorgiPile(block=6, buffer=30), FullShuffle(), Reservoir(buffer=20)]


def rows_table(rows):
    return pa.table({"row": np.arange(rows)})


def rows_of(batches):
    return [batch["row"].tolist() for batch in batches]


AT = {"step": 0, "offset": 0}  # the end of a step is the beginning of the next one
KINDS = pa.table({
    "row": np.arange(60), "text": [f"t{at}" for at in range(60)], "list": [[at] * (at % 4) for at in range(60)],
    "pair": [[at, at] for at in range(60)], "f_k": [list(range(at % 3)) for at in range(60)],
    "f_v": [[float(at)] * (at % 3) for at in range(60)],
})  # fmt: skip


def own_turn(most, step, worker):
    """Return a step's number among a worker's batches, all taking turns; None for another worker's."""
    turns = sorted((turn, one) for one, count in enumerate(most) for turn in range(count))
    return [turns[step][0]] if step < len(turns) and turns[step][1] == worker else []


def left(plain, ranks, skip, epoch):
    """Return the batches of each rank, by step, after skips; computed independently from the plain ones."""
    rows = {one for one in skip if isinstance(one, int)}
    steps = {one[1] for one in skip if not isinstance(one, int) and one[0] == epoch}
    made = [
        [[row for row in plain.rows_of(step, rank=rank, epoch=epoch).tolist() if row not in rows] for rank in ranks]
        for step in range(plain.rewind().steps(epoch))
    ]
    return {step: found for step, found in enumerate(made) if step not in steps and all(found)}


@given(
    st.integers(1, 200), st.integers(1, 30), st.sampled_from(ORDERS), st.integers(1, 3), st.integers(1, 3),
    st.booleans(), st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12)), max_size=6), st.integers(0, 20),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_skipped_steps_are_left_out_and_all_others_stay(rows, batch, order, world, workers, drop_last, skip, stopped):
    for rank in range(world):
        for worker in range(workers):
            place = {"rank": rank, "world": world, "worker": worker, "workers": workers, "drop_last": drop_last}
            plain, one = (
                Loader(rows_table(rows), batch_size=batch, order=order, **place, **more)
                for more in ({}, {"skip": skip})
            )
            each = ({**place, "worker": other} for other in range(workers))
            most = [len(Loader(rows_table(rows), batch_size=batch, order=order, **other)) for other in each]
            for epoch in range(3):
                gone = {turn for of, step in skip if of == epoch for turn in own_turn(most, step, worker)}
                wanted = [made for turn, made in enumerate(rows_of(plain)) if turn not in gone]
                assert len(one) == len(wanted)
                batches, seen = iter(one), []
                for made in batches:
                    seen.append(made["row"].tolist())
                    if len(seen) == stopped:
                        break
                else:
                    assert seen == wanted
                    continue
                other = Loader(rows_table(rows), batch_size=batch, order=order, **place)
                other.load_state_dict(json.loads(json.dumps(one.state_dict())))
                kept = pickle.loads(pickle.dumps(other)).state_dict()  # noqa: S301 - our own
                assert kept | AT == one.state_dict() | AT
                assert seen + rows_of(other) == wanted
                assert seen + rows_of(batches) == wanted


@given(
    st.integers(1, 150), st.integers(1, 20), st.sampled_from(ORDERS), st.integers(1, 3), st.integers(1, 3),
    st.booleans(), st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12)), max_size=2),
    st.lists(st.integers(0, 149), max_size=40), st.integers(0, 20),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_rows_are_left_out_on_all_ranks_in_step(rows, batch, order, world, workers, drop_last, steps, lost, stopped):
    skip = [*steps, *(row for row in lost if row < rows)]
    made = {
        (rank, worker): Loader(
            rows_table(rows), batch_size=batch, order=order, rank=rank, world=world, worker=worker, workers=workers,
            drop_last=drop_last, skip=skip,
        )
        for rank in range(world) for worker in range(workers)
    }  # fmt: skip
    plain = Loader(rows_table(rows), batch_size=batch, order=order, world=world, workers=workers, drop_last=drop_last)
    for epoch in range(2):
        wanted = left(plain, range(world), skip, epoch)
        for rank in range(world):
            found = []
            for worker in range(workers):
                one = made[rank, worker]
                count, batches = len(one), []
                run = iter(one)
                for batch_of in run:
                    batches.append(batch_of["row"].tolist())
                    if len(batches) == stopped:
                        state = json.loads(json.dumps(one.state_dict()))
                        one = Loader(
                            rows_table(rows), batch_size=batch, order=order, rank=rank, world=world, worker=worker,
                            workers=workers, drop_last=drop_last,
                        )  # fmt: skip
                        one.load_state_dict(state)
                        batches += rows_of(one)
                        batches_of_the_first = rows_of(run)
                        assert batches[stopped:] == batches_of_the_first
                        break
                assert count == len(batches)
                found += batches
            assert sorted(found) == sorted(at[rank] for at in wanted.values())


@pytest.mark.parametrize(
    "how", [{}, {"format": "torch"}, {"format": "arrow"}, {"features": ["f_k", "f_v"], "columns": ["row"]}]
)
def test_rows_of_any_kind_are_left_out(how):
    if how.get("format") == "torch":
        pytest.importorskip("torch")
    plain, one = (Loader(KINDS, batch_size=7, order=ORDERS[0], **how, **more) for more in ({}, {"skip": [4, 17, 18]}))
    for batches in zip(plain, one, strict=True):
        whole, some = (made.to_pydict() if how.get("format") == "arrow" else made for made in batches)
        kept = [at for at, row in enumerate(whole["row"]) if int(row) not in (4, 17, 18)]
        for name, values in whole.items():
            assert str([values[at] for at in kept]) == str(list(some[name]))


def test_a_loader_that_continues_adds_its_own():
    first = Loader(rows_table(100), batch_size=10, skip=[(0, 5), (1, 1)])
    batches = iter(first)
    seen = rows_of([next(batches), next(batches)])
    second = Loader(rows_table(100), batch_size=10, skip=[(0, 7)])
    second.load_state_dict(first.state_dict())
    assert second.state_dict()["skip"] == [[0, 5], [0, 7], [1, 1]]
    assert len(second) == 8
    plain = rows_of(Loader(rows_table(100), batch_size=10))
    assert seen + rows_of(second) == [made for step, made in enumerate(plain) if step not in (5, 7)]
    assert (second.epoch, len(second)) == (1, 9)


def test_all_steps_may_be_left_out():
    loader = Loader(rows_table(30), batch_size=10, skip=[(0, step) for step in range(3)])
    assert (len(loader), list(loader), loader.epoch) == (0, [], 1)
    assert len(list(loader)) == 3


def test_states_without_any_are_as_they_were():
    assert "skip" not in Loader(rows_table(30), batch_size=10).state_dict()


@pytest.mark.parametrize(
    "skip", [3, "34", [-3], [30], [True], [1.5], [(1,)], [(1, 2, 3)], [(-1, 0)], [(0, -1)], [(0, 0.5)], ["ab"]]
)
def test_bad_input(skip):
    with pytest.raises(BadArgument, match="skip"):
        Loader(rows_table(30), skip=skip)
    loader = Loader(rows_table(30), batch_size=10)
    with pytest.raises(StateMismatch, match="skip"):
        loader.load_state_dict({**loader.state_dict(), "skip": skip})
