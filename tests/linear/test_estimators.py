import warnings

import numpy as np
import pytest
from scipy.sparse import csr_matrix

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils import estimator_checks  # noqa: E402

from corgipile.errors import BadArgument  # noqa: E402
from corgipile.linear.estimators import CorgiClassifier, CorgiRegressor  # noqa: E402

HUGE = (
    "rows of size 10^4 make plain SGD diverge at this learning rate, which is an error here; run below at a smaller one"
)
EXPECTED = dict.fromkeys(["check_fit_idempotent", "check_fit_check_is_fitted", "check_n_features_in"], HUGE)


@pytest.mark.parametrize("estimator", [CorgiClassifier(), CorgiClassifier("softmax"), CorgiRegressor()], ids=repr)
def test_scikit_learn_finds_nothing(estimator):
    expected = EXPECTED if isinstance(estimator, CorgiRegressor) else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = estimator_checks.check_estimator(estimator, expected_failed_checks=expected, on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    assert not failed
    # The first needs SCIPY_ARRAY_API=1 in the environment, the others need pandas.
    data = {f"check_{kind}_data_not_an_array" for kind in ("classifier", "regressor")}
    assert skipped <= {"check_array_api_input", *data}
    assert len(results) > 45


@pytest.mark.parametrize("check", EXPECTED)
def test_checks_on_huge_rows(check):
    getattr(estimator_checks, check)("CorgiRegressor", CorgiRegressor(learning_rate=1e-10))


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
    model = CorgiClassifier(order="no_shuffle", l2=0.0)
    shuffled = np.random.default_rng(0).permutation(2000)
    for part in np.split(shuffled, 8):
        model.partial_fit(x[part], y[part], classes=[0, 1])
    whole = CorgiClassifier(order="no_shuffle", l2=0.0, epochs=1).fit(x[shuffled], y[shuffled])
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
