"""The ratio of row weights may be as large as float64 supports, and no larger."""

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import BadArgument, BadValue
from corgipile.linear.dual import MAX_WEIGHT_RATIO

ROWS = 200
KINDS = ("logistic", "svm", "squared_hinge")


def table(parted=False, weights=None):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(ROWS, 2))
    y = x[:, 0] + (not parted) * rng.normal(size=ROWS) > 0
    columns = {"a": x[:, 0], "b": x[:, 1], "label": y.astype(int)}
    return pa.table(columns | ({} if weights is None else {"w": weights}))


def train(rows, **how):
    return cp.train(rows, solver="dual", **({"l2": 1 / ROWS, "epochs": 20, "tolerance": 1e-4} | how))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parted", [False, True])
@pytest.mark.parametrize("scale", [1e-150, 1e-6, 1.0])
def test_weights_as_far_apart_as_may_be_end_at_the_optimum(kind, parted, scale):
    weights = {0: scale, 1: 0.99 * MAX_WEIGHT_RATIO * scale}
    if kind == "svm":
        weights[1] = 1e4 * scale  # hinge losses converge slowly with a large C
    last = train(table(parted), model=kind, class_weight=weights, epochs=2 if scale == 1 else 20).history[-1]
    assert last["gap"] >= 0
    assert np.isfinite(last["objective"])


def test_a_gap_below_0_is_no_better_than_its_size():
    history = train(table(), class_weight={0: 0.0, 1: 1e15}, epochs=2).history
    assert history[-1]["gap"] >= 0


@pytest.mark.parametrize("light", [1e-307, 1e-200, 1e-15])
def test_classes_farther_apart_are_refused(light):
    with pytest.raises(
        BadArgument, match=rf"class 0 have weight 1e\+06, rows of class 1 have weight {light:g}; .*1\.1e\+12"
    ):
        train(table(), class_weight={0: 1e6, 1: light})


@pytest.mark.parametrize("count", [1e-307, 1e200])
def test_numbers_that_dual_variables_cannot_be_are_refused(count):
    with pytest.raises(
        BadArgument, match=r"have weight .*; with this l2 solver='dual' needs 0, or 7\.5e-155 to 1\.3e\+154"
    ):
        train(table(), class_weight={0: count, 1: count})
    with pytest.raises(BadValue, match=r"row \d+ of .* has weight .*; with this l2 solver='dual' needs 0, or"):
        train(table(weights=[1.0] * 150 + [count] * 50), weight="w")
    with pytest.raises(BadArgument, match=r"l2=.* gives C = 1 / \(l2 rows\) = .*; C must be 7\.5e-155 to"):
        train(table(), l2=1 / count / ROWS)
    with pytest.raises(BadArgument, match=r"gives C = 1 / \(l2 rows\) = [0-9.]+e\+29[0-9];"):
        train(table(), l2=1e-300)
    for l2 in (5e-324, 1e308):
        with pytest.raises(BadArgument, match="gives C"):
            train(table(), l2=l2)


@pytest.mark.parametrize("others", [(1e10, 1.0), (1.0, 1e-12), (1e3, 1e16)])
def test_rows_farther_apart_are_refused(others):
    heavy, light = others
    weights = np.full(ROWS, heavy)
    weights[120] = 1e-3 * light if heavy > light else light
    with pytest.raises(BadValue, match=r"row \d+ of .* has weight .*, another row .*; .*1\.1e\+12"):
        train(table(weights=weights), weight="w", memory="20kB")
    weights[120] = 0
    assert train(table(weights=weights), weight="w").history
    half = table(weights=np.where(np.arange(ROWS) == 7, 1e-3, 1e6))
    assert train(half, weight="w", epochs=1).history
    with pytest.raises(BadValue, match="has weight"):
        train(half, weight="w", class_weight={0: 1e-2, 1: 1e4})
