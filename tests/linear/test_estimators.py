import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_matrix

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils import estimator_checks  # noqa: E402

from corgipile.errors import BadArgument, MissingColumn  # noqa: E402
from corgipile.linear.estimators import CorgiClassifier, CorgiRegressor  # noqa: E402

# As for scikit-learn's own SGD: one step of twice the length is not two steps.
NOT_AS_OFTEN = {
    f"check_sample_weight_equivalence_on_{kind}_data": "a weight is no repetition" for kind in ("dense", "sparse")
}


@pytest.mark.parametrize(
    "estimator", [CorgiClassifier(), CorgiClassifier("svm"), CorgiClassifier("softmax"), CorgiRegressor()], ids=repr
)
def test_scikit_learn_finds_nothing(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = estimator_checks.check_estimator(estimator, on_fail=None, expected_failed_checks=NOT_AS_OFTEN)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    assert not failed
    # The first needs SCIPY_ARRAY_API=1 in the environment, the others need pandas.
    data = {f"check_{kind}_data_not_an_array" for kind in ("classifier", "regressor")}
    assert skipped <= {"check_array_api_input", *data}
    assert len(results) > 45


def test_tables_and_arrays(make, tmp_path):
    x, y = make.rows(1000)
    by_table = CorgiClassifier(epochs=3).fit(make.dense(x, y))
    by_array = CorgiClassifier(epochs=3).fit(x, y)
    assert by_table.score(x, y) == pytest.approx(by_array.score(x, y), abs=0.01)
    assert (by_table.predict(make.dense(x, y)) == by_table.predict(x)).all()
    assert CorgiClassifier(epochs=3).fit(csr_matrix(x), y).score(csr_matrix(x), y) > 0.8
    x, y = make.rows(1000, classes=0)
    assert CorgiRegressor(epochs=5).fit(make.dense(x, y)).score(x, y) > 0.85


def test_words_are_classes(make):
    x, y = make.rows(900, classes=3)
    words = np.array(["low", "middle", "high"])[y]
    model = CorgiClassifier(learning_rate=0.05).fit(x, words)
    assert model.score(x, words) > 0.8
    assert model.predict_proba(x).shape == (900, 3)
    assert model.model_.kind == "softmax"


def test_partial_fit_goes_on(make):
    x, y = make.rows(2000)
    how = {"order": "no_shuffle", "l2": 0.0, "step": "decay"}
    model = CorgiClassifier(**how)
    shuffled = np.random.default_rng(0).permutation(2000)
    for part in np.split(shuffled, 8):
        model.partial_fit(x[part], y[part], classes=[0, 1])
    whole = CorgiClassifier(epochs=1, **how).fit(x[shuffled], y[shuffled])
    assert (model.coef_ == whole.coef_).all()
    with pytest.raises(ValueError, match="labels array"):
        model.partial_fit(x[:2], np.array([0, 3]))
    with pytest.raises(ValueError, match="must be passed on the first call"):
        CorgiClassifier().partial_fit(x, y)


def test_regressor_in_a_pipeline(make):
    x, y = make.rows(1000, classes=0)
    assert make_pipeline(StandardScaler(), CorgiRegressor()).fit(1000 * x, y).score(1000 * x, y) > 0.85


def test_column_names_are_for_tables(make):
    x, y = make.rows(100)
    with pytest.raises(BadArgument, match="name columns of a table"):
        CorgiClassifier(label="y").fit(x, y)


@pytest.fixture
def stored(make, tmp_path):
    """Return the path of a table of named columns, its rows and its labels."""
    x, y = make.rows(600, width=3, dtype=np.float64)
    rows = pa.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "label": y})
    pq.write_table(rows, tmp_path / "t.parquet")
    return tmp_path / "t.parquet", rows, y


def test_labels_beside_a_table_are_learnt_from(stored):
    path, rows, y = stored
    words = np.where(y, "in", "out")
    model = CorgiClassifier(epochs=3).fit(path, 1 - y)
    assert model.score(path, 1 - y) > 0.8
    assert model.score(path) < 0.2
    assert model.score(path, y) == pytest.approx(model.score(path))
    model.fit(rows.drop_columns("label"), words)
    assert model.classes_.tolist() == ["in", "out"]
    assert model.score(path, words) > 0.8
    far = CorgiRegressor(epochs=3).fit(path, rows["a"].to_numpy() * 7)
    assert far.score(path, rows["a"].to_numpy() * 7) > 0.95
    for wrong in (y[:-1], [], np.append(y, 0)):
        with pytest.raises(BadArgument, match=r"y has \d+ labels for 600 rows"):
            model.fit(path, wrong)
        with pytest.raises(BadArgument, match=r"y has \d+ labels for 600 rows"):
            far.fit(path, wrong)


