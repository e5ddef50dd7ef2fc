"""Comparison of orders on one table."""

import importlib
import math

import numpy as np
import pyarrow as pa
import pytest

from corgipile import tables
from corgipile.comparison import ORDERS, Result, compare, measure_order
from corgipile.datasets import clustered, higgs_like
from corgipile.errors import BadArgument, MissingColumn
from corgipile.orders import CorgiPile
from corgipile.quality import expected_deff_corgipile
from corgipile.tables.columns import column
from corgipile.testing import Counting


@pytest.fixture(scope="module")
def higgs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    higgs_like(folder / "train.arrow", 60_000, features=8, test=folder / "test.arrow", test_rows=10_000)
    return folder / "train.arrow", folder / "test.arrow"


@pytest.fixture(scope="module")
def results(higgs):
    told = []
    found = compare(higgs[0], test=higgs[1], epochs=3, memory="300KB", step="decay", callback=told.append)
    assert told == found
    return {result.order: result for result in found}


def test_every_order_has_a_result(results):
    assert tuple(results) == ORDERS
    for result in results.values():
        assert not result.failure
        assert result.metric == "accuracy"
        assert len(result.scores) == 3
        assert result.score == result.scores[-1]
        assert result.seconds > 0
        assert result.rows_per_second > 0
        assert result.bytes_read >= 60_000 * 36
        assert 0 < result.buffer_bytes <= 300 << 10


def test_the_picture_to_expect(results):
    full = results["shuffle_once"].score
    assert full > 0.68
    assert results["no_shuffle"].score < 0.6
    assert results["sliding_window"].score < 0.6
    assert results["balanced"].score > full - 0.015
    assert results["riffle"].loss < results["corgipile"].loss + 0.02
    assert results["no_shuffle"].deff == pytest.approx(256, rel=0.05)
    assert results["shuffle_once"].deff == pytest.approx(1, abs=0.25)
    assert results["full"].deff == pytest.approx(1, abs=0.25)
    assert results["balanced"].deff < results["riffle"].deff < min(1.5, results["corgipile"].deff)
    assert results["corgipile"].deff < 60


def test_only_shuffle_once_has_a_price_before_the_first_epoch(results):
    assert [name for name, result in results.items() if result.setup_seconds] == ["shuffle_once"]


