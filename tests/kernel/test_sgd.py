"""The SGD kernel against the textbook, at kinks and extremes, and against bad input.

Tolerances: float64 models agree with the reference to 1e-9; float32 models to 2e-3 of the largest weight, for a few
hundred updates whose rounding errors are fed back.
"""

import threading

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from sgd_rows import CLASSES, KINDS, KINKS, MARGINS, NUMBERS, TWO, fit, made, sgd, sparse_rows, where

from corgipile import _kernel
from corgipile.errors import BadLabel, BadSparseRow, BadValue, Diverged
from corgipile.linear.features import Features
from corgipile.linear.sgd import SGD
from corgipile.losses import loss_of


@settings(max_examples=80, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    sparse=st.booleans(),
    wide=st.booleans(),
    batch=st.sampled_from([1, 2, 7, 16, 33, 1000]),
    l2=st.sampled_from([0.0, 1e-3, 2.0]),
    intercept=st.booleans(),
    rows=st.integers(1, 120),
    width=st.integers(1, 90),
    seed=st.integers(0, 99),
)
def test_kernel_is_the_textbook(kind, sparse, wide, batch, l2, intercept, rows, width, seed):
    x, y = made(kind, rows, width, np.float64 if wide else np.float32, seed)
    rate = 0.02 if kind in NUMBERS else 0.1
    rate /= width if kind == "poisson" else 1  # exp() of the margins of wide rows runs away, in the textbook too
    model = sgd(kind, width, x.dtype, sparse=sparse, batch_size=batch, l2=l2, intercept=intercept)
    coef, bias, figures = fit(model, x, y, rate=rate)
    coded = np.where(y == CLASSES[kind][1], 1, -1) if kind in TWO else y.astype(np.float64)
    w, b, loss = reference.sgd(
        kind, x, coded, rate=rate, epochs=2, batch=batch, l2=l2, intercept=intercept, outputs=len(coef)
    )
    if kind in KINKS and not wide and not np.allclose(coef, w, atol=2e-3):
        return  # a margin within rounding of the kink falls on either side in float32
    near = 1e-9 if wide else 2e-3 * max(1.0, np.abs(w).max())
    np.testing.assert_allclose(coef, w, atol=near, rtol=0)
    np.testing.assert_allclose(bias, b, atol=near, rtol=0)
    measured = figures.loss * rows
    assert measured == pytest.approx(loss, rel=1e-8 if wide else 5e-3, abs=1e-9 if wide else 1e-3)
    assert figures.rows == rows


@settings(max_examples=30, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    sparse=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
    batch=st.sampled_from([1, 5, 64]),
    cuts=st.lists(st.integers(0, 300), max_size=5).map(sorted),
)
def test_model_does_not_depend_on_calls_or_vectors(kind, sparse, dtype, batch, cuts):
    x, y = made(kind, 300, 37, dtype)
    found = []
    for isa in range(_kernel.sgd_isa() + 1):
        for parts in ((), cuts):
            model = sgd(kind, 37, dtype, sparse=sparse, batch_size=batch, l2=1e-2, isa=isa)
            coef, bias, figures = fit(model, x, y, cuts=parts, rate=0.02)
            found.append((coef.tobytes(), bias.tobytes(), figures))
    assert len(set(found)) == 1


