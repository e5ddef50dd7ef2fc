"""Null categories and text in prediction and evaluation are treated as in training."""

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.cli import main
from corgipile.errors import BadValue

ROWS = 60
CITIES = [["Rome", "Oslo", "Bern"][i % 3] for i in range(ROWS)]
WAYS = {
    "onehot": {"features": ["city", "x"], "encode": "onehot"},
    "ordinal": {"features": ["city", "x"], "encode": "ordinal"},
    "hash": {"features": ["city", "x"], "encode": "hash:8"},
    "text": {"text": "said"},
    "text beside": {"text": "said", "features": ["city", "x"], "encode": "onehot"},
    "crossed": {"interactions": [("city", "x"), "city"]},
}


def table(city="Rome", said="Rome again", x=0.25):
    return pa.table(
        {
            "city": pa.array([city, *CITIES[1:]], pa.string()),
            "said": pa.array([said, *(f"{one} again" for one in CITIES[1:])], pa.string()),
            "x": pa.array([x, *(i / ROWS for i in range(1, ROWS))], pa.float64()),
            "label": [int(one == "Rome") for one in CITIES],
        }
    )


def trained(way, **more):
    return cp.train(table(), epochs=2, standardize=False, **WAYS[way], **more)


@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_met_no_nulls_predicts_them_if_it_was_trained_with_missing(way, tmp_path):
    model, empty = trained(way, missing="mean"), table(None, None, None)
    mean = float(np.mean(table()["x"].to_numpy()))
    never = table("never", "", mean)
    if way not in ("hash", "crossed"):  # null has a bucket there
        np.testing.assert_array_equal(model.decision(empty), model.decision(never))
    assert model.measure(empty)["loss"] > 0
    assert model.judge(empty).rows == ROWS
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(cp.load(tmp_path / "m").decision(empty), model.decision(empty))


@pytest.mark.parametrize("way", WAYS)
def test_filled_is_what_a_training_with_missing_would_have_made(way):
    model, empty = trained(way), table(None, None, None)
    with pytest.raises(BadValue, match=r"model\.filled\(0\)"):
        model.predict(empty)
    filled = model.filled(0)
    assert filled.encoding == trained(way, missing=0).encoding
    np.testing.assert_array_equal(filled.decision(table()), model.decision(table()))
    assert filled.judge(empty).rows == ROWS
    assert filled.measure(empty)["loss"] > 0


def test_models_by_group_and_of_labels_are_filled_too():
    rows = table().append_column("g", [[i % 2 for i in range(ROWS)]])
    empty = table(None, None, None).append_column("g", [[i % 2 for i in range(ROWS)]])
    model = cp.train(rows, by="g", epochs=1, **WAYS["onehot"])
    assert len(model.filled(0).predict(empty)) == ROWS


def test_commands_fill_categories(tmp_path, capsys):
    model, path = str(tmp_path / "m.safetensors"), str(tmp_path / "empty.parquet")
    trained("text beside").save(model)
    cp.convert(table(None, None, None), path)
    assert main(["predict", model, path]) == 2
    assert main(["predict", model, path, "--missing", "0"]) == 0
    assert len(capsys.readouterr().out.split()) >= ROWS
    assert main(["evaluate", model, path, "--missing", "0"]) == 0
