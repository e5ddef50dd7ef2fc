"""h_D from samples: the exact value where all is sampled, unbiased where not, with an error that says how far off."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.errors import BadArgument, BadSchema
from corgipile.linear import gradients
from corgipile.quality import h_d, h_d_of_columns, h_d_of_gradients, h_d_of_samples


@given(st.integers(2, 12), st.integers(2, 9), st.integers(1, 5), st.integers(0, 1 << 30))
@settings(max_examples=100, deadline=None)
def test_of_all_rows_it_is_exact(blocks, b, width, seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(blocks * b, width)) + np.repeat(
        rng.normal(size=(blocks, width)) * rng.choice([0, 1, 9]), b, 0
    )
    found = h_d_of_samples(values.reshape(blocks, b, width), b, blocks)
    assert found.value == pytest.approx(h_d(values, np.arange(0, blocks * b + 1, b)), rel=1e-9, abs=1e-9)
    assert found.error == pytest.approx(0, abs=1e-12) or blocks == 2


@given(st.integers(2, 40), st.integers(2, 6), st.integers(0, 1 << 30))
@settings(max_examples=60, deadline=None)
def test_parts_are_unbiased_over_all_pairs_of_blocks(b, blocks, seed):
    """The variance of block means, from every pair of blocks with all their rows, is on average the true one."""
    values = np.random.default_rng(seed).normal(size=(blocks, b)).cumsum(axis=0)
    total, between = [], []
    for i in range(blocks):
        for j in range(i):
            two = values[[i, j]]
            spread, within = two.mean(axis=1).var(ddof=1), two.var(axis=1, ddof=1).mean()
            between.append(spread * (blocks - 1) / blocks)
            total.append(between[-1] + (b - 1) / b * within)
            expected = b * between[-1] / total[-1]
            assert h_d_of_samples(two, b, blocks).value == pytest.approx(expected)
    assert np.mean(between) == pytest.approx(values.mean(axis=1).var())
    assert np.mean(total) == pytest.approx(values.var())


@pytest.mark.parametrize("rows", [2, 8])
@pytest.mark.parametrize("between", [0.0, 0.3, 3.0])
def test_samples_are_as_far_off_as_they_say(between, rows):
    rng = np.random.default_rng(int(between * 10) + rows)
    blocks, b = 400, 40
    values = rng.normal(size=(blocks, b, 3)) + between * rng.normal(size=(blocks, 1, 3))
    true = h_d_of_samples(values, b, blocks).value
    found = []
    for _ in range(150):
        some = values[rng.permutation(blocks)[:100]]
        places = rng.permuted(np.tile(np.arange(b), (100, 1)), axis=1)[:, :rows, None]
        found.append(h_d_of_samples(np.take_along_axis(some, places, axis=1), b, blocks))
    estimates, errors = np.array([[one.value, one.error] for one in found]).T
    assert abs(estimates.mean() - true) < 4 * estimates.std() / np.sqrt(150) + 0.02 * true
    assert 0.7 < errors.mean() / estimates.std() < 1.5
    assert (np.abs(estimates - true) < 2.5 * errors).mean() > 0.9


def clustered(rows=6000):
    rng = np.random.default_rng(4)
    label = np.sort(rng.integers(0, 3, rows))
    x = rng.normal(size=(rows, 4)) + label[:, None]
    features = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 4)
    words = pa.array(["ab"[value] for value in rng.integers(0, 2, rows)])
    missing = pa.array([None if i % 5 == 0 else value for i, value in enumerate(x[:, 0].tolist())])
    return pa.table({"features": features, "label": label, "word": words, "gaps": missing, "raw": [b"x"] * rows}), x


def test_columns_of_a_table():
    table, x = clustered()
    cuts = np.arange(0, 6001, 50)
    found = h_d_of_columns(table, 50, rows=50, blocks=1000)
    assert set(found) >= {"features", "label", "word", "gaps"}
    assert found["label"].value == pytest.approx(h_d(table["label"].to_numpy(), cuts))
    assert found["features"].value == pytest.approx(h_d(x / x.std(axis=0), cuts))
    assert found["word"].value == pytest.approx(h_d(table["word"].to_pylist(), cuts))
    sampled = h_d_of_columns(table, 50, ["label", "features"], blocks=100, rows=3, seed=1)
    for name, one in sampled.items():
        assert abs(one.value - found[name].value) < 4 * one.error + 0.02 * found[name].value
        assert (one.blocks, one.rows) == (100, 3)
    assert sampled == h_d_of_columns(table, 50, ["label", "features"], blocks=100, rows=3, seed=1)


@pytest.mark.parametrize("loss", ["logistic", "softmax", "linear", "svm", "huber:1.0"])
def test_gradients_of_a_model(loss):
    table, _ = clustered(600)
    rows = table.select(["features", "label"])
    if loss in ("logistic", "svm"):
        rows = rows.set_column(1, "label", pa.array(np.minimum(rows["label"].to_numpy(), 1)))
    model = cp.train(rows, model=loss, epochs=1, standardize=False)
    found = gradients(model, rows)
    moved = 1e-5
    for place in (0, 1, found.shape[1] - 1):
        losses = []
        for sign in (1, -1):
            flat = np.concatenate([model.coef.ravel(), model.intercept]).astype(np.float64)
            flat[place] += sign * moved
            coef, bias = flat[: model.coef.size].reshape(model.coef.shape), flat[model.coef.size :]
            other = cp.linear.Model(model.kind, coef, bias, model.classes, model.params)
            losses.append(other.measure(rows)["loss"])
        assert found[:, place].mean() == pytest.approx((losses[0] - losses[1]) / (2 * moved), rel=0.02, abs=1e-4)
    exact = h_d(found, np.arange(0, 601, 20))
    assert h_d_of_gradients(rows, 20, lambda some: gradients(model, some), rows=20).value == pytest.approx(exact)


def test_few_blocks_are_looked_at_as_closely_as_many():
    """Noise in two blocks is not clustered by anything, and two blocks alone do not tell how far off they are."""
    noise = {f"x{at}": np.random.default_rng(at).normal(size=2000) for at in range(20)}
    for block in (1000, 1500):
        for one in h_d_of_columns(noise, block).values():
            assert one.rows * one.blocks >= 1200
            assert one.value < 40
            assert one.error == np.inf
    all_of_it = h_d_of_columns(noise, 1000, rows=1000)
    assert {one.error for one in all_of_it.values()} == {0.0}
    assert all(one.value == pytest.approx(h_d(noise[name], [0, 1000, 2000])) for name, one in all_of_it.items())


def test_gradients_of_standardised_and_sparse_rows():
    table, x = clustered(300)
    rows = pa.table({"a": x[:, 0] * 1000, "b": x[:, 1], "label": np.minimum(table["label"].to_numpy(), 1)})
    model = cp.train(rows, epochs=1, standardize=True, step="decay")
    plain = np.stack([rows["a"].to_numpy(), rows["b"].to_numpy()], axis=1)
    scaled = model.learnt.scaling.dense(plain, np.arange(300, dtype=np.int32))
    margin = scaled @ model.learnt.coef[0] + model.learnt.intercept
    error = 1 / (1 + np.exp(-margin)) - rows["label"].to_numpy()
    assert gradients(model, rows) == pytest.approx(np.column_stack([error[:, None] * scaled, error]), abs=1e-6)
    pair = {"features_k": pa.array([[0, 3], [1]] * 20, pa.list_(pa.int32()))}
    pair |= {"features_v": pa.array([[1.0, 2.0], [3.0]] * 20, pa.list_(pa.float32())), "label": [0, 1] * 20}
    model = cp.train(pa.table(pair), epochs=1)
    found = gradients(model, pa.table(pair))
    assert found.shape == (40, 5)
    assert (found[0] != 0).tolist() == [True, False, False, True, True]


@pytest.mark.parametrize(
    ("samples", "b", "blocks"),
    [
        ([[1, 2]], 4, 9),
        ([[1], [2]], 4, 9),
        ([[1, 2], [3, 4]], 1, 9),
        ([[1, 2], [3, 4]], 4, 1),
        ([1, 2], 4, 9),
        ([[]], 1, 1),
    ],
)
def test_samples_that_cannot_be(samples, b, blocks):
    with pytest.raises(BadArgument):
        h_d_of_samples(samples, b, blocks)


def test_tables_that_cannot_be_sampled():
    table, _ = clustered(60)
    with pytest.raises(BadArgument, match="two blocks of two rows"):
        h_d_of_columns(table, 100)
    with pytest.raises(BadArgument, match="two blocks of two rows"):
        h_d_of_columns(table.slice(0, 0), 10)
    with pytest.raises(BadSchema, match="raw"):
        h_d_of_columns(pa.table({"raw": [[["a"]]] * 60}), 10, ["raw"])
    with pytest.raises(BadArgument, match="gradients must be"):
        h_d_of_gradients(table, 10, lambda rows: np.zeros(3))
