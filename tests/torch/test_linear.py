"""Linear models on many ranks: the model of one rank where batches meet, a good one where epochs do."""

import json

import numpy as np
import pyarrow as pa
import pytest
from ranks import run_ranks

import corgipile as cp
from corgipile.errors import BadArgument
from corgipile.orders import Riffle
from corgipile.torch.linear import train

ROWS, BATCH = 1003, 24
TABLE = """
import numpy as np
chance = np.random.default_rng(0)
x = chance.normal(size=(1003, 4)).astype(np.float32)
margin = x @ [1, -2, 0.5, 0] + 0.3 * chance.normal(size=1003)
table = {**{f"f{i}": x[:, i] for i in range(4)}, "label": (margin > 0).astype(np.int32), "target": margin}
"""
TRAIN = (
    TABLE
    + """
import json, sys
import torch.distributed as dist
import corgipile as cp
from corgipile.orders import Riffle
from corgipile.torch.linear import train

dist.init_process_group("gloo")
settings = json.loads(sys.argv[2])
label = settings.pop("label", "label")
del table["target" if label == "label" else "label"]
model = train(table, label=label, order=Riffle(block=8, buffer=200), seed=1, **settings)
said = {"coef": model.coef.tolist(), "bias": model.intercept.tolist(), "history": model.history}
json.dump(said, open(sys.argv[1], "w"))
dist.destroy_process_group()
"""
)
DIES = (
    TABLE
    + """
import json, os, sys
import torch.distributed as dist
from corgipile.errors import PeerFailed
from corgipile.torch.linear import train

dist.init_process_group("gloo")
def callback(record):
    if dist.get_rank() == 1 and record["epoch"] == 1:
        json.dump("", open(sys.argv[1], "w"))
        os._exit(0)
try:
    train({**table, "target": table["label"]}, batch_size=24, epochs=99, learning_rate=0.1, callback=callback)
except PeerFailed as error:
    json.dump(str(error), open(sys.argv[1], "w"))
os._exit(0)
"""
)
CLI = """
import sys
from corgipile.cli import main
out, table, save = sys.argv[1:]
sys.argv = ["corgipile", "train", table, "--batch-size", "24", "--epochs", "2", "--learning-rate", "0.3", "--seed", "1",
            "--save", save, "--overwrite"]
code = main()
open(out, "w").write(str(code or 0))
"""


def table():
    made = {}
    exec(TABLE, made)  # noqa: S102
    return made["table"]


def run(tmp_path, world, **settings):
    given = {"batch_size": BATCH, "epochs": 2, "learning_rate": 0.2, "l2": 0.01, **settings}
    ranks = run_ranks(TRAIN, tmp_path, json.dumps(given), world=world)
    for one in ranks:
        assert (one["coef"], one["bias"]) == (ranks[0]["coef"], ranks[0]["bias"])
    return ranks[0]


def close(one, other):
    np.testing.assert_allclose(one["coef"], other["coef"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(one["bias"], other["bias"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("world", "more"), [(4, {}), (2, {"label": "target", "model": "linear", "learning_rate": 0.05})]
)
def test_batches_that_meet_make_the_model_of_one_rank(tmp_path, world, more):
    alone, together = run(tmp_path, 1, **more), run(tmp_path, world, **more)
    close(together, alone)
    for record, other in zip(together["history"], alone["history"], strict=True):
        assert record["rows"] == ROWS
        for name in {"loss", "accuracy", "r2"} & set(record):
            assert record[name] == pytest.approx(other[name], rel=1e-4)


def test_it_is_the_model_of_plain_training_over_these_batches(tmp_path):
    found = run(tmp_path, 2, epochs=1)
    rows = {name: values for name, values in table().items() if name != "target"}
    numbered = {**rows, "row": np.arange(ROWS)}
    loader = cp.Loader(
        numbered, batch_size=BATCH, global_batches="fixed", order=Riffle(block=8, buffer=200), seed=1, memory="64MB"
    )
    order = np.concatenate([batch["row"] for batch in loader])
    laid = pa.table({name: values[order] for name, values in rows.items()})
    plain = cp.train(laid, order="no_shuffle", batch_size=BATCH, epochs=1, learning_rate=0.2, l2=0.01)
    close(found, {"coef": plain.coef, "bias": plain.intercept})


def test_epochs_that_meet(tmp_path):
    found = run(tmp_path, 4, sync="epoch", step="adagrad", learning_rate=0.1, l2=0.0, epochs=4, batch_size=4)
    assert found["history"][-1]["accuracy"] > 0.9
    assert ROWS <= found["history"][-1]["rows"] < ROWS + 4


def test_a_rank_that_dies_is_an_error_on_the_others(tmp_path):
    said = run_ranks(DIES, tmp_path, world=3)
    for rank in (0, 2):
        assert f"rank {rank} of 3 waited" in said[rank]
        assert "the weights after batch" in said[rank] or "the figures" in said[rank]


def test_the_command_under_a_launcher(tmp_path):
    rows = {name: values for name, values in table().items() if name != "target"}
    made, save = pa.table(rows), tmp_path / "model.safetensors"
    with pa.ipc.new_file(tmp_path / "t.arrow", made.schema) as file:
        file.write_table(made, max_chunksize=100)
    models = []
    for world in (2, 3):
        assert run_ranks(CLI, tmp_path, tmp_path / "t.arrow", save, world=world) == [0] * world
        models.append(cp.load(save))
    np.testing.assert_allclose(models[0].coef, models[1].coef, rtol=1e-4)
    assert models[0].params["batch_size"] == BATCH


def test_a_process_group_is_needed():
    with pytest.raises(BadArgument, match="no process group"):
        train(table(), batch_size=24)
