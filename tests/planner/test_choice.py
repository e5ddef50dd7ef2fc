"""The choice is the fastest of those that mix well enough, within the memory; what cannot be is told."""

import contextlib
import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.cli.compare import show
from corgipile.comparison import Result
from corgipile.errors import BadArgument, BudgetTooSmall, MissingColumn
from corgipile.planner import Candidate, Cell, Probe, choice, choose
from corgipile.planner.candidates import Setting, candidates
from corgipile.planner.choice import MIN_SPEEDUP
from corgipile.planner.trial import add_predictions, run_trials
from corgipile.proof import Compared, comparison_page

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
    assert all(found.best.seconds <= MIN_SPEEDUP * one.seconds for one in mixed)
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
    if found.best.deff > 1:  # what is left is to write it anew
        assert "reshuffle" in found.advice
        assert found.best.deff == min(one.deff for one in (found.best, *found.others) if one.flaw is None)


def told(deff, seconds, block=8):
    return Candidate(cp.orders.Riffle(block=block), "riffle", block, deff=deff, seconds=seconds)


def test_of_those_about_as_fast_the_best_mixed():
    made = [told(1.05, 2.0), told(1.0, 1.0), told(0.5, 1.05), told(0.2, 1.5), told(2.0, 0.1)]
    found = choice._choose(made, None, 1.1)
    assert found.best is made[2]
    assert found.others == [made[1], made[3], made[0], made[4]]
    none = choice._choose([told(3.0, 1.0), told(2.0, 2.0)], None, 1.1)
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


def test_rewriting_a_table_pays_off():
    slow = replace(told(0.9, 10.0), title="slow")
    plain = replace(told(256.0, 2.0), order=cp.orders.NoShuffle(), cold=3.0)
    found = choice._choose([slow, plain], None, 1.1, 12.0)
    assert found.best is slow
    assert "in about 12 s" in found.advice
    assert "pays off after 2 epochs" in found.advice
    assert "never pays off" in choice._choose([replace(slow, seconds=2.0), plain], None, 1.1, 12.0).advice
    assert choice._choose([slow, plain], None, 1.1).advice is None  # nobody has tried to write it


def test_the_default_order_is_chosen_unless_another_is_much_faster():
    default, near, fast = told(0.9, 1.4), told(0.2, 1.0), told(1.0, 0.5)
    assert choice._choose([default, near], None, 1.1).best is default
    assert choice._choose([default, near, fast], None, 1.1).best is fast
    assert choice._choose([replace(default, deff=1.2), near], None, 1.1).best is near
    assert choice._choose([replace(default, seconds=None), replace(near, seconds=None)], None, 1.1).best is not near


@pytest.mark.parametrize("clustered", [False, True])
def test_the_plan_begins_with_the_order_that_the_default_takes(clustered):
    """Labels are mixed, features cluster: the default balances by content."""
    rows = np.arange(20_000)
    table = cp.open({"x": rows // 100 % 7 + 0.0 if clustered else rows * 7 % 101 + 0.0, "label": rows * 7919 % 2})
    found = choose(table, memory="32KB", batch_size=64, seconds=0, tolerance=1)
    default = cp.Loader(table, batch_size=64, memory="32KB").order
    assert found.best.title == default.title
    assert (default.balance == "content") is clustered


def test_all_three_tell_the_same_cost(capsys):
    """`plan` and `info --full` show the advice, `compare` its note and the headline of its page."""
    slow, plain = told(0.9, 3.0), replace(told(256.0, 2.0), order=cp.orders.NoShuffle())
    done = {"scores": (0.5, 0.9), "losses": (1.0, 0.5), "deff": 0.9}
    results = [
        Result("riffle", seconds=3.0, elapsed=(3.0, 6.0), **done),
        Result("shuffle_once", seconds=2.0, elapsed=(45.0, 47.0), setup_seconds=43.0, **done),
    ]
    show(results, "title", held_out=False)
    headline = comparison_page(results, Compared("a", 10, 10, "logistic", 2, "1MB")).verdict
    said = [choice._choose([slow, plain], None, 1.1, 43.0).advice, " ".join(capsys.readouterr().out.split()), headline]
    assert all("which pays off after 43 epochs" in one for one in said)
    assert "times as fast" not in headline


def test_the_slower_of_device_and_rows_counts(stored):
    probe = Probe("here", 0.0, (Cell(4096, 4, 1e6), Cell(4096, 4, 2e6, sequential=True)))
    setting = Setting(cp.open(stored), 1 << 20, 64, "label", 1, 0.02, 0)
    found = [
        replace(one, seconds=0.01)
        for one in run_trials(candidates([cp.orders.Riffle(), cp.orders.NoShuffle()], setting), setting)
    ]
    cold, warm = (add_predictions(found, probe, setting, cached=cached) for cached in (False, True))
    for one, other in zip(cold, warm, strict=True):
        assert one.cold == other.cold == one.seconds
        assert one.cold >= one.nbytes / 2e6 > one.warm == other.seconds
    assert cold[0].cold > 1.5 * cold[1].cold
    assert [one.cold for one in add_predictions(found, None, setting, cached=False)] == [None, None]


def test_many_rows_take_little_memory():
    """Labels of twelve million rows are followed by parts."""
    label = (np.arange(12_000_000) // 3_000_000).astype(np.uint8)
    with tracked() as peak:
        found = choose({"x": np.zeros(len(label), np.uint8), "label": label}, memory="1MB", seconds=0)
    assert found.labels == "label"
    assert found.best.deff <= 1.1
    assert peak() < 200 << 20


@contextlib.contextmanager
def tracked():
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_shapes_that_people_have(tmp_path):
    for columns in (
        {"x": [1.0]},
        {"x": [1.0, 2.0], "label": ["a", "b"]},
        {"text": ["one", None, "three"] * 50, "label": [0, 1, 1] * 50},
    ):
        found = choose(pa.table(columns), seconds=0.01)
        assert found.best.flaw is None
    named = choose(pa.table({"x": [1.0, 2.0, 3.0], "label": ["a", "b", "a"]}), label="label", seconds=0)
    assert named.best.order.balance == "label"
    with pytest.raises(BadArgument, match="must have rows"):
        choose(pa.table({"x": pa.array([], pa.float32())}))
