"""Models trained together have the bits of models trained alone, whatever happens to the others."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgd_rows import KINDS, NUMBERS, made, sgd, sparse_rows, where

from corgipile import _kernel
from corgipile.errors import BadValue, Diverged
from corgipile.linear.sgd import Step
from corgipile.linear.stack import learn_all
from corgipile.steps import STEPS
from corgipile.tables.table import type_code

ONE = st.fixed_dictionaries(
    {
        "step": st.sampled_from(["constant", "constant", *STEPS]),
        "l2": st.sampled_from([0.0, 0.0, 1e-3, 5.0]),
        "l1": st.sampled_from([0.0, 0.0, 1e-3]),
        "max_norm": st.sampled_from([None, None, 0.5]),
        "average": st.booleans(),
        "batch_size": st.sampled_from([1, 1, 1, 7]),
    }
)


def alike(models, kind, width, dtype, rates, *, sparse, isa, skip, minus=False):
    how = {"sparse": sparse, "isa": isa, "on_bad": "skip" if skip else "raise"}
    found = [sgd(kind, width, dtype, **how, **one) for one in models]
    for model, rate in zip(found, rates, strict=True):
        if minus:  # weights of -0, which what is taken from them may make +0
            model.assign(*(-part for part in model.weights()))
        model.begin(rate)
    return found


def alone(models, theirs, rows, labels, visit, parts, *, own):
    diverged = []
    for model, part in zip(models, theirs, strict=True):
        try:
            model.learn(rows, labels, visit[(parts == part) == own], where)
            diverged.append(False)
        except Diverged:
            diverged.append(True)
    return diverged


def by_fold(models, theirs, step, *, own, each):
    """Let models learn outside their fold, or only on it, those of a fold together; return which diverge."""
    gone = {}
    for start in range(0, len(step.visit), each):
        chunk = step.part(slice(start, start + each))
        for fold in sorted({*theirs.tolist()}):
            some = [at for at, its in enumerate(theirs) if its == fold and at not in gone]
            rows = chunk.part(np.flatnonzero((chunk.numbers == fold) == own))
            found = learn_all([models[at] for at in some], rows) if some else {}
            gone |= {some[at]: error for at, error in found.items()}
    return gone


def bits(model):
    last, figures = [part.tobytes() for part in model.last()], model.flush()
    return *last, *(part.tobytes() for part in model.weights()), repr(figures), model.skipped


SHARED = {
    "several": st.lists(st.sampled_from(range(4)), min_size=1, max_size=20),
    "own": st.sampled_from([False, False, True]),
    "each": st.sampled_from([1, 50, 1000]),
    "bad": st.lists(st.integers(0, 299), max_size=3),
    "rows": st.integers(1, 300),
    "isa": st.integers(0, _kernel.sgd_isa()),
    "seed": st.integers(0, 99),
    **dict.fromkeys(("apart", "behind", "minus", "ones", "wild"), st.booleans()),
}


def same_bits(how, models, kind, form, width, theirs):
    """Check that models learn the same in company and alone, two epochs of rows in different orders.

    Of what may differ `apart` says that rows of a fold follow each other, and differ in size; `behind` that models hold
    back updates of other rows; `minus` that weights begin with -0; `ones` that features are 0 or 1, often late;
    `wild` that some are to diverge.
    """
    rng, dtype, rows = np.random.default_rng(how["seed"]), np.dtype("f8" if form == "float64" else "f4"), how["rows"]
    x, y = made(kind, rows, width, dtype, how["seed"])
    x = (x > 1).astype(dtype) if how["ones"] else x
    x *= rng.choice([0.01, 1, 3] if how["apart"] else [1], (rows, 1)).astype(dtype)  # some are larger than all before
    y = y.astype(np.float32)
    for row in (row for row in how["bad"] if row < rows):
        x[row, row % width], y[row] = [(np.nan, y[row]), (np.inf, y[row]), (x[row, 0], np.nan)][row % 3]
    given_rows, kept = sparse_rows(x) if form == "sparse" else (x, None)
    rates = (0.01 if kind in NUMBERS else 0.1) * rng.uniform(0.5, 1.5, len(models))
    rates[::3] = 1e38 if how["wild"] else rates[::3]  # of three, one is to diverge
    rates = np.where([one["l2"] > 0 for one in models], np.minimum(rates, 0.1), rates)
    make = {"sparse": form == "sparse", "isa": how["isa"], "skip": bool(how["bad"]), "minus": how["minus"]}
    there, others = (alike(models, kind, width, dtype, rates, **make) for _ in range(2))
    for at, model in enumerate([*there, *others] if how["behind"] and not (how["bad"] or how["wild"]) else []):
        model.learn(given_rows, y, np.array([at % len(there) // 2 % rows], np.int32), where)
    for epoch in range(2):
        visit, parts = rng.permutation(rows).astype(np.int32), rng.integers(0, theirs.max() + 1, rows).astype(np.uint8)
        parts = np.sort(parts) if how["apart"] else parts
        step = Step(given_rows, y, visit, where, None, parts)
        gone = by_fold(there, theirs, step, own=how["own"], each=how["each"])
        left = [at in gone for at in range(len(there))]
        assert left == alone(others, theirs, given_rows, y, visit, parts, own=how["own"]), epoch
        good = [at for at, gone in enumerate(left) if not gone]
        assert [bits(there[at]) for at in good] == [bits(others[at]) for at in good]
        there, others, theirs = [there[at] for at in good], [others[at] for at in good], theirs[good]
        if not good:
            break
    del kept


@settings(max_examples=120, deadline=None)
@given(
    how=st.fixed_dictionaries(SHARED),
    kind=st.sampled_from(KINDS),
    form=st.sampled_from(["float32", "float64", "sparse"]),
    width=st.sampled_from([1, 5, 16, 28, 33, 64, 70]),
    several=st.lists(ONE, min_size=4, max_size=4),
    folds=st.integers(1, 3),
)
def test_company_changes_nothing(how, kind, form, width, several, folds):
    """Of every loss, step and penalty, with rows that are skipped and with models that diverge."""
    models = [several[at] for at in how["several"]]
    theirs = np.sort(np.random.default_rng(how["seed"]).integers(0, folds, len(models)).astype(np.uint8))
    same_bits(how, models, kind, form, width, theirs)


@settings(max_examples=100, deadline=None)
@given(
    how=st.fixed_dictionaries(SHARED),
    kind=st.sampled_from(["logistic", "svm", "linear"]),
    form=st.sampled_from(["float32", "float64"]),
    width=st.sampled_from([1, 5, 16, 28, 33, 64]),
    step=st.sampled_from(["constant", "adagrad", "normalized", "auto"]),
    l1=st.sampled_from([[0.0], [1e-3, 1e-4], [0.0, 1e-4, 0.1]]),
    l2=st.sampled_from([[0.0], [1e-3, 0.5], [0.0, 1e-3, 0.5]]),
    points=st.integers(2, 18),
)
def test_models_of_one_step_change_nothing(how, kind, form, width, step, l1, l2, points):
    """Most models share vectors."""
    models = [
        {"step": step, "l1": l1[at % len(l1)], "l2": l2[at // 2 % len(l2)], "average": at % 2 == 0}
        for at in range(points)
    ]
    same_bits(how, models, kind, form, width, np.repeat([0, 1], [points // 2, points - points // 2]).astype(np.uint8))


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    dtype=st.sampled_from(["float32", "float64"]),
    width=st.sampled_from([1, 5, 9, 16, 28, 33, 70]),
    one=ONE,
    count=st.sampled_from([1, 1, 6]),
    isa=st.integers(0, _kernel.sgd_isa()),
    seed=st.integers(0, 99),
)
def test_the_slots_beside_a_row_never_count(kind, dtype, width, one, count, isa, seed):
    """The kernel reads rows in whole packs, past their end: NaN there must change nothing."""
    rows = 60
    x, y = made(kind, rows, width, np.dtype(dtype), seed)
    slots = np.arange(0, 2 * rows, 2, dtype=np.int32)
    seen = []
    for beside in (0, np.nan):
        buffer = np.full((2 * rows, width), beside, dtype)
        buffer[::2] = x
        labels = np.repeat(y, 2).astype(np.float32)
        models = alike([one] * count, kind, width, dtype, [0.02] * count, sparse=False, isa=isa, skip=False)
        assert not learn_all(models, Step(buffer, labels, slots, where))
        seen.append([(*bits(model), model.decide(buffer, slots, where).tobytes()) for model in models])
    assert seen[0] == seen[1]


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(["logistic", "svm", "squared_hinge"]),
    form=st.sampled_from(["float32", "float64", "sparse"]),
    width=st.sampled_from([1, 16, 28, 64, 70]),
    rows=st.integers(1, 300),
    one=ONE,
    labels=st.integers(1, 35),
    weighed=st.booleans(),
    bad=st.lists(st.integers(0, 299), max_size=3),
    isa=st.integers(0, _kernel.sgd_isa()),
    seed=st.integers(0, 99),
)
def test_labels_of_their_own_change_nothing(kind, form, width, rows, one, labels, weighed, bad, isa, seed):
    rng, dtype = np.random.default_rng(seed), np.dtype("float64" if form == "float64" else "float32")
    x = made(kind, rows, width, dtype, seed)[0]
    x *= rng.choice([0.01, 1, 3], (rows, 1))  # some are larger than all before
    for row in (row for row in bad if row < rows):
        x[row, row % width] = np.nan
    given_rows, kept = sparse_rows(x) if form == "sparse" else (x, None)
    sets, numbers = rng.integers(0, 2, (6, labels + 2)).astype(bool), rng.integers(0, 6, rows).astype(np.int32)
    weights = rng.uniform(0, 2, rows).astype(np.float32) if weighed else None
    how = {"sparse": form == "sparse", "isa": isa, "skip": True}
    there, others = (alike([one] * labels, kind, width, dtype, [0.05] * labels, **how) for _ in range(2))
    for _ in range(2):
        visit = rng.permutation(rows).astype(np.int32)
        learn_all(there, Step(given_rows, numbers, visit, where, weights), sets, first=2)
        for at, model in enumerate(others):
            model.learn(given_rows, sets[numbers, 2 + at].astype(np.uint8), visit, where, weights)
        assert [bits(model) for model in there] == [bits(model) for model in others]
    del kept


def test_sets_of_labels_must_have_a_label_a_model():
    x, numbers = made("logistic", 4, 5, np.float32)[0], np.array([0, 1, 2, 0], np.int32)
    models = [sgd("logistic", 5, np.float32)._state for _ in range(2)]
    good = [models, x, numbers, type_code(numbers.dtype), np.arange(4, dtype=np.int32), None, 0, np.ones((3, 2), bool)]
    assert _kernel.sgd_each(*good, 2, 0) == [(0, 4)] * 2
    assert _kernel.sgd_each(*good[:-1], np.ones((2, 2), bool), 2, 0) == [(_kernel.LABEL_VALUE, 2)] * 2
    for labels, first in [(0, 0), (2, 1), (2, -1), (4, 0), (1, 0)]:
        with pytest.raises(ValueError, match="one byte per label, and one label per model"):
            _kernel.sgd_each(*good, labels, first)
    with pytest.raises(ValueError, match="distinct"):
        _kernel.sgd_each([models[0]] * 2, *good[1:], 2, 0)


def test_how_many_visit_a_row_at_once_is_told():
    lanes = [4, 8, 16]
    for isa in range(_kernel.sgd_isa() + 1):
        told = [_kernel.sgd_at_once(sgd("logistic", 28, dtype, isa=isa)._state) for dtype in ("float32", "float64")]
        assert told == [lanes[isa], lanes[isa] // 2 if isa else 1]  # vectors of two are not worth it
    for how in ({"sparse": True}, {"batch_size": 7}, {"max_norm": 1.0}, {"step": "adam"}, {"l1": 0.1, "max_norm": 1.0}):
        assert _kernel.sgd_at_once(sgd("logistic", 28, np.float32, **how)._state) == 1, how
    for how in ({"l1": 0.1}, {"step": "auto", "l1": 0.1}, {"step": "adagrad", "l2": 0.1}):
        assert _kernel.sgd_at_once(sgd("logistic", 28, np.float32, **how)._state) == lanes[_kernel.sgd_isa()], how
    assert _kernel.sgd_at_once(sgd("logistic", 65, np.float32)._state) == 1
    with pytest.raises(ValueError, match="PyCapsule"):
        _kernel.sgd_at_once(None)


def test_a_row_that_cannot_be_learnt_from_is_named():
    x, y = made("logistic", 60, 5, np.float32)
    x[37, 2] = np.nan
    models = [sgd("logistic", 5, np.float32) for _ in range(3)]
    for model in models:
        model.begin(0.1)
    with pytest.raises(BadValue, match="place 37 has null or NaN in feature"):
        learn_all(models, Step(x, y, np.arange(60, dtype=np.int32), where))


def test_arrays_that_do_not_fit_are_refused():
    x, y = made("logistic", 4, 5, np.float32)
    models = [sgd("logistic", 5, np.float32)._state for _ in range(2)]
    visit = np.arange(4, dtype=np.int32)
    good = [models, x, y, type_code(y.dtype), visit, None, 0, None, 0, 0]
    assert _kernel.sgd_each(*good) == [(0, 4), (0, 4)]
    few = np.ones(3, np.float32), type_code(np.dtype("f4"))  # weights
    assert _kernel.sgd_each(*good[:5], *few, *good[7:]) == [(1, 3)] * 2
    with pytest.raises(ValueError, match="distinct"):
        _kernel.sgd_each([models[0], models[0]], *good[1:])
    with pytest.raises(ValueError, match="models must not be empty"):
        _kernel.sgd_each([], *good[1:])
    assert _kernel.sgd_each(*good[:4], visit[-1:] + 1, *good[5:]) == [(1, 0)] * 2
