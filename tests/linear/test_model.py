import numpy as np
import pyarrow as pa
import pytest
from scipy.sparse import csr_matrix

from corgipile.errors import BadArgument, BadSchema, BadValue
from corgipile.linear import train


@pytest.mark.parametrize("kind", ["logistic", "svm", "softmax", "linear"])
def test_predictions_agree_in_every_form(make, kind):
    x, y = make.rows(700, classes={"softmax": 4, "linear": 0}.get(kind, 2))
    table = make.dense(x, y)
    model = train(table, model=kind, epochs=2)
    want = x @ model.coef.T + model.intercept
    scores = model.decision(x)
    np.testing.assert_allclose(scores, want if kind == "softmax" else want[:, 0], atol=1e-5)
    assert (model.decision(table) == scores).all()
    assert model.decision(csr_matrix(x)) == pytest.approx(scores, abs=1e-5)
    assert (model.predict(table) == model.predict(x)).all()
    assert len(model.predict(x[:0])) == 0
    assert sum(len(part) for part in model.stream(table)) == 700
    if kind in ("logistic", "softmax"):
        shares = model.predict_proba(x)
        np.testing.assert_allclose(shares.sum(axis=1), 1)
        assert (model.classes[shares.argmax(axis=1)] == model.predict(x)).all()
    else:
        with pytest.raises(BadArgument, match="has no probabilities"):
            model.predict_proba(x)


def test_a_sparse_model_predicts_dense_rows(make):
    x, y = make.rows(300, classes=3)
    model = train(make.sparse(x, y), model="softmax", epochs=2)
    np.testing.assert_allclose(model.decision(x), model.decision(make.sparse(x, y)), atol=1e-5)


def test_unsorted_matrices_are_put_in_order(make):
    x, y = make.rows(50)
    model = train(make.dense(x, y), epochs=1)
    matrix = csr_matrix((np.array([1.0, 2.0, 3.0]), np.array([4, 1, 4]), np.array([0, 3])), shape=(1, 6))
    assert model.decision(matrix) == pytest.approx(model.decision(np.array([[0, 2, 0, 0, 4, 0]])))
    assert matrix.indices.tolist() == [4, 1, 4]


def test_rows_that_do_not_fit(make):
    x, y = make.rows(50)
    model = train(make.dense(x, y), epochs=1)
    with pytest.raises(BadArgument, match="rows must have 6 features as in training, got 3"):
        model.predict(x[:, :3])
    with pytest.raises(BadSchema, match=r"got shape \(6,\)"):
        model.predict(x[0])
    x[33, 1] = np.nan
    with pytest.raises(BadValue, match=r"^row 33 has null or NaN in feature 1;"):
        model.predict(x)
    with pytest.raises(BadValue, match=r"^row 33 of MemoryTable"):
        model.predict(make.dense(x, y))


def test_predict_needs_no_label(make):
    x, y = make.rows(50)
    model = train(make.dense(x, y), epochs=1)
    assert (model.predict(make.dense(x, y).drop_columns("label")) == model.predict(x)).all()
    named = pa.table({"a": x[:, 0], "b": x[:, 1], "label": y})
    two = train(named, epochs=1)
    assert (two.predict(named.select(["b", "a"])) == two.predict(x[:, :2])).all()


def test_measure_leaves_the_model_alone(make):
    x, y = make.rows(400)
    table = make.dense(x, y)
    model = train(table, epochs=2, l2=1e-2)
    kept = model.coef.copy()
    figures = model.measure(table)
    assert (model.coef == kept).all()
    assert figures["accuracy"] == (model.predict(x) == y).mean()
    assert figures["loss"] == pytest.approx(-np.log(model.predict_proba(x)[np.arange(400), y]).mean(), rel=1e-5)
