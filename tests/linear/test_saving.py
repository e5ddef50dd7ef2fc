import contextlib
import errno
import json
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corgipile.errors import BadArgument, BadModelFile, MissingFile, ReadFailed
from corgipile.linear import Model, load, train
from corgipile.linear.saving import write_tensors


@pytest.fixture
def saved(make, tmp_path):
    model = train(make.dense(*make.rows(300, classes=3)), model="softmax", epochs=2, l2=1e-3, seed=7)
    model.save(tmp_path / "model.safetensors")
    return model, tmp_path / "model.safetensors"


@pytest.mark.parametrize("kind", ["logistic", "svm", "softmax", "linear"])
@pytest.mark.parametrize("classes", [[0, 1], [False, True], [-1.5, 2.0]])
def test_a_loaded_model_is_the_saved_one(make, tmp_path, kind, classes):
    x, y = make.rows(200, dtype=np.float64)
    model = train(make.dense(x, np.array(classes)[y]), model=kind, epochs=np.int64(2))
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert (again.coef == model.coef).all()
    assert (again.intercept == model.intercept).all()
    assert again.coef.dtype == model.coef.dtype
    assert again.classes.dtype == model.classes.dtype
    assert (again.history, again.params, again.kind) == (model.history, model.params, kind)
    assert (again.predict(x) == model.predict(x)).all()
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_others_read_the_file(saved):
    safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    model, path = saved
    tensors = safetensors.load_file(path)
    assert (tensors["coef"] == model.coef).all()
    assert tensors["intercept"].shape == (3,)


def test_a_failed_save_leaves_the_old_file(saved):
    model, path = saved
    before = path.read_bytes()
    model.history.append({"loss": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        model.save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_no_file(tmp_path):
    with pytest.raises(MissingFile, match="no model file at"):
        load(tmp_path / "none")


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_damaged_files_are_refused_or_harmless(saved, data):
    """A file with a changed byte is refused or still a complete model."""
    _, path = saved
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(content)] * 3 + [0, 7, 8, 100, len(content) - 1]))
    damaged = path.with_name("damaged")
    damaged.write_bytes(content[:cut])
    with contextlib.suppress(BadModelFile):
        model = load(damaged)
        assert model.predict(np.zeros((2, model.width), np.float32)).shape == (2,)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"12345678", struct.pack("<Q", 2**63) + b"{}", struct.pack("<Q", 2) + b"{}", struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 20) + b"[" * 20, b"\x93NUMPY\x01\x00" + b" " * 90,
    ],
)  # fmt: skip
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(BadModelFile, match="is not a model saved by corgipile"):
        load(tmp_path / "m")


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "tree"}, {"kind": "logistic"}, {"classes": [0, 1]}, {"classes": [2, 1, 0]}, {"classes": [0, 1, 1]},
        {"class_type": "object"}, {"class_type": "nonsense"}, {"params": []}, {"history": {}}, {"format": 99},
        {"classes": None},
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused(tmp_path, change):
    meta = {"format": 1, "kind": "softmax", "classes": [0, 1, 2], "class_type": "int64", "params": {}, "history": []}
    tensors = {"coef": np.zeros((3, 2)), "intercept": np.zeros(3)}
    write_tensors(tmp_path / "m", tensors, meta)
    assert load(tmp_path / "m").width == 2
    write_tensors(tmp_path / "m", tensors, meta | change)
    with pytest.raises(BadModelFile):
        load(tmp_path / "m")


@pytest.mark.parametrize(
    "tensors",
    [
        {"coef": np.zeros((2, 2)), "intercept": np.zeros(3)},
        {"coef": np.zeros((3, 2))},
        {"coef": np.zeros(6), "intercept": np.zeros(3)},
        {"coef": np.full((3, 2), np.nan), "intercept": np.zeros(3)},
        {"coef": np.zeros((3, 0)), "intercept": np.zeros(3)},
        {"coef": np.zeros((3, 2), np.float32), "intercept": np.zeros(3)},
    ],
)
def test_tensors_that_do_not_fit_are_refused(tmp_path, tensors):
    meta = {"format": 1, "kind": "softmax", "classes": [0, 1, 2], "class_type": "int64", "params": {}, "history": []}
    write_tensors(tmp_path / "m", tensors, meta)
    with pytest.raises(BadModelFile):
        load(tmp_path / "m")


@pytest.mark.parametrize(
    "offsets", [[[0, 8], [16, 24]], [[0, 8], [0, 8]], [[-8, 0], [0, 8]], [[0, 8], [8, 32]], [[0, 4], [4, 12]]]
)
def test_holes_and_overlaps_are_refused(tmp_path, offsets):
    header = {name: {"dtype": "F64", "shape": [1], "data_offsets": at} for name, at in zip("ab", offsets, strict=True)}
    header["__metadata__"] = {"corgipile.model": json.dumps({"format": 1})}
    text = json.dumps(header).encode()
    (tmp_path / "m").write_bytes(struct.pack("<Q", len(text)) + text + bytes(24))
    with pytest.raises(BadModelFile):
        load(tmp_path / "m")


