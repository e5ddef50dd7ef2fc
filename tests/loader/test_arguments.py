"""What a first user gets wrong is a clear error, and what they may expect to work does."""

import pathlib

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import BadArgument, BudgetTooSmall

TEXT = pa.table({"id": np.arange(200), "text": [f"{i}" * 400 for i in range(200)]})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"order": cp.orders.Riffle}, "order must be a name or an order such as Riffle"),
        ({"order": None}, "order must be a name"),
        ({"columns": "id"}, "columns must be a list of names"),
        ({"columns": []}, "columns must be a list of names"),
        ({"seed": None}, "seed must be a whole number, got None"),
        ({"batch_size": 2.5}, "batch_size must be a whole number"),
        ({"prefetch": 100}, "prefetch must be 0 to 64 steps, got 100"),
    ],
)
def test_wrong_arguments_are_named(settings, message):
    with pytest.raises(BadArgument, match=message):
        cp.Loader(TEXT, **{"batch_size": 4, **settings})


def test_a_closed_loader_says_so():
    loader = cp.Loader(TEXT, 4)
    loader.close()
    with pytest.raises(BadArgument, match="this loader was closed"):
        next(iter(loader))


def test_paths_and_huge_batches_are_fine(tmp_path):
    path = tmp_path / "t.arrow"
    with pa.ipc.new_file(str(path), TEXT.schema) as writer:
        writer.write_table(TEXT)
    for source in (str(path), pathlib.Path(path), TEXT):
        assert [len(batch["id"]) for batch in cp.Loader(source, 10**12)] == [200]


def test_prefetch_may_change_between_runs():
    loader = cp.Loader(TEXT, 16, cp.orders.Riffle(block=10, buffer=40, group=1), seed=1, columns=["id"])
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = np.concatenate([batch["id"] for batch in batches])
    again = cp.Loader(TEXT, 16, cp.orders.Riffle(block=10, buffer=40, group=1), seed=1, columns=["id"], prefetch=3)
    again.load_state_dict(state)
    assert np.array_equal(np.concatenate([batch["id"] for batch in again]), rest)


@pytest.mark.parametrize("order", ["sliding_window", "reservoir", "riffle", "corgipile", "no_shuffle", "full"])
def test_the_memory_an_error_asks_for_is_enough(order):
    with pytest.raises(BudgetTooSmall) as raised:
        cp.Loader(TEXT, 4, order, memory="500B")
    wanted = str(raised.value).split("memory='")[1].split("'")[0]
    assert sum(len(batch["id"]) for batch in cp.Loader(TEXT, 4, order, memory=wanted)) >= 200


def test_lists_of_strings_reach_torch():
    pytest.importorskip("torch")
    table = pa.table({"words": [["a", "b"], ["c"]]})
    assert sorted(map(tuple, next(iter(cp.Loader(table, 2, format="torch")))["words"])) == [("a", "b"), ("c",)]
