"""Averaged weights against the textbook: the same way, and its mean by Shamir and Zhang's weights."""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from sgd_rows import CLASSES, KINDS, NUMBERS, TWO, fit, made, sgd, sparse_rows, where

ETA, EVERY, SHARE = 3, 64, 32


def looks(weights, features, *, sparse):
    """Return how many rows lie between two looks at the weights."""
    return max(EVERY, weights * features // SHARE) if sparse else EVERY


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    sparse=st.booleans(),
    batch=st.sampled_from([1, 7, 1000]),
    l2=st.sampled_from([0.0, 1e-2]),
    rows=st.integers(1, 300),
    width=st.sampled_from([1, 5, 40, 90]),
    cuts=st.lists(st.integers(0, 300), max_size=3).map(sorted),
)
def test_the_mean_is_that_of_the_textbook(kind, sparse, batch, l2, rows, width, cuts):
    x, y = made(kind, rows, width, np.float64)
    rate = (0.02 if kind in NUMBERS else 0.1) / (width if kind == "poisson" else 1)
    model = sgd(kind, width, x.dtype, sparse=sparse, batch_size=batch, l2=l2, average=True)
    coef, bias, _ = fit(model, x, y, rate=rate, cuts=[cut for cut in cuts if cut <= rows])
    coded = np.where(y == CLASSES[kind][1], 1, -1) if kind in TWO else y.astype(np.float64)
    every, seen, mean = looks(1 if len(coef) == 1 else len(coef) + len(coef) % 2, width, sparse=sparse), 0, 0.0
    for epoch in range(2):
        for end in range(every, rows + every, every):
            at = min(end, rows)
            held = 0 if at < end else at % batch if batch > 1 else int(not sparse)  # what is not applied yet
            w, b = after(kind, x, coded, epoch, at - held, rate, batch, l2, len(coef))
            w = w * (1 - rate * l2) if held and batch == 1 else w  # the penalty of the row held back is
            seen += 1
            mean = mean + (ETA + 1) / (seen + ETA) * (np.column_stack([w, b]) - mean)
    np.testing.assert_allclose(np.column_stack([coef, bias]), mean, atol=1e-9, rtol=0)


def after(kind, x, y, epochs, rows, rate, batch, l2, outputs):
    """Return the textbook's weights after whole epochs and some rows."""
    parts = [(x, y)] * epochs + [(x[:rows], y[:rows])]
    state = None
    for part in parts:
        state = reference.sgd(
            kind, *part, rate=rate, epochs=1, batch=batch, l2=l2, intercept=True, outputs=outputs, start=state
        )[:2]
    return state


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_going_on_is_going_on(sparse, dtype):
    x, y = made("softmax", 300, 17, dtype)
    whole, first, second = (sgd("softmax", 17, dtype, sparse=sparse, average=True) for _ in range(3))
    want = fit(whole, x, y, epochs=5)
    fit(first, x, y, epochs=3)
    second.assign(*first.last(), first.optimizer_state())
    got = fit(second, x, y, epochs=2)
    assert [part.tobytes() for part in got[:2]] == [part.tobytes() for part in want[:2]]
    assert first.optimizer_state().shape == (4, 18)
    assert not np.array_equal(*(model[0] for model in (whole.weights(), whole.last())))


def test_weights_put_anew_forget_the_mean():
    x, y = made("linear", 100, 3, np.float64)
    model = sgd("linear", 3, np.float64, average=True)
    fit(model, x, y)
    model.assign(np.ones((1, 3)), np.zeros(1))
    assert model.weights()[0].tolist() == [[1, 1, 1]]
    assert model.optimizer_state()[1, 0] == 0
    with pytest.raises(ValueError, match=r"lines must be \[2, 4\]"):
        model.assign(np.ones((1, 3)), np.zeros(1), np.zeros((3, 4)))


def test_rows_without_values_are_looked_at():
    model = sgd("svm", 3, np.float64, sparse=True, average=True)
    rows, kept = sparse_rows(np.zeros((200, 3)))
    model.begin(0.1)
    model.learn(rows, np.array([1, -1] * 100), np.arange(200, dtype=np.int32), where)
    model.flush()
    assert model.optimizer_state()[1, 0] == 4
    del kept
