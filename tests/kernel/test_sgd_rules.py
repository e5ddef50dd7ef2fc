"""Steps of a rate for each weight, and the L1 penalty, against the textbook; and what must not change them.

Tolerances: float64 models agree with the reference to 1e-8; reciprocal roots are within some ulp.
"""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from sgd_rows import CLASSES, KINDS, KINKS, TWO, fit, made, sgd

from corgipile import _kernel
from corgipile.errors import BadValue, Diverged
from corgipile.linear.schedule import Schedule
from corgipile.steps import STEPS

RULED = ["adagrad", "adam", "normalized"]


def fitted(model, x, y, step, rate, *, epochs=2, cuts=()):
    """Fit at the rates of the step."""
    schedule = Schedule(rate, 1.0, 0.0, None, step)
    for epoch in range(epochs):
        found = fit(model, x, y, rate=schedule.rate(epoch), epochs=1, cuts=cuts)
    return found


def coded(kind, y):
    return np.where(y == CLASSES[kind][1], 1, -1) if kind in TWO else y.astype(np.float64)


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    step=st.sampled_from([name for name, step in STEPS.items() if not step.fixed]),
    sparse=st.booleans(),
    wide=st.booleans(),
    batch=st.sampled_from([1, 2, 7, 33, 1000]),
    l1=st.sampled_from([0.0, 1e-2]),
    l2=st.sampled_from([0.0, 1e-2]),
    max_norm=st.sampled_from([None, 1e-2, 1.0]),
    intercept=st.booleans(),
    rows=st.integers(1, 90),
    width=st.integers(1, 70),
    seed=st.integers(0, 99),
)
def test_rules_are_those_of_the_textbook(
    kind, step, sparse, wide, batch, l1, l2, max_norm, intercept, rows, width, seed
):
    x, y = made(kind, rows, width, np.float64 if wide else np.float32, seed)
    x *= np.random.default_rng(seed).choice([1, 30, 0.01], width) if step == "normalized" else 1
    rate = 0.01 / (width if kind == "poisson" else 1)
    max_norm = None if sparse and l1 else max_norm  # what is owed of L1 counts as unpaid: see the test of bounds
    how = {"l1": l1, "l2": l2, "max_norm": max_norm, "intercept": intercept}
    model = sgd(kind, width, x.dtype, sparse=sparse, batch_size=batch, step=step, **how)
    coef, bias, figures = fitted(model, x, y, step, rate)
    shape = {"epochs": 2, "batch": batch, "outputs": len(coef)}
    shape["rooted"] = reference.keeps_roots(x, len(coef), sparse=sparse, batch=batch, penalties=l1 or l2 or max_norm)
    w, b = reference.ruled(kind, x, coded(kind, y), step=step, rate=rate, lazy=sparse, **shape, **how)
    if kind in KINKS and not wide and not np.allclose(coef, w, atol=2e-3):
        return  # a margin within rounding of the kink falls on either side in float32
    near = 1e-8 if wide else 2e-3
    np.testing.assert_allclose(coef, w, atol=near * max(1.0, np.abs(w).max()), rtol=0)
    np.testing.assert_allclose(bias, b, atol=near * max(1.0, np.abs(b).max()), rtol=0)
    assert figures.rows == rows


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    step=st.sampled_from(list(STEPS)),
    sparse=st.booleans(),
    average=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
    batch=st.sampled_from([1, 5, 64]),
    l1=st.sampled_from([0.0, 1e-3]),
    l2=st.sampled_from([0.0, 1e-2]),
    max_norm=st.sampled_from([None, 0.1]),
    cuts=st.lists(st.integers(0, 300), max_size=5).map(sorted),
)
def test_model_does_not_depend_on_calls_or_vectors(kind, step, sparse, average, dtype, batch, l1, l2, max_norm, cuts):
    x, y = made(kind, 300, 37, dtype)
    found = []
    for isa in range(_kernel.sgd_isa() + 1):
        for parts in ((), cuts):
            how = {"l2": l2, "l1": l1, "max_norm": max_norm, "step": step, "average": average}
            model = sgd(kind, 37, dtype, sparse=sparse, batch_size=batch, isa=isa, **how)
            coef, bias, figures = fit(model, x, y, cuts=parts, rate=0.02)
            found.append((coef.tobytes(), bias.tobytes(), figures))
    assert len(set(found)) == 1


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("width", [1, 17])
@pytest.mark.parametrize(
    ("kind", "l1", "max_norm"), [("softmax", 1e-3, 0.5), ("logistic", 0.0, None), ("svm", 0.0, 0.5)]
)
def test_going_on_is_going_on(step, average, sparse, width, kind, l1, max_norm):
    x, y = made(kind, 300, width, np.float32)
    how = {"sparse": sparse, "average": average, "step": step, "l1": l1, "max_norm": max_norm}
    whole, first, second = (sgd(kind, width, np.float32, **how) for _ in range(3))
    want = fit(whole, x, y, epochs=5)
    fit(first, x, y, epochs=3)
    second.assign(*first.last(), first.optimizer_state())
    got = fit(second, x, y, epochs=2)
    assert [part.tobytes() for part in got[:2]] == [part.tobytes() for part in want[:2]]