def test_the_temporary_file_goes(higgs, tmp_path):
    compare(higgs[0], epochs=1, order=["shuffle_once"], folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_order_that_does_not_fit_says_so_and_others_run():
    small, none = compare(clustered(5000, classes=2), epochs=1, memory="8KB", block=200, order=["corgipile", "full"])
    assert "corgipile" in small.failure
    assert math.isnan(small.score)
    assert none.failure == ""
    (wild,) = compare(clustered(500, classes=2), epochs=9, model="linear", learning_rate=9.0, order=["full"])
    assert "diverged" in wild.failure


def test_regression_is_scored_by_r2_and_settings_arrive():
    table = tables.open(clustered(4000, classes=2, features=3))
    rows = []
    found = compare(table, model="linear", epochs=2, memory="1MB", order=["balanced"], on_rows=rows.append)
    assert found[0].metric == "r2"
    assert found[0].score > 0.1
    assert sum(rows) == 8000


def test_orders_may_be_objects(higgs):
    order = CorgiPile(block=100, buffer=3000)
    (result,) = compare(higgs[0], epochs=1, order=[order], memory=None)
    assert (result.order, result.buffer_bytes) == ("corgipile", 2 * 3000 * 36)


def test_measured_deff_agrees_with_the_formula(higgs):
    table, order = tables.open(higgs[0]), CorgiPile(block=100, buffer=3000)
    labels = column(table, "label")
    deffs = [measure_order(table, order, labels, memory=None, epoch=epoch).deff for epoch in range(30)]
    assert np.mean(deffs) == pytest.approx(expected_deff_corgipile(256, 30, 100, 600, 100), rel=0.1)


def test_measuring_reads_no_rows():
    table = tables.open(clustered(3000, classes=3))
    labels = np.arange(3000) // 1000
    report = measure_order(table, "full", labels, memory="16KB")
    assert report.coverage.exact
    assert report.deff < 2


def test_bad_requests():
    table = clustered(100, classes=2)
    with pytest.raises(BadArgument, match="no order is named 'sorted'"):
        compare(table, order=["sorted"])
    with pytest.raises(MissingColumn):
        compare(table, label="target")
    with pytest.raises(BadArgument, match="epochs"):
        compare(table, epochs=0, order=["full"])


def test_all_orders_are_checked_before_the_first_is_run():
    told = []
    with pytest.raises(BadArgument, match="did you mean riffle"):
        compare(clustered(100, classes=2), order=["full", "rifle"], callback=told.append)
    assert told == []
    for seeds in (0, 1.5, "2"):
        with pytest.raises(BadArgument, match="seeds"):
            compare(clustered(100, classes=2), seeds=seeds)
    with pytest.raises(BadArgument, match="at least one order to compare"):
        compare(clustered(100, classes=2), order=[])


def test_a_rate_counts_rows_of_the_table_though_a_reservoir_visits_some_twice():
    (found,) = compare(clustered(2000, classes=2), epochs=1, order=["reservoir"], memory="64KB")
    assert found.rows_per_second * found.seconds == pytest.approx(2000)


def test_the_table_is_surveyed_once_for_all_orders_and_seeds(monkeypatch):
    surveyed = []

    def counting(real):
        return lambda *given, **also: surveyed.append(real.__name__) or real(*given, **also)

    for module, name in (("passes", "moments"), ("problem", "find_inputs"), ("evaluation", "find_inputs")):
        place = importlib.import_module(f"corgipile.linear.{module}")
        monkeypatch.setattr(place, name, counting(getattr(place, name)))
    x = np.arange(3000.0)
    rows = pa.table({"a": x % 7, "b": x * 1e6, "label": (x > 1500).astype(np.int8)})
    held_out = tables.open(rows.slice(0, 5))
    found = compare(rows, test=held_out, epochs=1, order=["no_shuffle", "full", "shuffle_once"], seeds=2)
    assert [result.failure for result in found] == [""] * 3
    assert surveyed.count("moments") == 1
    assert surveyed.count("find_inputs") == 1 + 3 * 2  # the table's, and those of the held-out rows each time


def test_one_that_fails_does_not_take_the_others_with_it(tmp_path):
    table = clustered(500, classes=2)
    nowhere = tmp_path / "no"
    found = compare(table, epochs=1, order=["full", "shuffle_once", "riffle"], folder=nowhere)
    assert [bool(result.failure) for result in found] == [False, True, False]
    assert "cannot write" in found[1].failure


def test_seeds_give_a_mean_and_a_spread():
    table = clustered(3000, classes=2, features=3)
    found = compare(table, epochs=2, order=["riffle", "shuffle_once"], memory="256KB", seeds=3, seed=5)
    for result in found:
        alone = [
            compare(table, epochs=2, order=[result.order], memory="256KB", seed=seed)[0].score for seed in (5, 6, 7)
        ]
        assert result.seeds == 3
        assert result.score == pytest.approx(np.mean(alone))
        assert result.spread == pytest.approx(np.std(alone, ddof=1))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("learning_rate", -1), ("learning_rate", "fast"), ("decay", 2), ("l2", -1), ("batch_size", 0), ("epochs", 0),
        ("epochs", "2"), ("seed", "a"), ("seeds", None), ("batch", "a"), ("batch", 0), ("model", "tree"),
        ("callback", 3), ("on_rows", 3),
    ],
)  # fmt: skip
def test_what_no_order_could_be_trained_with_is_an_error(setting, value):
    told = []
    with pytest.raises(BadArgument, match=setting):
        compare(clustered(100, classes=2), **{"order": ["full"], "epochs": 1, "callback": told.append, setting: value})
    assert not told


def test_the_warning_of_any_seed_is_told(monkeypatch):
    """The first seed's training goes well, the others' drifts away."""
    told = iter(["", "drifts", "drifts"])
    module = importlib.import_module("corgipile.comparison")  # of which the package's own name is the function
    monkeypatch.setattr(module, "_run", lambda *_: Result("full", scores=(0.5,), warning=next(told)))
    (found,) = compare(clustered(100, classes=2), order=["full"], seeds=3)
    assert found.warning == "drifts"


def test_labels_are_read_once_before_the_first_epoch():
    class Watched(Counting):
        def read(self, start, stop, columns=None):
            asked.append((stop - start, columns))
            return super().read(start, stop, columns)

    asked = []
    rows = pa.table({"x": [float(i % 7) for i in range(1000)], "label": [i % 2 for i in range(1000)]})
    compare(Watched(tables.open(rows)), epochs=1, order=["no_shuffle", "corgipile", "balanced"], seeds=2)
    assert sum(count for count, columns in asked if columns == ["label"]) == 1000
