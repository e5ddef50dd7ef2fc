"""The audit of any loader: figures against those of whole epochs, planted faults by name, no false alarm."""

import pickle
import re
import tracemalloc
from dataclasses import replace
from importlib import import_module
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import HONEST, LABELS, ROWS, Epochs, alone, shuffled, two

import corgipile as cp
from corgipile.errors import BadArgument
from corgipile.quality import Audit, audit, deff, prefix_discrepancy
from corgipile.quality.codes import Classes
from corgipile.quality.correlation import shared_again
from corgipile.quality.faults import worker_faults
from corgipile.quality.visits import Sample, VisitWatch, hash_of_all, mixed
from corgipile.verdicts import FAULTS


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(name):
    loaders, other = alone(name)
    report = audit(*loaders, id="id", key="label", rows=ROWS, other_seed=other)
    assert name in [fault.name for fault in report.faults], str(report)
    assert f"{name} (epoch" in str(report)


@pytest.mark.parametrize(("piles", "fault"), [(5, ["same batches"]), (300, [])])
def test_blocks_in_one_cycle_are_named(piles, fault):
    """Each epoch begins elsewhere in a cycle of blocks, and mixes some: places do not correlate, neighbours recur."""
    cycle = np.random.default_rng(0).permutation(ROWS // 20)

    def epoch(seed):
        rows = (np.roll(cycle, 63 * seed)[:, None] * 20 + np.arange(20)).reshape(-1, 20 * piles)
        return np.random.default_rng([3, seed]).permuted(rows, axis=1).ravel()

    for run, other in ((two(epoch), None), (Epochs(epoch(0)), Epochs(epoch(1)))):
        found = audit(run, id="id", rows=ROWS, epochs=1 if other else 2, other_seed=other)
        assert [fault.name for fault in found.faults] == fault


def test_a_loader_that_is_not_shuffled_has_no_other_fault_but_that_its_epochs_are_alike():
    report = audit(Epochs(np.arange(ROWS)), id="id", rows=ROWS)
    assert [fault.name for fault in report.faults] == ["not shuffled", "identical epochs"]


def test_keys_may_be_numbers_that_numpy_lacks():
    torch = pytest.importorskip("torch")
    batches = [{"x": torch.full((8,), float(at % 2), dtype=torch.bfloat16)} for at in range(40)]
    assert audit(batches, key="x", epochs=1).epochs[0].spreads[0].deff[0] == pytest.approx(8)


def test_functions_of_one_name_are_keys_of_their_own():
    def label(batch):
        return [value % 2 for value in batch["label"]]

    keys = ["label", label, lambda batch: batch["id"] % 3, lambda batch: batch["id"] % 5]
    spreads = audit(Epochs(shuffled(0)), key=keys, epochs=1).epochs[0].spreads
    assert [one.key for one in spreads] == ["label", "label (2)", "<lambda>", "<lambda> (2)"]
    assert len({one.deff for one in spreads}) == 4


def test_what_is_called_before_epochs_is_a_function():
    with pytest.raises(BadArgument, match="on_epoch must be a function of the epoch, got 5"):
        audit([{"id": [0]}], id="id", on_epoch=5)


@pytest.mark.parametrize(("name", "way"), [("unshuffled head", 1), ("unshuffled tail", -1)])
def test_a_sorted_end_is_named_though_no_row_follows_its_neighbour(name, way):
    """The rows that a cache or a sampler hands out first may be a random sample of the table, in its order."""

    def order(seed):
        mixed, few = shuffled(seed), ROWS // 7
        return np.concatenate([np.sort(mixed[:few]), mixed[few:]])[::way]

    report = audit(Epochs(order(0), order(1)), id="id", key="label", rows=ROWS)
    assert [fault.name for fault in report.faults] == [name], str(report)


def test_rows_that_are_numbered_from_one_are_no_dropped_tail():
    report = audit(Epochs(shuffled(0) + 1, shuffled(1) + 1), id="id", rows=ROWS)
    assert [fault.name for fault in report.faults] == ["foreign rows", "missing rows"]


def test_one_pair_of_odd_batches_far_apart_is_no_worker():
    """Of 108 batches 66 pairs are 42 apart: two of a few rows, as a short last one is, correlate much by chance."""

    def faults(apart):
        lags = np.full(54, -0.1)
        lags[apart - 1] = 0.69
        spread = audit(Epochs(shuffled(0), shuffled(1)), key="label").epochs[0].spreads[0]
        return [fault.name for fault in worker_faults([replace(spread, lags=tuple(lags.tolist()))], 108, 0)]

    assert faults(42) == []
    assert faults(4) == ["worker-local buffers"]


def test_ranks_are_merged():
    halves = [Epochs(*(shuffled(seed)[rank::2] for seed in range(2))) for rank in range(2)]
    report = audit(*halves, id="id", key="label", rows=ROWS)
    assert not report.faults, str(report)
    assert report.epochs[0].ranks == (ROWS // 2, ROWS // 2)
    uneven = [Epochs(shuffled(0)[:4000], shuffled(1)[:4000]), Epochs(shuffled(0)[4000:], shuffled(1)[4000:])]
    assert [fault.name for fault in audit(*uneven, id="id", rows=ROWS).faults] == ["rank imbalance"]
    same = [Epochs(shuffled(0), shuffled(1)), Epochs(shuffled(0), shuffled(1))]
    assert "worker copies" in [fault.name for fault in audit(*same, id="id", rows=ROWS).faults]


def test_only_ranks_of_one_run_are_merged():
    def watched(rows=ROWS, **fields):
        made = Audit(rows=rows, **(fields or {"id": "id", "key": "label"}))
        for _ in made.watch(Epochs(shuffled(0))):
            pass
        return made

    one = watched()
    for other, said in (
        (watched(ROWS + 1), f"got {ROWS:,} and {ROWS + 1:,} rows"),
        (watched(None), "and unknown"),
        (watched(key="label"), "got 'id', 'label' and 'label'"),
        (watched(id="id"), "got 'id', 'label' and 'id'"),
        ([1], "got list"),
    ):
        with pytest.raises(BadArgument, match=said):
            one.merge(other)
    one.merge(pickle.loads(pickle.dumps(watched())))  # noqa: S301
    assert one.report().epochs[0].ranks == (ROWS, ROWS)


@pytest.mark.parametrize("steps", [7, 500, 2000])
def test_batches_of_all_ranks_in_a_step_are_one(steps):
    rng = np.random.default_rng(steps)
    labels = rng.permutation(np.arange(3 * steps * 20) * 10 // (3 * steps * 20)).reshape(3, steps, 20)
    labels[0] = np.sort(labels[0], axis=None).reshape(steps, 20)
    ranks = [[{"label": batch} for batch in rank] for rank in labels]
    whole = deff(labels.transpose(1, 0, 2).ravel(), 60)
    spread = audit(*ranks, key="label", epochs=1).epochs[0].spreads[0]
    assert spread.together is not None
    if steps <= 512:
        assert spread.together[0] == pytest.approx(whole)
    assert abs(spread.together[0] - whole) <= 2 * spread.together[1] + 1e-9
    assert "batches of all ranks as one: deff" in str(audit(*ranks, key="label", epochs=1))
    assert audit(ranks[0], key="label", epochs=1).epochs[0].spreads[0].together is None
    numbers = [[{"x": batch["label"] + 0.5} for batch in rank] for rank in ranks[:2]]
    assert audit(*numbers, key="x", epochs=1).epochs[0].spreads[0].together is not None


def test_times_are_keys():
    times = np.arange(4000).astype("M8[s]")
    report = audit([(times[at : at + 40],) for at in range(0, 4000, 40)], key=0, epochs=1)
    assert report.epochs[0].spreads[0].deff[0] > 20


def test_ranks_that_see_classes_in_other_orders_are_merged():
    ones, zeros, mixed = ([(labels,)] * 40 for labels in (["b"] * 10, ["a"] * 10, ["a", "b"] * 5))
    spread = audit(ones, zeros, key=0, epochs=1).epochs[0].spreads[0]
    assert (spread.kinds, spread.deff[0]) == (2, pytest.approx(10.0))
    assert audit(mixed, zeros + ones, key=0, epochs=1).epochs[0].spreads[0].gap.kind in ("a", "b")
    later = [Given([([1, 1],)], [([1, 2],)]), Given([([1, 3],)], [([1, 3],)])]
    assert [epoch.spreads[0].kinds for epoch in audit(*later, key=0).epochs] == [3, 3]
    halves = [[([2, 7, 7, 2],)], [([7, 2, 9, 9],)]]
    merged, alone = (Audit(key=0) for _ in range(2))
    for batch in (halves[0][0], halves[1][0]):
        alone.add(batch)
    merged.add(halves[0][0])
    other = merged.like()
    other.add(halves[1][0])
    for each in (merged, other, alone):
        each.end_epoch()
    merged.merge(other)
    assert merged.report().epochs[0].spreads[0].deff[0] == pytest.approx(alone.report().epochs[0].spreads[0].deff[0])


def test_seeds_are_compared():
    one, other = Epochs(shuffled(0), shuffled(1)), Epochs(shuffled(1), shuffled(2))
    report = audit(one, id="id", rows=ROWS, other_seed=other)
    assert [fault.name for fault in report.faults] == ["correlated seeds"]
    assert not audit(one, id="id", rows=ROWS, other_seed=two(lambda seed: shuffled(seed + 20))).faults


@pytest.mark.parametrize("name", HONEST)
def test_honest_runs_give_no_alarm(name):
    alarms = [
        fault
        for run in range(20)
        for fault in audit(
            two(lambda seed, run=run: HONEST[name](100 * run + seed)), id="id", key="label", rows=ROWS
        ).faults
    ]
    assert not alarms


@pytest.mark.parametrize("order", ["auto", "riffle", "corgipile", "full"])
def test_our_own_loaders_have_no_fault(order):
    table = pa.table({"id": np.arange(ROWS), "x": np.random.default_rng(0).standard_normal(ROWS), "label": LABELS})
    report = audit(cp.Loader(table, batch_size=64, order=order, memory="256KB"), id="id", key="label", rows=ROWS)
    assert not report.faults, str(report)
    assert report.verdict.startswith("No fault found: each of 6,000 rows once an epoch; mixed like")


@given(st.integers(1, 400), st.integers(1, 90), st.integers(1, 12), st.integers(0, 100), st.booleans())
@settings(max_examples=60, deadline=None)
def test_figures_are_those_of_the_whole_epoch(rows, batch, kinds, seed, numbers):
    rng = np.random.default_rng(seed)
    full = max(1, rows // batch) * min(batch, rows)
    values = rng.standard_normal(full) if numbers else rng.integers(0, kinds, full)
    watched = Audit(key=0, batch_size=min(batch, rows))
    at = 0
    while at < full:
        step = int(rng.integers(1, 70))
        watched.add((values[at : at + step],))
        at += step
    watched.end_epoch()
    spread = watched.report().epochs[0].spreads[0]
    assert spread.deff[0] == pytest.approx(deff(values, min(batch, rows)), abs=1e-9)
    if full // batch <= 1024:
        assert spread.prefix <= prefix_discrepancy(values) + 1e-9


def test_lags_and_gaps_are_those_of_their_definitions():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 40_000)
    labels[[5, 31_000]] = 7
    means = np.eye(8)[labels].reshape(-1, 10, 8).mean(axis=1)
    means -= means.mean(axis=0)
    watched = Audit(key=0, batch_size=10)
    for part in np.split(labels, 400):
        watched.add((part,))
    watched.end_epoch()
    spread = watched.report().epochs[0].spreads[0]
    for lag in (1, 2, 64):
        exact = (means[lag:] * means[:-lag]).sum() / (means**2).sum() * len(means) / (len(means) - lag)
        assert spread.lags[lag - 1] == pytest.approx(exact, rel=1e-6)
    assert len(spread.lags) == 64
    assert audit([(labels,)], key=0, epochs=1).epochs[0].spreads[0].gap is not None
    rare = audit([(np.array([1, 0, 0, 0, 0, 1, 0, 0]),)], key=0, epochs=1).epochs[0].spreads[0].gap
    assert (rare.kind, rare.rows, rare.gap) in [(1, 2, 4), (0, 6, 1)]


def test_chance_of_neighbours_counts_neighbours():
    rows = np.arange(4000)
    pairs = Sample(rows, rows, rows, rows // 2)
    assert shared_again(pairs, pairs) == (2000, 1.0, pytest.approx(2000 / 3999))


def test_the_longest_gap_of_a_merged_rank_is_found():
    one, other = Audit(key=0), Audit(key=0)
    one.add((np.array(["a", "b"] * 500),))
    other.add((np.array(["b"] * 10 + ["a", "b"] * 490 + ["b"] * 10 + ["c"]),))
    other.add((np.array(["b"] * 999 + ["a"]),))  # none of class a for 1010 visits
    one.add((np.array(["b", "a"] * 500),))
    for watched in (one, other):
        watched.end_epoch()
    one.merge(other)
    gap = one.report().epochs[0].spreads[0].gap
    assert (gap.kind, gap.rows, gap.gap) == ("a", 491, 1011)


def test_batches_of_any_form():
    ids, labels = np.arange(8), np.array(list("abababab"))
    forms = {
        "dictionaries": ({"id": ids, "label": labels}, "id", "label"),
        "tuples": ((ids, labels), 0, 1),
        "Arrow": (pa.record_batch({"id": ids, "label": labels}), "id", "label"),
        "data frames": (pd.DataFrame({"id": ids, "label": labels}), "id", "label"),
        "rows": ([{"id": int(i), "label": str(k)} for i, k in zip(ids, labels, strict=True)], "id", "label"),
        "functions": ((ids, labels), lambda batch: batch[0], lambda batch: batch[1]),
        "names": ({"id": [f"row {i}" for i in ids], "label": labels}, "id", "label"),
    }
    for form, (batch, row, key) in forms.items():
        epoch = audit([batch], id=row, key=key, rows=8, epochs=1).epochs[0]
        assert (epoch.visits, epoch.distinct) == (8, 8), form
        assert epoch.spreads[0].kinds == 2, form


def test_rows_known_by_name_are_found_missing():
    names = np.array([f"shard-{i}.jpg" for i in range(900)])
    first, second = (names[np.random.default_rng(seed).permutation(900)] for seed in range(2))
    report = audit(Named(first, second[:-100]), id=0, batch_size=30)
    assert report.rows == 900
    assert [fault.name for fault in report.faults] == ["dropped tail"] or "missing rows" in report.verdict


class Named:
    """Batches of names."""

    def __init__(self, *epochs):
        self.epochs, self.ran = epochs, 0

    def __iter__(self):
        self.ran += 1
        names = self.epochs[(self.ran - 1) % len(self.epochs)]
        for start in range(0, len(names), 30):
            yield (names[start : start + 30].tolist(),)


class Given:
    """Epochs of batches that are given."""

    def __init__(self, *epochs):
        self.epochs, self.ran = epochs, 0

    def __iter__(self):
        self.ran += 1
        yield from self.epochs[self.ran - 1]


def test_epochs_without_row_numbers_are_told_apart():
    alike = audit(Epochs(shuffled(0), shuffled(0)), key="label")
    assert [fault.name for fault in alike.faults] == ["identical epochs"]
    assert not audit(two(shuffled), key="label").faults


def test_a_live_audit_goes_to_another_process():
    watched = Audit(id=lambda batch: batch["id"], key="label", rows=ROWS)
    delivered = sum(len(batch["id"]) for batch in watched.watch(two(shuffled)))
    arrived = pickle.loads(pickle.dumps(watched))  # noqa: S301 - our own
    assert delivered == ROWS
    assert arrived.report() == watched.report()
    assert arrived.report().as_dict()["epochs"][0]["visits"] == ROWS


def test_reusable_buffers_stay_in_their_process():
    classes, rows = Classes(), 100_000
    for _ in range(2):
        classes.codes(np.zeros(rows, np.int64))
    visits = VisitWatch(rows)
    visits.add(np.arange(rows), np.array([rows]))
    assert len(pickle.dumps(classes)) < rows
    assert len(pickle.dumps(visits)) < 8 * rows


class Pair(NamedTuple):
    row: object
    label: object


def test_named_tuples_are_batches_and_rows():
    order = np.random.default_rng(5).permutation(ROWS)
    labels = order % 3
    want = audit(
        [{"row": order[at : at + 50], "label": labels[at : at + 50]} for at in range(0, ROWS, 50)],
        id="row",
        key="label",
    )
    pairs = [Pair(order[at : at + 50], labels[at : at + 50]) for at in range(0, ROWS, 50)]
    lists = [[Pair(*one) for one in zip(*pair, strict=True)] for pair in pairs]
    singles = [Pair(*one) for one in zip(order.tolist(), labels.tolist(), strict=True)]
    for loader in (pairs, lists):
        assert audit(loader, id="row", key="label").as_dict() == want.as_dict()
        assert audit(loader, id=0, key=1).epochs[0].visits == ROWS
    assert audit(singles, id="row", key="label", batch_size=50).as_dict() == want.as_dict()
    with pytest.raises(BadArgument, match="id='other' must be in each batch, got a Pair of 2"):
        audit(pairs, id="other")


def test_labels_that_alternate_in_storage_are_no_workers():
    rows = [{"row": row, "label": row % 2} for row in range(ROWS)]
    assert [fault.name for fault in audit(rows, id="row", key="label", epochs=1).faults] == ["not shuffled"]


TABLES = {"pyarrow": "table.to_batches(64)", "pandas": "(frame[at : at + 64]", "polars": "frame.iter_slices(64)"}


@pytest.mark.parametrize("library", TABLES)
def test_tables_are_no_batches(library):
    module = pytest.importorskip(library)
    table = module.table({"i": [1]}) if library == "pyarrow" else module.DataFrame({"i": [1]})
    with pytest.raises(BadArgument, match=f"got a table, .*: give {re.escape(TABLES[library])}"):
        audit(table, id="i")
    if library == "polars":
        with pytest.raises(BadArgument, match=r"a table, LazyFrame.*collect\(\)"):
            audit(table.lazy(), id="i")
        assert audit(table.iter_slices(64), id="i").epochs[0].visits == 1


def endless(rows=2):
    while True:
        yield (np.arange(rows),)


@pytest.mark.parametrize(
    ("loaders", "asked", "message"),
    [
        ([], {"id": 0}, "needs a loader"),
        ([[1]], {}, "id or key must be given"),
        ([[{"x": [1]}]], {"id": "row"}, "id='row' must be in each batch, got a dictionary of 'x'"),
        ([[([1, 2], [1])]], {"id": 0, "key": 1}, "1 and 2 values"),
        ([[([0.5],)]], {"id": 0}, "row number"),
        ([[([np.nan],)]], {"key": 0}, "NaN"),
        ([[(np.array(["2024-01-01", "NaT"], "M8[s]"),)]], {"key": 0}, "NaN"),
        ([[([[1, 2]],), ([[1]],)]], {"key": 0}, "2 columns as in the first batch, got 1"),
        ([[([1],), (["a"],)]], {"key": 0}, "text"),
        ([[([None],)]], {"key": 0}, "NoneType"),
        ([[]], {"id": 0}, "has no rows"),
        ([7], {"id": 0}, "iterable of batches, got int"),
        ([endless()], {"id": 0, "rows": 2}, "of a table of 2: give batches="),
        ([endless(1 << 10)], {"id": 0}, "of a table of 1,024: give batches="),
        ([endless()], {"key": 0}, "neither rows= nor id= gives"),
        ([iter([([1],)])], {"id": 0, "epochs": 2}, "only once"),
        ([[([1],)]], {"id": 0, "rows": 0}, "rows"),
        ([[(list(map(str, range(2000))),)]], {"key": 0}, "1024 classes"),
    ],
)
def test_bad_input(loaders, asked, message, monkeypatch):
    monkeypatch.setattr(import_module("corgipile.quality.audit"), "UNKNOWN_ROWS", 1 << 17)
    with pytest.raises(BadArgument, match=message):
        audit(*loaders, **asked)


def test_an_endless_loader_is_cut():
    report = audit(endless(), id=0, rows=2, batches=5)
    assert report.epochs[0].visits == 10
    assert not [fault for fault in report.faults if fault.name in ("missing rows", "repeated rows")]


def test_whether_each_row_came_is_told_in_little_memory():
    rows, once = 1_000_000, np.arange(1_000_000)
    expected = sum(mixed(once).tolist()) % 2**64
    tracemalloc.start()
    try:
        found = hash_of_all(rows)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == expected
    assert peak < 4 << 20  # bytes; all hashes take twice that
