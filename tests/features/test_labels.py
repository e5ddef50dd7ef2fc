"""Text labels are read once, for classes and for balancing blocks."""

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import BadLabel, BadSchema
from corgipile.features import labels as room
from corgipile.features.labels import read_labels
from corgipile.testing import Counting


class Watched(Counting):
    """Counts the rows whose column was read alone."""

    columnar = True

    def __init__(self, table):
        super().__init__(cp.open(table))
        self.alone = dict.fromkeys(table.column_names, 0)

    def read(self, start, stop, columns=None):
        if columns is not None and len(list(columns)) == 1:
            self.alone[next(iter(columns))] += stop - start
        return super().read(start, stop, columns)


def rows(labels):
    x = np.random.default_rng(0).standard_normal((len(labels), 3)).astype("f4")
    features = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 3)
    return pa.table({"features": features, "label": pa.array(labels)})


def texts(count, classes=3):
    return [f"class {i * classes // count}" for i in range(count)]


def test_training_reads_labels_of_text_once_before_the_epochs(caplog):
    table, said = Watched(rows(texts(50_000))), []
    caplog.set_level("INFO")
    cp.train(table, model="softmax", epochs=1, memory="1MB", callback=lambda _: said.append(table.alone["label"]))
    assert said[0] < 50_500  # plus some rows to estimate the row size
    assert "balanced by 'label'" in caplog.text


@pytest.mark.parametrize("model", ["softmax", "svm"])
@pytest.mark.parametrize("values", [texts(3000), texts(3000, 2)[::-1], [*texts(2999), "aaa"]])
def test_the_model_is_the_same_with_labels_kept_or_not(monkeypatch, model, values):
    table = rows(values)
    kept = cp.train(table, model=model, epochs=2, memory="1MB")
    monkeypatch.setattr(room, "MAX_CODE_BYTES", 0)
    plain = cp.train(table, model=model, epochs=2, memory="1MB")
    assert kept.coef.tobytes() == plain.coef.tobytes()
    assert kept.classes.tolist() == plain.classes.tolist() == sorted(set(values))


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_classes_and_codes_of_every_kind_of_text(kind):
    parts = [pa.array(some, pa.string()).cast(kind) for some in (["b", "c", "b"], ["a"], [], ["c", "a"])]
    found = read_labels(cp.open(pa.table({"y": pa.chunked_array(parts, kind)})), "y")
    assert found.classes == ("a", "b", "c")
    assert found.codes.tolist() == [1, 2, 1, 0, 2, 0]


def test_many_classes_a_null_and_nothing_at_all():
    many = [f"{i:05}" for i in range(60_000)]
    found = read_labels(cp.open(pa.table({"y": many[::-1]})), "y")
    assert found.codes.tolist() == list(range(60_000))[::-1]
    assert read_labels(cp.open(pa.table({"y": ["b", None, "a"]})), "y") == (("a", "b"), None)
    with pytest.raises(BadLabel, match="no value that could be a class"):
        read_labels(cp.open(pa.table({"y": pa.array([None, None], pa.string())})), "y")
    with pytest.raises(BadSchema, match="text or numbers"):
        read_labels(cp.open(pa.table({"y": pa.array([[1]])})), "y")
    with pytest.raises(BadLabel, match="more than 65536 different values, more than a model supports"):
        read_labels(cp.open(pa.table({"y": [f"{i}" for i in range(65_537)]})), "y")


def test_a_null_among_labels_is_met_as_ever():
    table = rows([*texts(20), None])
    with pytest.raises(BadLabel, match="row 20 has label None"):
        cp.train(table, model="softmax", epochs=1)
    assert cp.train(table, model="softmax", epochs=1, on_bad="skip").history[0]["skipped"] == 1
