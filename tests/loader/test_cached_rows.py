"""Small tables stay in memory, each row in the slot of its number: the same visits from one read."""

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import BadArgument
from corgipile.loader.buffered_reader import BufferedReader

ROWS = 3000


def tables():
    x = np.random.default_rng(0).normal(size=(ROWS, 4)).astype(np.float32)
    lengths = np.arange(ROWS) % 5
    lists = pa.ListArray.from_arrays(np.concatenate([[0], np.cumsum(lengths)]), np.arange(lengths.sum()))
    label = pa.array(np.arange(ROWS) % 3)
    return {
        "columns": pa.table({**{f"x{at}": x[:, at] for at in range(4)}, "label": label}),
        "lists": pa.table({"x": pa.FixedSizeListArray.from_arrays(x.reshape(-1), 4), "label": label}),
        "varlen": pa.table({"x": lists, "label": label}),
    }


def seen(feeder, epoch):
    """Return each step's labels and the numbers in variable-length rows."""
    found = []
    for visit in feeder.epoch(epoch):
        labels = feeder.buffer.dense("label")[visit].tolist()
        found.append((labels, [feeder.buffer.ragged(name)[1][visit].tolist() for name in feeder.buffer.varlen.names]))
    return found


@pytest.mark.parametrize("form", tables())
@pytest.mark.parametrize("kind", ["arrow", "parquet"])
@pytest.mark.parametrize("order", ["riffle", "corgipile", "full", "no_shuffle", "sliding_window"])
def test_kept_rows_are_visited_as_others(form, kind, order, tmp_path):
    path = tmp_path / f"rows.{kind}"
    cp.convert(tables()[form], path)
    with (
        BufferedReader(path, order=order, memory="2MB") as plain,
        BufferedReader(path, order=order, memory="2MB", keep=True) as kept,
    ):
        assert seen(kept, 0) == seen(plain, 0)
        once = kept.bytes_read
        assert [seen(kept, epoch) for epoch in (1, 2)] == [seen(plain, epoch) for epoch in (1, 2)]
        assert kept.bytes_read == once > 0
        assert kept.buffer_bytes == int(ROWS * kept.row_bytes)


def test_rows_that_are_not_few_are_not_kept(tmp_path):
    cp.convert(tables()["lists"], tmp_path / "rows.arrow")
    with BufferedReader(tmp_path / "rows.arrow", memory="40KB", keep=True) as feeder:
        assert feeder.slots < ROWS
        first = [seen(feeder, 0), feeder.bytes_read]
        assert len(first[0]) > 1
        seen(feeder, 1)
        assert feeder.bytes_read > first[1]


def test_rows_longer_than_those_looked_at_are_not_kept(tmp_path):
    lengths = np.full(4000, 1)
    lengths[1600:1900] = 900  # the sample sees the first, middle and last rows only
    starts = np.concatenate([[0], np.cumsum(lengths)])
    rows = pa.table({"x": pa.ListArray.from_arrays(starts, np.arange(starts[-1])), "label": np.arange(4000)})
    cp.convert(rows, tmp_path / "rows.arrow")
    with BufferedReader(tmp_path / "rows.arrow", order="no_shuffle", memory="3MB", keep=True) as feeder:
        assert feeder.slots == 4000
        assert [label for part in seen(feeder, 0) for label in part[0]] == list(range(4000))
        once = feeder.bytes_read
        assert [length for part in seen(feeder, 1) for length in part[1][0]] == lengths.tolist()
        assert feeder.bytes_read > once


def test_a_new_epoch_ends_one_under_way():
    with BufferedReader(cp.open(tables()["lists"]), order="no_shuffle", memory="2MB", keep=True) as feeder:
        first = feeder.epoch(0)
        feeder.epoch(1)
        with pytest.raises(BadArgument, match="this iteration has ended"):
            list(first)


@pytest.mark.parametrize("form", ["columns", "lists"])
def test_training_has_the_same_bits(form, tmp_path, monkeypatch):
    path, features = tmp_path / "rows.arrow", "x" if form == "lists" else None
    cp.convert(tables()[form], path)
    models = [
        cp.train(path, features=features, model="softmax", epochs=3, standardize=standardize)
        for standardize in (False, True)
    ]
    monkeypatch.setattr("corgipile.loader.buffered_reader.fits_cache", lambda *_: False)
    for model, standardize in zip(models, (False, True), strict=True):
        other = cp.train(path, features=features, model="softmax", epochs=3, standardize=standardize)
        assert other.history[-1]["bytes_read"] > 0 == model.history[-1]["bytes_read"]
        assert (other.coef.tobytes(), other.intercept.tobytes()) == (model.coef.tobytes(), model.intercept.tobytes())