@pytest.mark.parametrize("sparse", [False, True])
def test_normalized_steps_do_not_mind_scales(sparse):
    x, y = made("logistic", 400, 9, np.float64)
    scale = 10.0 ** np.arange(-4, 5)
    coef, other = (
        fit(sgd("logistic", 9, np.float64, sparse=sparse, step="normalized"), part, y)[0] for part in (x, x * scale)
    )
    np.testing.assert_allclose(other * scale, coef, rtol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("batch", [1, 16])
def test_l1_makes_weights_zero(sparse, batch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 20))
    y = (x[:, 0] + 0.1 * rng.normal(size=4000) > 0).astype(int)
    for step in STEPS:
        how = {"sparse": sparse, "batch_size": batch, "step": step}
        both = [sgd("logistic", 20, np.float64, l1=l1, **how) for l1 in (0, 0.1)]
        for model in both:
            fit(model, x, y, rate=0.05)
        plain, coef = (model.last()[0][0] for model in both)  # a mean of weights is hardly ever 0
        assert np.count_nonzero(plain) == 20
        assert np.count_nonzero(coef) < 20
        assert 0 < coef[0] < plain[0]
        assert coef[0] > 3 * np.abs(coef[1:]).max()
        assert np.abs(coef[1:]).sum() < np.abs(plain[1:]).sum()


@pytest.mark.parametrize("step", RULED)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_refused_leaves_no_trace(step, sparse, dtype):
    x, y = made("logistic", 50, 5, dtype)
    spoilt = np.insert(x, 20, np.nan, axis=0)
    spoilt[20, :2] = [np.inf, 1e9 * 0 + 1]
    labels = np.insert(y, 20, 1)
    model, want = (sgd("logistic", 5, dtype, sparse=sparse, step=step, **on) for on in ({"on_bad": "skip"}, {}))
    with pytest.raises(BadValue, match="place 20"):
        fit(sgd("logistic", 5, dtype, sparse=sparse, step=step), spoilt, labels)
    got = fit(model, spoilt, labels)
    assert model.skipped == 1
    assert np.isfinite(got[0]).all()
    np.testing.assert_array_equal(got[0], fit(want, x, y)[0])


@pytest.mark.parametrize("size", [1e-40, 1e-30, 1e-12, 1e12, 1e30])
@pytest.mark.parametrize("step", RULED)
def test_features_of_any_size_leave_finite_weights_or_an_error(size, step):
    x, y = made("svm", 200, 3, np.float32)
    x[:, 1] *= np.float32(size)
    model = sgd("svm", 3, np.float32, step=step)
    if size > 1e20:  # squares of gradients are beyond float32
        with pytest.raises(Diverged, match="overflow float32"):
            fit(model, x, y, rate=1e-12)
        return
    coef, bias, _ = fit(model, x, y, rate=1e-12 if size > 1 else 0.1)
    assert np.isfinite(coef).all()
    assert np.isfinite(bias).all()


def test_wrong_steps_are_refused():
    with pytest.raises(ValueError, match="step must be 0 to 6"):
        _kernel.sgd_rate(9, 0.1, 0.9, 1)
    for wrong in ({"step": 17}, {"l1": -1.0}, {"l1": float("nan")}, {"max_norm": -1.0}, {"max_norm": float("nan")}):
        with pytest.raises(ValueError, match="l1 or max_norm is out of range"):
            _kernel.sgd_new(
                0, 0.0, np.zeros(2), number_bytes=4, sparse=False, features=1, outputs=1, batch=1, intercept=True,
                l2=0.0, isa=-1, average=False, class_weight=None, rows=0,
                **({"step": 0, "l1": 0.0, "max_norm": 0.0} | wrong),
            )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    step=st.sampled_from(list(STEPS)),
    sparse=st.booleans(),
    batch=st.sampled_from([1, 7]),
    average=st.booleans(),
    max_norm=st.sampled_from([1e-6, 0.1, 2.0]),
)
def test_weights_keep_within_their_bound(kind, step, sparse, batch, average, max_norm):
    x, y = made(kind, 200, 11, np.float32)
    how = {"l1": 1e-3, "l2": 1e-2, "step": step, "average": average, "max_norm": max_norm}
    model = sgd(kind, 11, np.float32, sparse=sparse, batch_size=batch, **how)
    for epoch in range(3):
        coef, bias, _ = fit(model, x, y, rate=0.05, epochs=1, cuts=(30, 31 + epoch))
        for weights in (coef, model.last()[0]):
            assert np.linalg.norm(weights.astype(np.float64)) <= max_norm * (1 + 1e-5)
    assert np.isfinite(bias).all()


def test_adam_moves_a_new_weight_by_the_rate_whatever_the_gradient():
    for size in (1e-6, 1.0, 1e6):
        x, y = np.array([[size, 0.0]]), np.array([1])
        coef, bias, _ = fit(sgd("logistic", 2, np.float64, step="adam"), x, y, rate=0.01, epochs=1)
        np.testing.assert_allclose(coef, [[0.01, 0.0]], rtol=0.03)  # e counts against the smallest
        np.testing.assert_allclose(bias, [0.01], rtol=1e-6)


def test_adam_of_sparse_rows_moves_what_they_hold():
    x = np.zeros((3, 3))
    x[[0, 1, 2], [0, 1, 0]] = 1
    model, seen = sgd("logistic", 3, np.float64, sparse=True, step="adam"), []
    for row in range(3):
        coef, _, _ = fit(model, x[row : row + 1], np.array([1]), rate=0.01, epochs=1)
        seen.append(coef[0].copy())
    assert seen[0][1] == 0
    assert seen[1][0] == seen[0][0]  # a dense row would move it on
    assert seen[2][0] > seen[1][0]
    assert seen[2][1] == seen[1][1]
    assert not any(weights[2] for weights in seen)
