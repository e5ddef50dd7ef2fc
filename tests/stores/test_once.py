"""What looks at a table in a store before it reads it asks for its bytes once, all the same."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.description import about
from corgipile.relayout import reshuffle

pytest.importorskip("obstore")
ROWS, GROUP, MEMORY, WINDOW = 90_000, 30_000, "3MB", 1 << 20
RANDOM = np.random.default_rng(0)
X = RANDOM.random((ROWS, 10), np.float32)
Y = (X.sum(axis=1) > 5).astype(np.int32)
COLUMNS = {f"x{i}": X[:, i] for i in range(10)}


def columns():
    return pa.table({**COLUMNS, "label": Y})


def apart():
    return pa.table({**COLUMNS, "x0": X[:, 0] * 5000, "label": Y})


def text():
    return pa.table({**COLUMNS, "label": np.where(Y > 0, "yes", "no")})


def lists():
    return pa.table({"features": pa.array(list(X)), "label": Y})


def train(url, **options):
    cp.train(url, epochs=1, memory=MEMORY, **options)


def batches(table, **options):
    for _ in cp.Loader(table, batch_size=1000, memory=MEMORY, **options):
        pass


def dataset(url, _):
    torch = pytest.importorskip("corgipile.torch")
    for _ in torch.CorgiPileDataset(url, batch_size=1000, memory=MEMORY, label="label"):
        pass


LOOKS = {
    "train": (columns, lambda url, _: train(url)),
    "train, scaled": (apart, lambda url, _: train(url)),
    "train, means": (columns, lambda url, _: train(url, missing="mean")),
    "train, text": (text, lambda url, _: train(url, validation=0.1)),
    "train, lists": (lists, lambda url, _: train(url)),
    "train, as it lies": (columns, lambda url, _: train(url, order="no_shuffle", test=url)),
    "compare": (columns, lambda url, _: cp.compare(url, epochs=1, memory=MEMORY, order=["riffle", "no_shuffle"])),
    "batches": (columns, lambda url, _: batches(url)),
    "batches, means": (columns, lambda url, _: batches(url, features="numeric", label="label", missing="mean")),
    "batches, text": (text, lambda url, _: batches(url, features="numeric", label="label")),
    "batches, lists": (lists, lambda url, _: batches(cp.train_test_split(cp.open(url), 0.2)[0])),
    "dataset": (columns, dataset),
    "corgi2": (columns, lambda url, out: reshuffle(url, out, "corgi2", memory=MEMORY)),
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.filterwarnings("ignore::corgipile.errors.DivergenceWarning")
def test_every_byte_comes_once(objects, tmp_path, look):
    make, run = LOOKS[look]
    path = objects.root / "bucket" / "a.parquet"
    pq.write_table(make(), path, row_group_size=GROUP, use_dictionary=False)
    run("s3://bucket/a.parquet", tmp_path / "out.arrow")
    asked = {line.range: line.sent for line in objects.log()}  # each once: on a busy machine some are sent twice
    size = path.stat().st_size
    extra = 2 * (1 << 16) + ("lists" in look) * WINDOW  # tails, and the page that tells how long rows are
    assert size <= sum(asked.values()) <= 1.1 * size + extra
    assert len(asked) <= 1.2 * (size / WINDOW + ROWS / GROUP) + 4


def test_what_is_larger_than_the_memory_is_read_by_its_columns_alone(objects):
    path = objects.root / "bucket" / "a.parquet"
    pq.write_table(columns(), path, row_group_size=GROUP, use_dictionary=False)
    about("s3://bucket/a.parquet")
    assert sum(line.sent for line in objects.log()) <= 0.15 * path.stat().st_size
    cp.train("s3://bucket/a.parquet", features=["x0", "x1"], epochs=1, memory=MEMORY)
    assert sum(line.sent for line in objects.log()) <= 0.35 * path.stat().st_size


def test_without_room_for_a_spill_file_rows_are_read_as_they_lie(objects, monkeypatch):
    from corgipile.tables.io import spill  # noqa: PLC0415 - whose constant is changed

    pq.write_table(columns(), objects.root / "bucket" / "a.parquet", row_group_size=2000)
    monkeypatch.setattr(spill, "SPARE", 1 << 60)
    train("s3://bucket/a.parquet", order="no_shuffle")
