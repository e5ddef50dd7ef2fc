"""A rate that nobody chose and that diverges is lowered as in Python, so both hosts make the same model by default."""

# ruff: noqa: S608  # tests write SQL

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import BadArgument


def rows(count, width, classes, hidden, *, scale=1.0, last=1.0, far=(0, 1)):
    """Make features that are mixed of a few by a random matrix, and labels of these; 0 classes: numbers.

    The last row is so many times as long; labels are so far off, and so many times as large.
    """
    rng = np.random.default_rng(0)
    z = rng.normal(size=(count, hidden))
    x = z @ rng.normal(size=(hidden, width)) + 0.1 * rng.normal(size=(count, width))
    scores = z @ rng.normal(size=(hidden, max(classes, 1))) + 3 * rng.gumbel(size=(count, max(classes, 1)))
    label = np.abs(scores[:, 0]) if classes == 0 else scores.argmax(1)
    x[-1] *= last
    return (scale * x).astype(np.float32), far[0] + far[1] * label.astype(float), rng.integers(0, 4, count) / 2.0


@pytest.fixture
def store(server):
    """Return what makes a table of rows in the server, and gives it as Python reads it."""

    def make(x, label, weight):
        lines = zip(x.tolist(), label.tolist(), weight.tolist(), strict=True)
        values = ", ".join(f"('{{{', '.join(map(str, row))}}}', {y!r}, {w!r})" for row, y, w in lines)
        server.sql(
            "DROP TABLE IF EXISTS rated; CREATE TABLE rated (x real[], label float8, w float8);"
            f"INSERT INTO rated VALUES {values}"
        )
        lists = pa.FixedSizeListArray.from_arrays(x.ravel(), x.shape[1])
        return pa.table({"x": lists, "label": label, "w": weight})

    yield make
    server.sql("DROP TABLE IF EXISTS rated; DELETE FROM corgipile.models WHERE name LIKE 'rated%'")


MIXED = (700, 400, 2, 5)  # columns of which most say the same
FAR = {"scale": 1e4}
CASES = {
    "400 columns": (MIXED, {}, {"model": "logistic"}),
    "400 columns, hinge": (MIXED, {}, {"model": "svm", "threads": 1}),
    "softmax": ((600, 40, 4, 3), {}, {"model": "softmax", "weight": "w"}),
    "each against the rest": ((600, 40, 4, 3), {}, {"model": "ovr_logistic", "step": "adagrad", "batch_size": 4}),
    "overflow": ((300, 5, 0, 3), FAR, {"model": "linear", "step": "decay"}),
    "overflow, one thread": ((300, 5, 0, 3), FAR, {"model": "linear", "step": "constant", "threads": 1}),
    "numbers": ((300, 5, 0, 3), FAR, {"model": "huber", "average": True}),
    "numbers that count": ((300, 5, 0, 3), FAR, {"model": "quantile:0.8", "weight": "w", "step": "inverse"}),
    "counts": ((300, 5, 0, 3), FAR, {"model": "poisson"}),
    "after the first epoch": ((300, 5, 0, 3), {"last": 100.0}, {"model": "linear", "epochs": 5, "step": "decay"}),
    "far off": ((500, 5, 0, 3), {"far": (200, 7)}, {"model": "huber"}),
    "far off, by weight": ((500, 5, 0, 3), {"far": (-4e6, 1e5)}, {"model": "quantile:0.1", "weight": "w", "epochs": 3}),
    "far off, with long rows": ((500, 5, 0, 3), {"far": (300, 7), "scale": 30.0}, {"model": "huber:0.5"}),
    "held out": ((600, 40, 4, 3), {}, {"model": "softmax", "tolerance": 0.05, "epochs": 4}),
}


@pytest.mark.every_build
@pytest.mark.parametrize("case", CASES)
def test_a_rate_that_diverges_is_lowered_as_in_python(server, store, case):
    shape, how, options = CASES[case]
    table = store(*rows(*shape, **how))
    given = {"epochs": 2, "standardize": False, **options}
    call = ", ".join(f"\"{name}\" => '{value}'" for name, value in given.items())
    said = server.said(f"SELECT * FROM corgipile.train('rated', features => 'x', label => 'label', name => 'rated', "
                       f"\"order\" => 'no_shuffle', {call})")[1]  # fmt: skip
    (stored,) = server.rows("SELECT * FROM corgipile.models WHERE name = 'rated'")
    given.pop("threads", None)
    python = cp.train(table, features="x", order="no_shuffle", **given)
    again = [note for note in python.notes if "restarting" in note]
    assert again
    assert [line for line in said.splitlines() if "WARNING:  learning" in line] == [
        f"WARNING:  {note}" for note in again
    ]
    assert stored["params"]["learning_rate"] == python.params["learning_rate"]
    assert np.array_equal(np.array(stored["coefficients"]), python.coef.astype(np.float64))
    assert np.array_equal(np.array(stored["intercepts"]), python.intercept.astype(np.float64))
    history = server.rows("SELECT * FROM corgipile.history WHERE model = 'rated' ORDER BY epoch")
    assert [(one["loss"], one["rows"]) for one in history] == [(one["loss"], one["rows"]) for one in python.history]