def test_a_model_made_by_hand_can_be_saved(tmp_path):
    Model("linear", np.ones((1, 2)), np.zeros(1), np.zeros(0)).save(tmp_path / "m")
    assert load(tmp_path / "m").predict(np.array([[1.0, 2.0]])).tolist() == [3.0]


@pytest.mark.parametrize(
    "header",
    [
        [], "text", 5, None, {}, {"__metadata__": {}}, {"__metadata__": []},
        {"__metadata__": {"corgipile.model": "[]"}}, {"__metadata__": {"corgipile.model": '"x"'}},
        {"__metadata__": {"corgipile.model": 5}},
        {"__metadata__": {"corgipile.model": "{}"}, "coef": []},
        {"__metadata__": {"corgipile.model": "{}"}, "coef": {"dtype": "F32", "shape": [1, 1], "data_offsets": []}},
        {"__metadata__": {"corgipile.model": "{}"}, "coef": {"dtype": [], "shape": [1], "data_offsets": [0, 4]}},
    ],
)  # fmt: skip
def test_headers_of_others_are_refused(tmp_path, header):
    text = json.dumps(header).encode()
    (tmp_path / "m").write_bytes(struct.pack("<Q", len(text)) + text)
    with pytest.raises(BadModelFile, match="is not a model saved by corgipile"):
        load(tmp_path / "m")


@pytest.mark.parametrize(
    "change",
    [
        {"params": {"features": "x"}}, {"params": {"features": [1, 2]}}, {"params": {"label": 3}},
        {"params": {"features": ["a"], "lists": False}}, {"params": {"lists": "no"}}, {"params": {"left_out": []}},
        {"history": [1]}, {"history": [{}]}, {"history": [{"loss": "low"}]}, {"kind": ["softmax"]}, {"kind": None},
        {"classes": [[0], [1], [2]]}, {"classes": {"a": 1}}, {"classes": ["a", "b", "c"]}, {"kind": "linear"},
        {"history": [{"loss": 1.0, "rows": {}}]}, {"params": {"others": [[]]}}, {"params": {"class_weight": 1}},
        {"params": {"l2": [1]}}, {"params": {"bigquery": [1]}},
    ],
)  # fmt: skip
def test_notes_that_do_not_fit_are_refused(tmp_path, change):
    meta = {"format": 1, "kind": "softmax", "classes": [0, 1, 2], "class_type": "int64", "params": {}, "history": []}
    write_tensors(tmp_path / "m", {"coef": np.zeros((3, 2)), "intercept": np.zeros(3)}, meta | change)
    with pytest.raises(BadModelFile):
        load(tmp_path / "m")


def test_what_is_no_file_of_a_model(tmp_path):
    with pytest.raises(ReadFailed, match="cannot read the model") as caught:
        load(tmp_path)
    assert caught.value.errno == errno.EISDIR
    for wrong in (None, 5, b"m"):
        with pytest.raises(BadArgument, match="path must be the path of a model file"):
            load(wrong)
    with (tmp_path / "big").open("wb") as file:
        file.write(struct.pack("<Q", 100) + b"{" * 100)
        file.truncate(1 << 40)
    with pytest.raises(BadModelFile):
        load(tmp_path / "big")


@pytest.mark.parametrize("features", [["a", "v"], ["v", "u"]])
def test_a_model_of_lists_beside_other_columns_loads(tmp_path, features):
    lists = {name: list(np.random.default_rng(width).normal(size=(60, width))) for name, width in (("v", 3), ("u", 2))}
    rows = pa.table({"a": np.arange(60) / 60, **lists, "y": np.arange(60) % 2})
    model = train(rows, features=features, label="y", epochs=1, learning_rate=0.01, memory="1MB", standardize=False)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert (again.features, again.names) == (tuple(features), ())
    assert np.array_equal(again.decision(rows), model.decision(rows))


def test_models_saved_before_features_had_names_still_load(tmp_path):
    params = {"features": ["features"], "label": "label", "epochs": 5}
    meta = {"format": 1, "kind": "svm", "classes": [0, 1], "class_type": "int64", "params": params, "history": []}
    write_tensors(tmp_path / "m", {"coef": np.ones((1, 2)), "intercept": np.zeros(1)}, meta)
    model = load(tmp_path / "m")
    assert (model.features, model.names, model.left_out, model.learnt) == (("features",), (), {}, None)
    assert model.predict(np.array([[1.0, 2.0]])).tolist() == [1]
