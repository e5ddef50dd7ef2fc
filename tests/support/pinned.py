"""Pinned plans, models and saved states, which each test run recomputes.

``python tests/support/pinned.py FOLDER`` rewrites the files of ``tests/pinned`` except model files, which must load for
ever. Do this only for a change that must give other rows or bits; then increase the order's ``version`` and note it in
CHANGELOG.
"""

import hashlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

import corgipile as cp
from corgipile import orders

HERE = Path(__file__).parents[1] / "pinned"
CHANGED = 1_700_000_000  # modification time in fingerprints of files
STOPPED = 7  # batches before a state is taken
ORDERS = {
    "no_shuffle": orders.NoShuffle(),
    "block_only": orders.BlockOnly(),
    "corgipile": orders.CorgiPile(),
    "riffle": orders.Riffle(),
    "riffle whole": orders.Riffle(whole=True),
    "balanced": orders.Riffle(balance="label"),
    "sliding_window": orders.SlidingWindow(),
    "reservoir": orders.Reservoir(),
    "full": orders.FullShuffle(),
    "full page": orders.FullShuffle(unit="page"),
    "full block": orders.FullShuffle(unit="block"),
}
MODELS = {
    "logistic": {"label": "label"},
    "svm": {"label": "label"},
    "linear": {"label": "target"},
    "softmax": {"label": "kind"},
    "svm of three": {"model": "svm", "label": "kind"},
    "logistic batches": {"model": "logistic", "label": "label", "batch_size": 16, "l2": 0.01},
    "logistic sparse": {"model": "logistic", "label": "label", "features": ["idx", "val"]},
    "softmax sparse": {"model": "softmax", "label": "kind", "features": ["idx", "val"]},
}


def table() -> pa.Table:
    """Make 2,000 rows sorted by label, without a library's random numbers."""
    rows, width = 2000, 9
    at = np.arange(rows * width, dtype=np.uint64)
    mixed = (at * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)).astype(np.int64) % 2001 - 1000
    x = (mixed / 1000).astype("f4").reshape(rows, width)
    kind = np.arange(rows) * 3 // rows
    x[:, 0] += kind
    columns = {
        "x": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), width),
        "idx": pa.array([[row % 5, 5 + row % 7, 12 + row % 3] for row in range(rows)], pa.list_(pa.int32())),
        "val": pa.array([[float(value) for value in line[:3]] for line in x], pa.list_(pa.float32())),
        "label": pa.array(kind > 0, pa.int32()),
        "kind": pa.array(kind, pa.int32()),
        "target": pa.array(x[:, 0] - 2 * x[:, 1], pa.float32()),
    }
    return pa.table(columns)


def stored(folder: Path, name: str = "rows.arrow") -> Path:
    """Write the table as an Arrow file of 40 record batches."""
    path = folder / name
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table().schema) as writer:
        writer.write_table(table(), max_chunksize=50)
    os.utime(path, (CHANGED, CHANGED))
    return path


def sized(name: str) -> orders.Order:
    """Return one of the orders with sizes in rows."""
    return replace(ORDERS[name], block=50, buffer=400)


def digest(*parts: bytes) -> str:
    """Return a short hash of some bytes."""
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def plan(path: Path, name: str) -> str:
    """Return a hash of two epochs of an order, by two seeds."""
    found = []
    for seed in (0, 7):
        with cp.Loader(path, batch_size=16, order=sized(name), columns=["target", "x"], seed=seed) as loader:
            found += [batch["x"].tobytes() + batch["target"].tobytes() for _ in range(2) for batch in loader]
    return digest(*found)


def trained(path: Path, name: str) -> cp.Model:
    """Train one of the models for two epochs."""
    settings = {"model": name, "features": ["x"], **MODELS[name]}
    return cp.train(path, epochs=2, order=replace(sized("riffle"), balance=None), learning_rate=0.01, **settings)


def bits(model: cp.Model) -> str:
    """Return a hash of the weights of a model."""
    return digest(np.asarray(model.coef).tobytes(), np.asarray(model.intercept).tobytes())


def saved(name: str) -> Path:
    """Return the path of a saved model."""
    return HERE / "models" / f"{name.replace(' ', '-')}.safetensors"


def state(path: Path, name: str) -> dict[str, object]:
    """Return the state of a loader after some batches."""
    with cp.Loader(path, batch_size=16, order=sized(name), seed=3) as loader:
        batches = iter(loader)
        for _ in range(STOPPED):
            next(batches)
        return loader.state_dict()


def tail(path: Path, name: str, found: dict[str, object]) -> str:
    """Return a hash of the batches that follow a state."""
    with cp.Loader(path, batch_size=16, order=sized(name), seed=3) as loader:
        loader.load_state_dict(found)
        return digest(*(batch["x"].tobytes() for batch in loader))


def main(folder: Path) -> None:
    """Write all pins."""
    path = stored(folder)
    states = {name: state(path, name) for name in ORDERS}
    models = {name: trained(path, name) for name in MODELS}
    pins = {
        "plans": {name: plan(path, name) for name in ORDERS},
        "models": {name: bits(model) for name, model in models.items()},
        "tails": {name: tail(path, name, states[name]) for name in ORDERS},
    }
    for name, model in models.items():
        if not saved(name).exists():
            model.save(saved(name))
    pins["saved"] = {name: bits(cp.load(saved(name))) for name in MODELS}
    (HERE / "segments.json").write_text(json.dumps(states, indent=1) + "\n")  # states.json is of before there were any
    (HERE / "pins.json").write_text(json.dumps(pins, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