@pytest.mark.parametrize("kind", MARGINS)
@pytest.mark.parametrize("margin", [-3.0, -0.5, 0.3, 2.5])
def test_derivative_is_that_of_the_loss(kind, margin):
    """One step of rate 1 on x = 1 moves the intercept-free weight by minus the derivative."""

    def loss_at(weight):
        model = sgd(kind, 1, np.float64, intercept=False)
        model.assign(np.array([[weight]]), np.zeros(1))
        model.begin(0.0)
        model.learn(np.ones((1, 1)), np.array([1]), np.zeros(1, np.int32), where)
        figures = model.flush()
        return figures.loss * figures.rows

    model = sgd(kind, 1, np.float64, intercept=False)
    model.assign(np.array([[margin]]), np.zeros(1))
    model.begin(1.0)
    model.learn(np.ones((1, 1)), np.array([1]), np.zeros(1, np.int32), where)
    model.flush()
    slope = margin - model.weights()[0][0, 0]
    assert slope == pytest.approx((loss_at(margin + 1e-6) - loss_at(margin - 1e-6)) / 2e-6, abs=1e-8)


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("sparse", [False, True])
def test_hinge_has_no_slope_at_its_kink(batch, sparse):
    """At y * margin = 1 the sub-gradient is 0, for one row and for a batch alike."""
    model = sgd("svm", 3, np.float32, sparse=sparse, batch_size=batch)
    model.assign(np.array([[1, 0, 0]], np.float32), np.zeros(1))
    x = np.eye(3, dtype=np.float32)[[0, 0, 0, 0]]
    rows, kept = sparse_rows(x) if sparse else (x, None)
    model.begin(0.5)
    model.learn(rows, np.array([1, 1, 1, 1]), np.arange(4, dtype=np.int32), where)
    assert model.flush().loss == 0
    assert model.weights()[0].tolist() == [[1, 0, 0]]
    del kept


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1.0, 30.0, 88.0, 200.0, 1e4, 1e30])
@pytest.mark.parametrize("sign", [-1, 1])
def test_logistic_is_exact_at_any_margin(dtype, size, sign):
    model = sgd("logistic", 1, dtype, intercept=False)
    model.assign(np.array([[sign * size]]), np.zeros(1))
    model.begin(1.0)
    model.learn(np.ones((1, 1), dtype), np.array([1]), np.zeros(1, np.int32), where)
    figures = model.flush()
    assert figures.loss == pytest.approx(np.logaddexp(0, -sign * size), rel=1e-5, abs=1e-15)
    moved = model.weights()[0][0, 0] - sign * size
    assert moved == pytest.approx(np.exp(-np.logaddexp(0, sign * size)), abs=max(1e-6, 1e-7 * size))


def test_softmax_survives_huge_scores():
    model = sgd("softmax", 1, np.float32, intercept=False)
    model.assign(np.array([[1e30], [-1e30], [5.0]]), np.zeros(3))
    model.begin(1e-3)
    model.learn(np.ones((2, 1), np.float32), np.array([0, 0]), np.arange(2, dtype=np.int32), where)
    figures = model.flush()
    assert (figures.loss, figures.score) == (0.0, 1.0)


@pytest.mark.parametrize("labels", [[0, 1], [-1, 1], [1, 2], [False, True], [-2.5, 7.25]])
@pytest.mark.parametrize("kind", TWO)
def test_any_two_values_are_labels(labels, kind):
    x = np.array([[-1.0], [1.0]] * 8, np.float32)
    inputs = Features(("x",), sparse=False, width=1, dtype=np.dtype(np.float32), lists=True)
    model = SGD(kind, inputs, np.array(labels))
    coef, _, figures = fit(model, x, np.array(labels * 8))
    assert coef[0, 0] > 0
    assert figures.score == 1


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "?"])
def test_labels_of_any_number_type(dtype):
    x, y = made("logistic", 50, 4, np.float32)
    want = fit(sgd("logistic", 4, np.float32), x, y)[0]
    assert (fit(sgd("logistic", 4, np.float32), x, y.astype(dtype))[0] == want).all()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 64])
@pytest.mark.parametrize("width", [1, 16, 40, 90])
@pytest.mark.parametrize("kind", KINDS)
def test_bad_values_are_found_in_their_row(kind, width, batch, sparse):
    x, y = made(kind, 300, width, np.float32)
    for bad in (np.nan, np.inf, -np.inf):
        spoilt = x.copy()
        spoilt[217, width - 1] = bad
        with pytest.raises(BadValue, match=r"^place 217 has (null or NaN|-?inf) in feature "):
            fit(sgd(kind, width, np.float32, sparse=sparse, batch_size=batch), spoilt, y, rate=0.01)
    labels = y.astype(np.float64)
    labels[133] = np.nan
    with pytest.raises(BadValue, match="place 133 has label nan"):
        fit(sgd(kind, width, np.float32, sparse=sparse, batch_size=batch), x, labels, rate=0.01)
    if kind not in NUMBERS or loss_of(kind).not_negative:
        labels[133] = -17
        with pytest.raises(BadLabel, match=r"place 133 has label -17.0"):
            fit(sgd(kind, width, np.float32, sparse=sparse, batch_size=batch), x, labels, rate=0.01)


@pytest.mark.parametrize("index", [[0, 4], [-1, 2], [3, 2], [1, 1], [0, 2**31 - 1]])
@pytest.mark.parametrize("kind", ["svm", "softmax"])
def test_bad_sparse_indices_are_refused(index, kind):
    rows, kept = sparse_rows(np.ones((1, 2), np.float32))
    kept[0][:] = index
    model = sgd(kind, 4, np.float32, sparse=True)
    model.begin(0.1)
    with pytest.raises(BadSparseRow, match="place 0"):
        model.learn(rows, np.array([1]), np.zeros(1, np.int32), where)
    with pytest.raises(BadSparseRow):
        model.decide(rows, np.zeros(1, np.int32), where)


