"""Gathering ahead yields the same batches for every order, column type and stopping point."""

import gc
import weakref

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile import _kernel
from corgipile.orders import CorgiPile, FullShuffle, NoShuffle, Riffle, SlidingWindow

ORDERS = [
    NoShuffle(block=37),
    CorgiPile(block=20, buffer=110),
    Riffle(block=20, buffer=110),
    Riffle(block=20, buffer=300, balance="label"),
    SlidingWindow(block=20, buffer=110),
    FullShuffle(buffer=110),
]


def copied(batch):
    return {name: [np.array(row).tolist() for row in value] for name, value in batch.items()}


def ahead(table, **how):
    loader = cp.Loader(table, **how)
    loader.gather_ahead(np.empty)
    return loader


@pytest.mark.parametrize("prefetch", [0, 1])
@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.name)
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(size=st.integers(1, 400), seed=st.integers(0, 3))
def test_batches_are_those_gathered_when_asked_for(table, order, prefetch, size, seed):
    how = {"batch_size": size, "order": order, "seed": seed, "prefetch": prefetch}
    expected, loader = cp.Loader(table, **how), ahead(table, **how)
    for _ in range(2):
        assert [copied(batch) for batch in loader] == [copied(batch) for batch in expected]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.name)
@pytest.mark.parametrize("form", ["numpy", "arrow"])
def test_text_and_lists_come_with_their_rows(mixed, order, form):
    how = {"batch_size": 30, "order": order, "seed": 1, "format": form}
    plain, found = cp.Loader(mixed, **how), ahead(mixed, **how)
    if form == "arrow":
        assert [batch.to_pydict() for batch in found] == [batch.to_pydict() for batch in plain]
    else:
        assert [copied(batch) for batch in found] == [copied(batch) for batch in plain]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(stop=st.integers(0, 60), size=st.integers(1, 60), order=st.sampled_from(ORDERS))
def test_a_state_is_where_the_batches_were_had(table, stop, size, order):
    how = {"batch_size": size, "order": order, "seed": 5}
    whole, first, later = ahead(table, **how), ahead(table, **how), ahead(table, **how)
    expected, batches = [copied(batch) for batch in whole], iter(first)
    came = [copied(batch) for _, batch in zip(range(stop), batches, strict=False)]
    state = first.state_dict()
    batches.close()
    later.load_state_dict(state)
    if stop < len(expected):
        came += [copied(batch) for batch in later]
    assert came == expected


def test_batches_that_are_held_stay_as_they_are(table):
    loader = ahead(table, batch_size=16, order=Riffle(block=20, buffer=110))
    held = [(batch, copied(batch)) for batch in loader]
    assert all(copied(batch) == was for batch, was in held)


def test_arrays_are_made_as_is_said_and_used_again(table):
    made = []

    def make(shape, dtype):
        array = np.full(shape, 7, dtype)
        made.append(weakref.ref(array))  # arrays in use must not be reused
        return array

    loader = cp.Loader(table, batch_size=10, order=Riffle(block=20, buffer=110))
    loader.gather_ahead(make)
    for _ in range(3):
        for batch in loader:
            assert any(np.shares_memory(batch["features"], array()) for array in made if array() is not None)
    assert len(made) <= 3 * 8
    loader.gather_ahead(None)
    count = len(made)
    assert len(list(loader)) == 100
    assert len(made) == count


@pytest.mark.parametrize(("memory", "fits"), [("64MB", True), ("1MB", False)])
def test_groups_that_are_large_for_the_budget_are_not_gathered_ahead(table, memory, fits):
    loader = ahead(table, memory=memory, batch_size=8)  # groups of 8,192 rows of 32 bytes
    assert (loader._source._async_gather is not None) == fits
    assert sum(len(batch["row"]) for batch in loader) == len(table)


def test_an_iteration_let_go_of_leaves_nothing_asked_for(table):
    loader = ahead(table, batch_size=16, order=Riffle(block=20, buffer=110))
    next(iter(loader))
    gc.collect()
    assert loader._source._async_gather.idle


def test_what_python_asks_is_checked():
    gatherer, rows, out = _kernel.async_gather_new(), np.arange(10, dtype="f4"), np.zeros(3, "f4")
    assert _kernel.async_gather_request(gatherer, out, rows, 4, np.array([9, 0, 3], "i4")) == 1
    assert _kernel.async_gather_wait(gatherer, 1) == 1
    assert out.tolist() == [9, 0, 3]
    for index, row_bytes in (([10], 4), ([-1], 4), ([0, 1, 2, 3], 4), ([0], 0), ([0], -4), ([0, 0], 1 << 62)):
        with pytest.raises(ValueError, match="index must lie within"):
            _kernel.async_gather_request(gatherer, out, rows, row_bytes, np.array(index, "i4"))
    with pytest.raises(TypeError, match="index has elements of 8 bytes"):
        _kernel.async_gather_request(gatherer, out, rows, 4, np.array([0]))
    with pytest.raises((BufferError, ValueError)):
        _kernel.async_gather_request(gatherer, b"x" * 12, rows, 4, np.array([0], "i4"))
    with pytest.raises(ValueError, match="copy 2 was not requested"):
        _kernel.async_gather_wait(gatherer, 2)
    with pytest.raises(ValueError, match="invalid PyCapsule"):
        _kernel.async_gather_wait(object(), 0)
