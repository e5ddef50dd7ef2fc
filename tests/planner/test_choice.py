"""The choice is the fastest of those that mix well enough, within the memory; what cannot be is told."""

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import BadArgument, BudgetTooSmall, MissingColumn
from corgipile.planner import choice, choose
from corgipile.planner.choice import NEAR
from corgipile.planner.trial import Candidate

ROWS = 30_000


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "rows.arrow"
    x = np.random.default_rng(0).random((ROWS, 8), np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 8)
    table = pa.table({"features": lists, "label": np.arange(ROWS) * 5 // ROWS})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)
    return path


def test_the_choice_is_one_of_the_best_and_works(stored):
    found = choose(stored, memory="200KB", batch_size=64, seconds=0.02)
    assert found.labels == "label"
    assert found.best.deff <= 1.1
    assert found.best.memory <= 200 << 10
    mixed = [one for one in found.others if one.flaw is None and one.deff <= 1.1]
    assert all(found.best.seconds <= NEAR * one.seconds for one in mixed)
    seen = [batch["label"] for batch in cp.Loader(stored, batch_size=64, memory="200KB", order=found.best.order)]
    assert abs(cp.quality.deff(np.concatenate(seen), 64) - found.best.deff) < 1e-9


def test_nothing_is_tried_where_it_is_not_to_be(stored, monkeypatch):
    monkeypatch.setattr(choice, "cheap", lambda *_: False)
    found = choose(stored, memory="200KB", seconds=0)
    assert found.labels is None
    assert all(one.seconds is None for one in (found.best, *found.others))
    assert "none was tried" in found.reason or "no order" in found.reason


def test_memory_that_mixes_too_little(stored):
    found = choose(stored, memory="20KB", batch_size=3000, seconds=0.01, tolerance=0)
    if found.advice is not None:  # what is left is to write it anew
        assert "reshuffle" in found.advice
        assert found.best.deff == min(one.deff for one in (found.best, *found.others) if one.flaw is None)


def told(deff, seconds, block=8):
    return Candidate(cp.orders.Riffle(block=block), "riffle", block, deff=deff, seconds=seconds)


def test_of_those_about_as_fast_the_best_mixed():
    made = [told(1.0, 1.0), told(0.5, 1.05), told(0.2, 1.5), told(2.0, 0.1)]
    found = choice._chosen(made, None, 1.1)
    assert found.best is made[1]
    assert found.others == [made[0], made[2], made[3]]
    none = choice._chosen([told(3.0, 1.0), told(2.0, 2.0)], None, 1.1)
    assert (none.best.deff, none.advice is not None) == (2.0, True)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"memory": 10}, BudgetTooSmall, "memory="),
        ({"batch_size": 0}, BadArgument, "batch_size"),
        ({"tolerance": -1}, BadArgument, "tolerance"),
        ({"seconds": float("nan")}, BadArgument, "seconds"),
        ({"ranks": 0}, BadArgument, "ranks"),
        ({"label": "lable"}, MissingColumn, "lable"),
        ({"memory": "lots"}, BadArgument, "lots"),
    ],
)
def test_what_cannot_be(stored, options, error, said):
    with pytest.raises(error, match=said):
        choose(stored, **{"seconds": 0, **options})


def test_shapes_that_people_have(tmp_path):
    for columns in (
        {"x": [1.0]},
        {"x": [1.0, 2.0], "label": ["a", "b"]},
        {"text": ["one", None, "three"] * 50, "label": [0, 1, 1] * 50},
    ):
        found = choose(pa.table(columns), seconds=0.01)
        assert found.best.flaw is None
    named = choose(pa.table({"x": [1.0, 2.0, 3.0], "label": ["a", "b", "a"]}), label="label", seconds=0)
    assert "'label' is string, and numbers are needed" in named.reason
    with pytest.raises(BadArgument, match="no rows"):
        choose(pa.table({"x": pa.array([], pa.float32())}))