def test_a_table_is_for_fit_only(stored):
    path, _, y = stored
    for estimator in (CorgiClassifier(), CorgiRegressor()):
        with pytest.raises(BadArgument, match="partial_fit needs an array"):
            estimator.partial_fit(path, y)
        with pytest.raises(ValueError, match="requires y to be passed"):
            estimator.fit(path).score(np.zeros((3, 3)))


def test_names_of_columns_are_kept_and_matched(stored):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    path, rows, y = stored
    frame = rows.to_pandas()
    for estimator in (CorgiClassifier(epochs=2), CorgiRegressor(epochs=2)):
        estimator.fit(path)
        assert estimator.feature_names_in_.tolist() == ["a", "b", "c"]
        assert estimator.n_features_in_ == 3
        want = estimator.predict(path)
        assert (estimator.predict(frame[["c", "a", "b"]]) == want).all()
        assert (estimator.predict(rows.select(["c", "b", "label", "a"])) == want).all()
        with pytest.raises(ValueError, match="yet now missing:\n- b"):
            estimator.predict(frame[["c", "a"]])
        with pytest.raises(ValueError, match="unseen at fit time:\n- label"):
            estimator.predict(frame)
    by_frame = CorgiClassifier(epochs=2).fit(frame[["b", "a", "c"]], y)
    assert by_frame.model_.features == ("b", "a", "c")
    assert (by_frame.model_.predict(path) == by_frame.predict(frame[["b", "a", "c"]])).all()
    again = by_frame.partial_fit(frame[["b", "a", "c"]], y)
    assert again.feature_names_in_.tolist() == ["b", "a", "c"]
    assert isinstance(frame, pd.DataFrame)
    by_array = by_frame.fit(frame.to_numpy()[:, :3], y)
    assert not hasattr(by_array, "feature_names_in_")


@pytest.mark.parametrize("estimator", [CorgiClassifier(), CorgiClassifier("svm"), CorgiRegressor()], ids=repr)
def test_names_of_data_frames_as_scikit_learn_checks_them(estimator):
    pytest.importorskip("pandas", reason="pandas is not installed")
    estimator_checks.check_dataframe_column_names_consistency(type(estimator).__name__, estimator)


def test_an_svm_has_no_probabilities(make):
    assert not hasattr(CorgiClassifier("svm"), "predict_proba")
    assert hasattr(CorgiClassifier("softmax"), "predict_proba")
    x, y = make.rows(900, classes=3)
    model = CorgiClassifier("svm", epochs=5).fit(x, np.array(["low", "mid", "top"])[y])
    assert model.decision_function(x).shape == (900, 3)
    assert (model.classes_[model.decision_function(x).argmax(axis=1)] == model.predict(x)).all()


def test_a_regressor_of_rows_of_any_size_learns(make):
    x, y = make.rows(1000, classes=0)
    for size in (1e-3, 1.0, 1e6):
        assert CorgiRegressor().fit(size * x, y).score(size * x, y) > 0.9


@pytest.mark.parametrize("estimator", [CorgiClassifier, CorgiRegressor])
def test_columns_of_data_frames_are_encoded(estimator):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pd.DataFrame(
        {"age": [1.0, np.nan, 3.0, 9.0] * 20, "city": ["a", "b", None, "c"] * 20, "y": [0, 1, 0, 1] * 20}
    )
    plain = estimator(missing="mean", epochs=2).fit(frame[["age"]], frame["y"])
    assert plain.__sklearn_tags__().input_tags.allow_nan
    assert plain.feature_names_in_.tolist() == ["age"]
    assert len(plain.predict(frame[["age"]])) == 80
    text = estimator(encode="onehot", missing="mean", epochs=20).fit(frame[["city"]], frame["y"])
    assert text.score(frame[["city"]], frame["y"]) > 0.9
    both = estimator(encode="onehot", missing="mean", epochs=20, label="y")
    by_frame = both.fit(frame[["age", "city"]], frame["y"]).predict(frame)
    assert both.feature_names_in_.tolist() == ["age", "city"]
    assert (both.n_features_in_, both.coef_.shape[-1]) == (2, 5)
    assert both.score(frame[["city", "age"]], frame["y"]) > 0.9
    by_table = both.fit(pa.Table.from_pandas(frame))
    assert (by_table.predict(frame[["city", "age"]]) == by_frame).all()
    with pytest.raises(MissingColumn, match="'city'"):
        both.predict(frame[["age"]])
    for wrong in ({"encode": "onehot"}, {"missing": 0.0}):
        with pytest.raises(BadArgument, match="encode, text, interactions and missing need named columns"):
            estimator(**wrong).fit(np.ones((4, 1)), [0, 1, 0, 1])
        with pytest.raises(BadArgument, match="encode, text, interactions and missing need named columns"):
            estimator(**wrong).partial_fit(frame[["age"]], frame["y"])
