"""Column names do not change a model's bits, even names of internal arrays."""

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp

NAMES = [
    "features", "label", "weight", "x", "y", "row", "rows", "index", "values", "prediction", "probability", "_id",
    "epoch", "labels", "group", "fold", "by", "text", "hashed_k", "hashed_v", "label_sets", "sample_weight", "numeric",
    "", " ", '"', "a.b", "sélection", "FEATURES", "Label", "select", "ORDER", "null",
]  # fmt: skip
WAYS = {
    "plain": {},
    "weight": {"weight": 2},
    "by": {"by": 3},
    "group": {"validation": 0.25, "group": 3},
    "onehot": {"encode": "onehot", "features": [0, 4]},
    "text": {"text": [4], "features": [0], "hash_bits": 8},
    "text alone": {"text": 4, "hash_bits": 8},
    "interactions": {"interactions": [[0, 4]], "features": [0], "hash_bits": 8},
    "categorical": {"encode": {4: "onehot"}},
    "balanced": {"order": "balanced"},
    "labels": {"labels": [5, 1], "features": [0]},
}
PLAIN = [f"c{at}" for at in range(6)]


def rows(names):
    random = np.random.default_rng(3)
    x, weight = random.normal(size=120), random.random(120)
    words = [("red", "green blue", "blue")[at] for at in random.integers(3, size=120)]
    columns = [x, (x > 0.1).astype(int), weight, np.arange(120) % 4, words, np.arange(120) % 2]
    return pa.table([pa.array(one) for one in columns], names)


def named(value, names):
    """Replace column numbers by names."""
    if isinstance(value, dict):
        return {names[at]: how for at, how in value.items()}
    if isinstance(value, list):
        return [named(one, names) for one in value]
    return names[value] if type(value) is int else value


def bits(way, names):
    given = {name: value if name == "hash_bits" else named(value, names) for name, value in WAYS[way].items()}
    label = {} if "labels" in given else {"label": names[1]}
    table = rows(names)
    model = cp.train(table, **label, epochs=2, memory="1MB", **given)
    measured = model.measure(table)
    return model.coef.tobytes(), model.intercept.tobytes(), model.predict(table).tobytes(), str(measured)


def turned(at):
    """Return six names, the first in place of a number."""
    return (NAMES + NAMES)[at : at + 6]


@pytest.mark.parametrize("way", WAYS)
def test_models_are_the_same_whatever_columns_are_called(way):
    wanted = bits(way, PLAIN)
    for at in range(len(NAMES)):
        found = bits(way, turned(at))
        if way != "interactions":  # hashes depend on names
            assert found == wanted, turned(at)


def test_batches_are_the_same_whatever_columns_are_called():
    def batches(names):
        how = {"features": [names[0], names[2]], "label": names[1], "batch_size": 32, "memory": "1MB"}
        return [(one["features"].tobytes(), one["label"].tobytes()) for one in cp.Loader(rows(names), **how)]

    wanted = batches(PLAIN)
    for at in range(len(NAMES)):
        assert batches(turned(at)) == wanted, turned(at)


def test_a_search_and_the_dual_solver_take_any_names():
    def found(names):
        table, how = rows(names), {"features": [names[0], names[2]], "label": names[1], "epochs": 2}
        searched = cp.search(table, {"l2": [0.0, 0.1]}, folds=2, **how)
        dual = cp.train(table, model="svm", solver="dual", l2=0.1, **how)
        return searched.model.coef.tobytes(), dual.coef.tobytes()

    wanted = found(PLAIN)
    for at in range(0, len(NAMES), 3):
        assert found(turned(at)) == wanted, turned(at)


def test_a_pair_of_sparse_features_has_a_label_called_features():
    table = pa.table({"x_k": [[0], [1]], "x_v": [[1.0], [2.0]], "features": [1, 0]})
    table = table.cast(pa.schema({"x_k": pa.list_(pa.int32()), "x_v": pa.list_(pa.float32()), "features": pa.int64()}))
    (batch,) = cp.Loader(table, features="x", label="features", batch_size=2, order="no_shuffle")
    assert batch["label"].tolist() == [1, 0]
    assert batch["features"].shape == (2, 2)
