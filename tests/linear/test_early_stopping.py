"""Early stopping: the best epoch predicts, and an interrupted run continues."""

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile import cli
from corgipile.errors import BadArgument, BadModelFile


@pytest.fixture
def overfitted():
    """Return few rows of many features: the held-out loss grows after an epoch or two."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 80)).astype(np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 80)
    return pa.table({"features": lists, "label": (x[:, 0] + rng.normal(size=600) > 0) * 1})


WAYS = [{}, {"standardize": True}, {"step": "decay", "average": True}, {"learning_rate": 0.02, "batch_size": 4}]


@pytest.mark.parametrize("how", WAYS)
def test_the_best_epoch_predicts(overfitted, how):
    held = overfitted.slice(0, 200)
    rows = overfitted.slice(200)
    model = cp.train(rows, test=held, epochs=40, patience=3, **how)
    losses = [record["test_loss"] for record in model.history]
    best = int(np.argmin(losses))
    assert model.params["best_epoch"] == best
    assert len(losses) == best + 4 < 40
    assert model.measure(held)["loss"] == losses[best]
    plain = cp.train(rows, epochs=best + 1, **how)
    assert (plain.coef.tobytes(), plain.intercept.tobytes()) == (model.coef.tobytes(), model.intercept.tobytes())
    few = cp.train(rows, test=held, epochs=best + 2, patience=3, **how)
    assert few.coef.tobytes() == model.coef.tobytes()  # the best epoch predicts even without a stop


@pytest.mark.parametrize("how", WAYS)
def test_a_run_that_was_interrupted_goes_on_to_the_same_bits(overfitted, how, tmp_path):
    whole = cp.train(overfitted, validation=0.3, epochs=40, patience=4, **how)
    for first in (1, 2, 3):
        cp.train(overfitted, validation=0.3, epochs=first, patience=4, save=tmp_path / "m", **how)
        past = cp.load(tmp_path / "m")
        model = cp.train(overfitted, validation=0.3, epochs=40 - first, patience=4, warm_start=past, **how)
        assert model.coef.tobytes() == whole.coef.tobytes()
        assert model.params["best_epoch"] == whole.params["best_epoch"]
        assert [record["loss"] for record in model.history] == [record["loss"] for record in whole.history]


def test_it_needs_rows_to_judge_by(overfitted):
    with pytest.raises(BadArgument, match=r"give validation=0\.1, or a test table"):
        cp.train(overfitted, patience=2)
    with pytest.raises(BadArgument, match="patience must be a whole number of at least 1, got 0"):
        cp.train(overfitted, patience=0, validation=0.1)


def test_a_best_epoch_that_is_none_is_a_damaged_file(overfitted, tmp_path):
    model = cp.train(overfitted, epochs=2, validation=0.2, patience=1)
    for wrong in (-1, 2, True, "0"):
        model.params["best_epoch"] = wrong
        model.save(tmp_path / "m")
        with pytest.raises(BadModelFile, match="its best epoch is"):
            cp.load(tmp_path / "m")


def test_on_the_command_line(overfitted, tmp_path):
    with pa.ipc.new_file(path := str(tmp_path / "t.arrow"), overfitted.schema) as out:
        out.write_table(overfitted)
    how = ["--validation", "0.3", "--patience", "2", "--epochs", "30", "--save", str(tmp_path / "m"), "--json"]
    assert cli.main(["train", path, *how]) == 0
    known = cp.train(path, validation=0.3, patience=2, epochs=30)
    assert cp.load(tmp_path / "m").coef.tobytes() == known.coef.tobytes()
    assert len(known.history) < 30


def test_estimators_stop_and_go_on(overfitted):
    pytest.importorskip("sklearn")
    from corgipile.linear.estimators import CorgiClassifier, CorgiRegressor  # noqa: PLC0415

    x = overfitted["features"].combine_chunks().flatten().to_numpy().reshape(-1, 80)
    y = overfitted["label"].to_numpy()
    stopped = CorgiClassifier(validation=0.3, patience=2).fit(x, y)
    assert stopped.n_iter_ == stopped.model_.params["best_epoch"] + 3 < 20
    for kind, labels in ((CorgiClassifier, y), (CorgiRegressor, x[:, 0] * 2.0)):
        twice = kind(warm_start=True, epochs=2)
        twice.fit(x, labels).fit(x, labels)
        assert twice.n_iter_ == 4
        assert twice.coef_.tobytes() == kind(epochs=4).fit(x, labels).coef_.tobytes()
    words = CorgiClassifier(warm_start=True, epochs=1).fit(x, y)
    with pytest.raises(BadArgument, match="y must have the classes of warm_start, 0, 1, got 'no', 'yes'"):
        words.fit(x, np.array(["no", "yes"])[y])
    for one in (stopped, CorgiClassifier(solver="dual", l2=0.1)):
        with pytest.raises(BadArgument, match="use fit for validation, patience and solver"):
            one.partial_fit(x, y, classes=[0, 1])