def test_growing_weights_are_not_blamed_on_the_data():
    x, y = made("linear", 300, 40, np.float32)
    with pytest.raises(Diverged, match=r"^place .* weights overflow float32"):
        fit(sgd("linear", 40, np.float32), x, y, rate=50.0, epochs=5)


@pytest.mark.parametrize("slot", [-1, 10, 2**31 - 1])
def test_slots_outside_the_buffer_touch_nothing(slot):
    model = sgd("linear", 3, np.float32)
    visit = np.array([1, slot, 2], np.int32)
    model.begin(0.1)
    assert _kernel.sgd_learn(model._state, np.ones((10, 3), np.float32), np.ones(10), 9, visit) == (1, 1)
    assert not model.weights()[0].any()
    assert model.flush().rows == 0


def test_wrong_buffers_raise():
    model = sgd("linear", 3, np.float32)
    x, y, visit = np.ones((4, 3), np.float32), np.ones(4), np.zeros(1, np.int32)
    with pytest.raises(TypeError, match="8 bytes, must have 4"):
        _kernel.sgd_learn(model._state, x.astype(float), y, 9, visit)
    with pytest.raises(ValueError, match="must be whole rows"):
        _kernel.sgd_learn(model._state, np.ones(4, np.float32), y, 9, visit)
    with pytest.raises(ValueError, match="got 77"):
        _kernel.sgd_learn(model._state, x, y, 77, visit)
    with pytest.raises(ValueError, match="needs dense rows"):
        _kernel.sgd_learn(model._state, (np.zeros(1, np.uint64),) * 2 + (np.zeros(1, np.int64),), y, 9, visit)
    with pytest.raises(ValueError, match="rate"):
        _kernel.sgd_begin(model._state, float("nan"))
    with pytest.raises(ValueError, match=r"weights must be \[1, 3\]"):
        _kernel.sgd_get(model._state, np.zeros(2, np.float32), np.zeros(1, np.float32))
    for wrong in (
        (len(_kernel.LOSSES), 4, 1, 1, 1),
        (0, 2, 1, 1, 1),
        (0, 4, 0, 1, 1),
        (0, 4, 1, 2, 1),
        (0, 4, 1, 1, 0),
    ):
        loss, size, features, outputs, batch = wrong
        with pytest.raises(ValueError, match=r"out of range|reals 4 or 8"):
            _kernel.sgd_new(
                loss, 0.0, np.zeros(2), number_bytes=size, sparse=False, features=features, outputs=outputs,
                batch=batch, intercept=True, l2=0.0, isa=-1, average=False, step=0, l1=0.0, class_weight=None,
                max_norm=0.0, rows=0,
            )  # fmt: skip


def test_one_model_serves_one_thread_at_a_time():
    x, y = np.zeros((200_000, 64), np.float32), np.zeros(200_000)
    model, errors = sgd("linear", 64, np.float32), []
    visit = np.arange(len(x), dtype=np.int32)
    model.begin(0.1)

    def run():
        try:
            for _ in range(20):
                model.learn(x, y, visit, where)
        except RuntimeError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(errors) <= {"another thread is using this model"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sparse", [False, True])
def test_scores_are_the_product(kind, sparse):
    x, y = made(kind, 200, 21, np.float64)
    model = sgd(kind, 21, np.float64, sparse=sparse, l2=1e-3)
    coef, bias, _ = fit(model, x, y)
    rows, kept = sparse_rows(x) if sparse else (x, None)
    visit = np.random.default_rng(1).permutation(200).astype(np.int32)
    np.testing.assert_allclose(model.decide(rows, visit, where), (x @ coef.T + bias)[visit], atol=1e-12)
    del kept


def test_small_penalties_are_not_lost_in_float32():
    """Decay by 1e-9 a row is below float32's rounding of a weight, but not below that of the scale."""
    x, y = np.zeros((100_000, 4), np.float32), np.ones(100_000)
    model = sgd("linear", 4, np.float32, l2=1e-6, intercept=False)
    model.assign(np.ones((1, 4)), np.zeros(1))
    coef = fit(model, x, y, rate=1e-1, epochs=5)[0]
    np.testing.assert_allclose(coef, np.exp(-1e-7 * 500_000), rtol=1e-6)