def test_a_model_whose_rate_was_lowered_goes_on_at_it(server, store, train):
    table = store(*rows(*MIXED))
    options = {"order": "no_shuffle", "standardize": False}
    train("rated", name="rated", epochs=3, **options)
    train("rated", name="rated on", epochs=2, **options)
    train("rated", name="rated on", epochs=1, warm_start="rated on", **options)
    whole, parts = server.rows("SELECT * FROM corgipile.models WHERE name LIKE 'rated%' ORDER BY name")
    assert whole["coefficients"] == parts["coefficients"]
    assert whole["params"]["learning_rate"] == parts["params"]["learning_rate"] == 0.2
    assert (np.array(whole["coefficients"]) == cp.train(table, features="x", epochs=3, **options).coef).all()


def test_the_rate_of_a_model_to_go_on_from_is_kept(server, store, train):
    """Where neither host is told another; another step has its own."""
    table = store(*rows(300, 5, 2, 3))
    options = {"order": "no_shuffle", "standardize": False, "step": "adagrad"}
    train("rated", name="rated", epochs=1, learning_rate=0.05, **options)
    train("rated", name="rated", epochs=1, warm_start="rated", **options)
    (stored,) = server.rows("SELECT * FROM corgipile.models WHERE name = 'rated'")
    first = cp.train(table, features="x", epochs=1, learning_rate=0.05, **options)
    python = cp.train(table, features="x", epochs=1, warm_start=first, **options)
    assert stored["params"]["learning_rate"] == python.params["learning_rate"] == 0.05
    assert (np.array(stored["coefficients"]) == python.coef).all()
    train("rated", name="rated", epochs=1, warm_start="rated", **options | {"step": "decay"})
    assert (
        server.value("SELECT params ->> 'learning_rate' AS rate FROM corgipile.models WHERE name = 'rated'") == "0.01"
    )


STEPS = ["adagrad", "normalized", "adam", "inverse", "decay", "auto"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("model", ["logistic", "linear"])
def test_a_chosen_rate_leaves_the_step_of_a_model_to_go_on_from(server, store, train, step, model):
    """Unless that step chooses its own rate."""
    table = store(*rows(300, 5, 2 if model == "logistic" else 0, 3))
    how = {"model": model, "order": "no_shuffle", "standardize": False, "epochs": 1}
    train("rated", name="rated", step=step, average=True, **how)
    train("rated", name="rated", warm_start="rated", learning_rate=0.005, **how)
    first = cp.train(table, features="x", step=step, average=True, **how)
    python = cp.train(table, features="x", warm_start=first, learning_rate=0.005, **how)
    (stored,) = server.rows("SELECT * FROM corgipile.models WHERE name = 'rated'")
    assert stored["params"]["step"] == python.params["step"] == ("decay" if step == "auto" else step)
    assert stored["params"]["learning_rate"] == python.params["learning_rate"]
    assert (np.array(stored["coefficients"]) == python.coef).all()


@pytest.mark.parametrize("step", STEPS)
def test_a_decay_is_refused_by_the_step_of_a_model_to_go_on_from(server, store, train, fails, step):
    """Unless it decays, or chooses its own rate."""
    table = store(*rows(300, 5, 2, 3))
    how = {"order": "no_shuffle", "standardize": False, "epochs": 1}
    train("rated", name="rated", step=step, **how)
    first = cp.train(table, features="x", step=step, **how)
    if step in {"auto", "decay"}:
        train("rated", name="rated", warm_start="rated", decay=0.5, **how)
        (stored,) = server.rows("SELECT * FROM corgipile.models WHERE name = 'rated'")
        python = cp.train(table, features="x", warm_start=first, decay=0.5, **how)
        assert (np.array(stored["coefficients"]) == python.coef).all()
        return
    call = "SELECT * FROM corgipile.train('rated', 'logistic', 'x', 'label', warm_start => 'rated', decay => 0.5)"
    assert "decay" in fails(call)
    with pytest.raises(BadArgument, match="decay needs step"):
        cp.train(table, features="x", warm_start=first, decay=0.5, **how)


def test_a_regression_that_stands_still_goes_on_at_a_lower_rate(server, store):
    x, label, weight = rows(500, 8, 0, 8)
    table = store(x / 3, label, weight)
    said = server.said("SELECT * FROM corgipile.train('rated', 'linear', 'x', 'label', name => 'rated', epochs => 8, "
                       "step => 'constant', standardize => false, \"order\" => 'no_shuffle')")[1]  # fmt: skip
    (stored,) = server.rows("SELECT * FROM corgipile.models WHERE name = 'rated'")
    how = {"model": "linear", "features": "x", "step": "constant", "standardize": False, "order": "no_shuffle"}
    python = cp.train(table, epochs=8, **how)
    assert "NOTICE:  the loss has plateaued" in said
    assert stored["params"]["learning_rate"] == python.params["learning_rate"] < 0.01
    assert (np.array(stored["coefficients"]) == python.coef).all()


def test_a_rate_that_was_chosen_is_left_alone(server, store, fails):
    store(*rows(300, 5, 0, 3, scale=1e6))
    call = "SELECT * FROM corgipile.train('rated', 'linear', 'x', 'label', learning_rate => 0.01, standardize => false)"
    said = fails(call)
    assert "ERROR:  training diverged" in said
    assert "restarting" not in said


def test_each_fold_has_a_rate_of_its_own(server, store):
    store(*rows(*MIXED))
    said, told = server.said("SELECT * FROM corgipile.cross_validate('rated', 'logistic', 'x', 'label', folds => 3, "
                             "standardize => false, \"order\" => 'no_shuffle')")  # fmt: skip
    assert 1 <= told.count("learning rate 1 diverges; restarting at 0.2") <= 3
    assert len(said.splitlines()) == 3
