"""Standardised features: as good as features standardised beforehand, with the same bits after a warm start."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile.errors import BadArgument, BadModelFile, BadValue
from corgipile.linear import load, train
from corgipile.linear.features import Features
from corgipile.linear.saving import read_tensors, write_tensors
from corgipile.linear.scaling import Moments, Scaling


def columns(x, y):
    return pa.table({**{f"x{at}": x[:, at] for at in range(x.shape[1])}, "label": y})


@pytest.fixture
def awkward(make):
    """Return rows whose features differ by nine orders of magnitude, and the same rows standardised."""
    x, y = make.rows(2000, dtype=np.float64)
    x = x * [1e5, 1, 1e-4, 10, 1, 1] + [1e6, 0, 1, 0, 5, 0]
    x[:, 5] = 7
    return x, y


def inputs(width, dtype=np.float64, *, sparse=False):
    return Features(("x",), sparse=sparse, width=width, dtype=np.dtype(dtype), lists=True)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 99), parts=st.lists(st.integers(0, 400), max_size=5), shift=st.sampled_from([0, 1e6]))
def test_moments_are_those_of_all_rows_however_they_are_cut(seed, parts, shift):
    rng = np.random.default_rng(seed)
    x = rng.normal(shift, 1, (sum(parts) + 2, 3))
    whole, moments, sparse = Moments(inputs(3)), Moments(inputs(3)), Moments(inputs(3, sparse=True))
    whole.add(x, np.arange(len(x), dtype=np.int32))
    for part in np.split(x, np.cumsum(parts)):
        rows, at = np.nonzero(part)
        moments.add(np.concatenate([part, [[np.nan, 0, 0]]]), np.arange(len(part) + 1, dtype=np.int32))
        sparse.add_sparse(at.astype(np.int32), part[rows, at], len(part))
    found, same = moments.scaling(centred=True), whole.scaling(centred=True)
    assert (found.center.tolist(), found.scale.tolist()) == (same.center.tolist(), same.scale.tolist())
    np.testing.assert_allclose(found.center, x.mean(axis=0), rtol=1e-12, atol=1e-12)  # a mean may be near 0
    np.testing.assert_allclose(found.scale, x.std(axis=0), rtol=1e-7)
    np.testing.assert_allclose(sparse.scaling(centred=False).scale, x.std(axis=0), rtol=1e-7)


@pytest.mark.parametrize("first", [0.0, 1e9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_first_row_may_be_far_from_the_others(first, dtype):
    x = np.random.default_rng(0).normal(size=(5000, 2)).astype(dtype)
    x[0] = first
    for sparse in (False, True):
        moments = Moments(inputs(2, dtype, sparse=sparse))
        if sparse:
            moments.add_sparse(np.tile(np.arange(2, dtype=np.int32), len(x)), x.ravel(), len(x))
        else:
            moments.add(x, np.arange(len(x), dtype=np.int32))
        np.testing.assert_allclose(moments.scaling(centred=True).scale, x.std(axis=0, dtype=np.float64), rtol=1e-9)


@pytest.mark.parametrize("kind", ["logistic", "svm", "softmax", "linear"])
@pytest.mark.parametrize("batch", [1, 16])
def test_it_is_as_if_they_had_been_standardised_before(awkward, kind, batch):
    x, y = awkward
    z = np.divide(x - x.mean(axis=0), x.std(axis=0), where=x.std(axis=0) > 0, out=np.zeros_like(x))
    settings = {"model": kind, "epochs": 3, "batch_size": batch, "l2": 1e-3, "learning_rate": 0.01}
    model = train(columns(x, y), standardize=True, test=columns(x, y), **settings)
    want = train(columns(z, y), standardize=False, test=columns(z, y), **settings)
    assert model.decision(x) == pytest.approx(want.decision(z), abs=1e-6)
    assert model.history[-1]["loss"] == pytest.approx(want.history[-1]["loss"])
    assert model.history[-1]["test_loss"] == pytest.approx(want.history[-1]["test_loss"])
    assert model.params["standardize"] is True


def test_sparse_features_are_scaled_only(make):
    x, y = make.rows(500, dtype=np.float64)
    x *= [1, 10, 100, 1, 1, 1]
    model = train(make.sparse(x, y), standardize=True, step="decay", epochs=2)
    want = train(make.dense(x / x.std(axis=0), y), standardize=False, step="decay", epochs=2)
    assert model.decision(make.sparse(x, y)) == pytest.approx(want.decision(x / x.std(axis=0)), abs=1e-6)


def test_it_happens_where_it_is_needed_and_says_so(awkward, make, caplog):
    x, y = awkward
    model = train(columns(x, y), epochs=5)
    assert model.params["standardize"] is True
    assert model.history[-1]["accuracy"] > 0.75  # one feature of six is constant here
    assert any("differ in scale" in note and "standardize=False" in note for note in model.notes)
    raw = train(columns(x, y), epochs=1, standardize=False)
    assert any("standardize=True would help" in note for note in raw.notes)
    for fine in (make.rows(500), make.rows(500, width=200)):
        assert train(make.dense(*fine), epochs=1).notes == []
    counts = np.random.default_rng(0).poisson(0.3, (500, 4)) * [1, 1, 1, 5000.0]
    assert train(columns(counts[:, :3], y[::4]), epochs=1).params["standardize"] is False
    assert train(columns(counts, y[::4]), epochs=1).params["standardize"] is True


def test_features_to_one_side_of_zero_are_moved(make):
    x, y = make.rows(2000)
    model = train(make.dense(x + 2, y), epochs=2)
    assert model.params["standardize"] is True
    assert any("to one side of 0" in note and "standardize=False" in note for note in model.notes)
    assert train(make.dense(x + 2, y), epochs=1, intercept=False).params["standardize"] is False
    assert train(make.dense(x[::10] + 2, y[::10]), epochs=1).params["standardize"] is True
    flags = (np.random.default_rng(0).random(x.shape) < 0.6).astype(float)
    assert train(make.dense(flags, y), epochs=1).params["standardize"] is False


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [0.1, 1e-40, 7e15])
def test_constant_features_have_no_say(dtype, value):
    """Rounding of a sum of equal numbers is not a spread."""
    x = np.random.default_rng(0).normal(size=(40_000, 2)) * [1, 1e4]
    y = (x[:, 0] > 0).astype(int)
    rows = columns(np.column_stack([x, np.full(len(x), value)]).astype(dtype), y)
    model = train(rows, epochs=1, standardize=True, test=rows)
    assert model.learnt.scaling.scale[2] == 1
    assert model.learnt.coef[0, 2] == 0
    assert model.measure(rows)["accuracy"] > 0.95


def test_features_too_small_for_the_type_are_constant(tmp_path):
    x = np.random.default_rng(0).normal(size=(500, 2))
    rows = columns((x * [1, 1e-40]).astype(np.float32), (x[:, 0] > 0).astype(int))
    model = train(rows, epochs=1, standardize=True, save=tmp_path / "m")
    assert (load(tmp_path / "m").coef == model.coef).all()


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_features_too_large_for_a_spread_are_named(make, form):
    x = np.random.default_rng(0).normal(size=(500, 2)) * [1, 1e200]
    table = getattr(make, form)(x, (x[:, 0] > 0).astype(int))
    with pytest.raises(BadValue, match="feature 1 has numbers so large that their spread overflows float64"):
        train(table, standardize=True)


def test_whole_numbers_keep_their_differences():
    at = np.arange(2000)
    rows = pa.table({"time": 1_700_000_000 + at % 97, "label": (at % 97 > 48).astype(int)})
    model = train(rows, epochs=5)
    assert model.coef.dtype == np.float64
    assert model.measure(rows)["accuracy"] > 0.95


@pytest.mark.parametrize("batch", [1, 7])
def test_going_on_from_a_file_is_going_on(awkward, tmp_path, batch):
    table, settings = columns(*awkward), {"batch_size": batch, "l2": 1e-3}
    whole = train(table, epochs=4, **settings)
    train(table, epochs=2, save=tmp_path / "m", **settings)
    gone_on = train(table, epochs=2, warm_start=load(tmp_path / "m"), **settings)
    assert (gone_on.coef == whole.coef).all()
    assert (gone_on.intercept == whole.intercept).all()
    plain = train(table, epochs=0, warm_start=gone_on, standardize=False, step="decay")
    assert plain.learnt is None
    assert plain.decision(table) == pytest.approx(gone_on.decision(table), abs=1e-6)


def test_folding_is_undone_by_unfolding():
    scaling = Scaling(np.array([3.0, -1.0]), np.array([2.0, 0.5]))
    coef, bias = np.array([[1.0, 2.0]]), np.array([0.5])
    back = scaling.unfold(*scaling.fold(coef, bias))
    assert back[0].tolist() == coef.tolist()
    assert back[1].tolist() == bias.tolist()


def test_no_intercept_no_centre(awkward):
    x, y = awkward
    model = train(columns(x, y), epochs=1, intercept=False, standardize=True)
    assert model.intercept.tolist() == [0]


def test_damaged_scalings_are_refused(awkward, tmp_path):
    train(columns(*awkward), epochs=1, save=tmp_path / "m")
    tensors, meta = read_tensors(tmp_path / "m")
    bad = [
        {"center": tensors["center"][:2]}, {"scale": -tensors["scale"]}, {"scale": tensors["scale"] * np.nan},
        {"learnt_coef": tensors["coef"].astype(np.float32)}, {"learnt_intercept": np.zeros(2)},
    ]  # fmt: skip
    for change in bad:
        write_tensors(tmp_path / "n", tensors | change, meta)
        with pytest.raises(BadModelFile):
            load(tmp_path / "n")
    write_tensors(tmp_path / "n", {name: tensors[name] for name in tensors if name != "scale"}, meta)
    with pytest.raises(BadModelFile):
        load(tmp_path / "n")


def test_yes_or_no_only(make):
    with pytest.raises(BadArgument, match="standardize must be True or False, got 'no'"):
        train(make.dense(*make.rows(50)), standardize="no")
