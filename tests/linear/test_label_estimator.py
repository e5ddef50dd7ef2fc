"""The multilabel estimator: indicators in and out."""

import warnings

import numpy as np
import pytest
from scipy.sparse import csr_matrix

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")
from sklearn.base import clone  # noqa: E402
from sklearn.metrics import accuracy_score, f1_score  # noqa: E402
from sklearn.model_selection import cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils import estimator_checks  # noqa: E402

from corgipile.errors import BadArgument  # noqa: E402
from corgipile.linear.estimators import CorgiClassifier  # noqa: E402
from corgipile.linear.label_estimator import CorgiLabelClassifier  # noqa: E402


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(800, 6))
    return x, (x @ rng.normal(size=(6, 3)) > 0.5).astype(int)


@pytest.mark.parametrize("form", [np.asarray, csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("labels", [np.asarray, csr_matrix], ids=["array", "matrix"])
def test_an_indicator_is_learnt(data, form, labels):
    x, y = data
    rows = form(x)
    model = CorgiLabelClassifier().fit(rows, labels(y))
    guess = model.predict(rows)
    assert guess.shape == y.shape
    assert f1_score(y, guess, average="micro") > 0.95
    assert model.score(rows, y) == accuracy_score(y, guess)
    assert np.array_equal(guess, model.decision_function(rows) > 0)
    assert np.allclose(model.predict_proba(rows) > 0.5, guess)
    assert (model.coef_.shape, model.classes_.tolist(), model.n_features_in_) == ((3, 6), [0, 1, 2], 6)


def test_each_is_the_classifier_that_learns_alone(data):
    x, y = data
    how = {"order": "riffle", "memory": None, "epochs": 2}
    both = CorgiLabelClassifier("svm", **how).fit(x, y, sample_weight=np.arange(len(x)) % 3)
    for at in range(3):
        alone = CorgiClassifier("svm", **how).fit(x, y[:, at], sample_weight=np.arange(len(x)) % 3)
        assert np.array_equal(both.coef_[at], alone.coef_[0])


def test_it_fits_into_pipelines_and_searches(data):
    x, y = data
    model = make_pipeline(StandardScaler(), CorgiLabelClassifier(epochs=3))
    assert cross_val_score(model, x, y, cv=3, scoring="f1_macro").min() > 0.85
    assert clone(model).get_params()["corgilabelclassifier__epochs"] == 3
    assert not hasattr(CorgiLabelClassifier(), "partial_fit")
    assert not hasattr(CorgiLabelClassifier("svm"), "predict_proba")


def test_what_is_no_indicator_is_refused(data):
    x, y = data
    with pytest.raises(ValueError, match="requires y to be passed"):
        CorgiLabelClassifier().fit(x)
    for wrong in (y[:, 0], y[:, :1], y * 3, y + 0.5, x[:, :3]):
        with pytest.raises(ValueError, match="y must be an indicator"):
            CorgiLabelClassifier().fit(x, wrong)
    for column, what in ((np.zeros(len(y), int), "none"), (np.ones(len(y), int), "all")):
        with pytest.raises(ValueError, match=f"{what} of the rows have label 3"):
            CorgiLabelClassifier().fit(x, np.column_stack([y, column]))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        CorgiLabelClassifier().fit(x[:-1], y)
    for setting in ({"warm_start": True}, {"validation": 0.1}, {"class_weight": "balanced"}, {"model": "softmax"}):
        with pytest.raises(
            BadArgument,
            match=r"do not support warm_start|must be left out with|with labels, got",
        ):
            CorgiLabelClassifier(**setting).fit(x, y)
    with pytest.raises(BadArgument, match="for tables use"):
        CorgiLabelClassifier().fit("rows.parquet", y)


class OfClasses(CorgiLabelClassifier):
    """Takes classes, as scikit-learn's checks pass them: each is a label."""

    def fit(self, X, y=None, sample_weight=None):  # scikit-learn's name
        if y is not None and (codes := np.asarray(y)).size == len(codes):
            y = (codes.reshape(-1, 1) == np.unique(codes)).astype(int)
        return super().fit(X, y, sample_weight)


OF_CLASSES = {
    f"check_{name}": "classes come in, labels come out"
    for name in (
        "fit_score_takes_y", "pipeline_consistency", "estimator_sparse_array", "estimator_sparse_matrix",
        "classifier_data_not_an_array", "classifiers_one_label", "classifiers_one_label_sample_weights",
        "classifiers_classes", "classifiers_train", "classifiers_regression_target", "fit2d_1sample",
    )
} | {
    "check_class_weight_classifiers": "classes of a label have no weights",
    "check_sample_weight_equivalence_on_dense_data": "a weight is no repetition",
    "check_sample_weight_equivalence_on_sparse_data": "a weight is no repetition",
}  # fmt: skip


def test_scikit_learn_finds_nothing_else():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = estimator_checks.check_estimator(OfClasses(), on_fail=None, expected_failed_checks=OF_CLASSES)
    assert not {one["check_name"]: one["exception"] for one in found if one["status"] == "failed"}
    passed = {one["check_name"] for one in found if one["status"] == "passed"}
    assert {"check_requires_y_none", "check_estimators_nan_inf", "check_classifier_multioutput"} <= passed
    assert len(passed) > 35
