"""What rows count for: against the textbook, for every loss and step, and what must not change it.

Tolerances: float64 models agree with the reference to 1e-8, models in float32 to some roundings.
"""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from sgd_rows import CLASSES, KINDS, KINKS, TWO, fit, made, sgd

from corgipile.errors import BadValue
from corgipile.losses import loss_of

OF_CLASSES = [kind for kind in KINDS if CLASSES[kind]]


def coded(kind, y):
    return np.where(y == CLASSES[kind][1], 1, -1) if kind in TWO else y.astype(np.float64)


@settings(max_examples=120, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    step=st.sampled_from(["constant", "adagrad", "normalized"]),
    sparse=st.booleans(),
    dtype=st.sampled_from([np.float64, np.float32]),
    stored=st.sampled_from([np.float64, np.float32, np.int8, np.uint64, np.bool_]),
    by_class=st.booleans(),
    batch=st.sampled_from([1, 2, 7, 33]),
    l2=st.sampled_from([0.0, 1e-2]),
    rows=st.integers(1, 90),
    width=st.integers(1, 70),
    seed=st.integers(0, 99),
)
def test_weights_are_those_of_the_textbook(kind, step, sparse, dtype, stored, by_class, batch, l2, rows, width, seed):
    x, y = made(kind, rows, width, dtype, seed)
    weights = np.random.default_rng(seed).integers(0, 4, rows).astype(stored)
    classes = CLASSES[kind] if by_class else []
    of_class = np.array([0.5, 2.0, 0.25])[: len(classes)]
    counts = weights.astype(np.float64) * (of_class[np.searchsorted(classes, y)] if classes else 1)
    rate = 0.01 / (width if kind == "poisson" else 1)
    model = sgd(
        kind,
        width,
        dtype,
        sparse=sparse,
        batch_size=batch,
        l2=l2,
        step=step,
        class_weight=of_class if classes else None,
    )
    coef, bias, figures = fit(model, x, y, rate=rate, weights=weights)
    how = {"rate": rate, "epochs": 2, "batch": batch, "l2": l2, "intercept": True, "outputs": len(coef)}
    if step == "constant":
        w, b, total = reference.sgd(kind, x, coded(kind, y), weights=counts, **how)
    else:
        rooted = reference.keeps_roots(x, len(coef), sparse=sparse, batch=batch, penalties=l2)
        w, b = reference.ruled(kind, x, coded(kind, y), step=step, l1=0.0, weights=counts, rooted=rooted, **how)
        total = None
    if kind in KINKS and dtype is np.float32 and not np.allclose(coef, w, atol=2e-3):
        return  # a margin within rounding of the kink falls on either side in float32
    near = 1e-8 if dtype is np.float64 else 2e-3
    np.testing.assert_allclose(coef, w, atol=near * max(1.0, np.abs(w).max()), rtol=0)
    np.testing.assert_allclose(bias, b, atol=near * max(1.0, np.abs(b).max()), rtol=0)
    assert figures.rows == rows
    assert figures.weight == counts.sum()
    if total is not None and counts.any():
        assert figures.loss == pytest.approx(total / counts.sum(), rel=1e-8 if dtype is np.float64 else 1e-2, abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("isa", [0, -1])
def test_weights_do_not_depend_on_calls_or_vectors(kind, sparse, isa):
    x, y = made(kind, 500, 37, np.float32)
    weights = np.random.default_rng(1).random(500)
    found = []
    for how, cuts in (({}, ()), ({"isa": isa}, (3, 130, 131, 400))):
        coef, bias, figures = fit(sgd(kind, 37, np.float32, sparse=sparse, **how), x, y, cuts=cuts, weights=weights)
        found.append((coef.tobytes(), bias.tobytes(), figures))
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_means_by_weight(kind):
    x, y = made(kind, 300, 5, np.float64)
    weights = np.random.default_rng(2).integers(0, 5, 300)
    doubled = np.repeat(np.arange(300), weights)
    model, plain = (sgd(kind, 5, np.float64) for _ in range(2))
    for one in (model, plain):
        one.eval_mode()
    weighted = fit(model, x, y, rate=0.0, epochs=1, weights=weights)[2]
    repeated = fit(plain, x[doubled], y[doubled], rate=0.0, epochs=1)[2]
    assert weighted.weight == repeated.rows == weights.sum()
    assert weighted[1:3] == pytest.approx(repeated[1:3], rel=1e-12)


@pytest.mark.parametrize("kind", ["logistic", "softmax", "linear"])
@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf, -0.5])
def test_a_bad_weight_is_its_rows_fault(kind, wrong):
    x, y = made(kind, 300, 5, np.float64)
    weights = np.ones(300)
    weights[200] = wrong
    with pytest.raises(BadValue, match=f"place 200 has weight {wrong}"):
        fit(sgd(kind, 5, np.float64), x, y, weights=weights)
    model = sgd(kind, 5, np.float64, on_bad="skip")
    assert fit(model, x, y, weights=weights)[2].rows == 299
    assert model.skipped == 1


def test_weights_of_a_wrong_form_are_refused():
    for wrong in (np.ones(3), np.ones((2, 1))):
        with pytest.raises(ValueError, match="one entry per class"):
            sgd("logistic", 2, np.float64, class_weight=wrong[: 3 if len(wrong) == 3 else 1])
    with pytest.raises(ValueError, match="one entry per class"):
        sgd("linear", 2, np.float64, class_weight=np.ones(0))
    assert not loss_of("linear").per_class
