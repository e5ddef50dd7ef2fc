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


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CORGIPILE_SPILL", str(tmp_path))  # where no other test has unpacked the same


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.filterwarnings("ignore::corgipile.errors.DivergenceWarning")
def test_every_byte_comes_once(objects, tmp_path, look):
    make, run = LOOKS[look]
    path = objects.root / "bucket" / "a.parquet"
    pq.write_table(make(), path, row_group_size=GROUP, use_dictionary=False)
    run("s3://bucket/a.parquet", tmp_path / "out.arrow")
    asked = objects.log()
    size = path.stat().st_size
    extra = 2 * (1 << 16) + ("lists" in look) * WINDOW  # tails, and the page that tells how long rows are
    assert size <= sum(line.sent for line in asked) <= 1.1 * size + extra
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
    monkeypatch.setattr(spill, "MIN_FREE", 1 << 60)
    train("s3://bucket/a.parquet", order="no_shuffle")


def many_columns():
    """Return rows of all kinds of columns: numbers, some null, lists, text, truth values, categories."""
    some = columns().set_column(3, "x3", pa.array(np.where(Y > 0, X[:, 3], np.nan), from_pandas=True))
    kinds = {"text": np.where(Y > 0, "yes", "no"), "truth": Y > 0, "lists": list(X[:, :3])}
    for name, values in kinds.items():
        some = some.append_column(name, pa.array(values))
    return some.append_column("kind", pa.array(kinds["text"]).dictionary_encode())


@pytest.mark.parametrize("pick", [slice(None), slice(2, 9)])
def test_columns_that_lie_apart_come_together_in_a_scan(objects, tmp_path, pick):
    rows, path = many_columns(), objects.root / "bucket" / "rows.arrow"
    with pa.ipc.new_file(path, rows.schema) as file:
        file.write_table(rows, max_chunksize=GROUP)
    table = cp.open("s3://bucket/rows.arrow").select(rows.schema.names[pick])
    objects.log()
    cp.convert(table, tmp_path / "out.arrow")
    assert len(objects.log()) <= 4 * 3  # record batches; by columns and runs of a megabyte there were 90
    with pa.ipc.open_file(tmp_path / "out.arrow") as file:
        assert file.read_all().combine_chunks().to_pylist() == rows.select(table.schema.names).to_pylist()


def test_record_batches_that_memory_does_not_hold_are_read_by_runs(objects, tmp_path):
    rows, path = columns().append_column("row", pa.array(range(ROWS))), objects.root / "bucket" / "rows.arrow"
    with pa.ipc.new_file(path, rows.schema) as file:
        file.write_table(rows)  # 5 MB
    reshuffle("s3://bucket/rows.arrow", tmp_path / "out.arrow", memory=MEMORY)
    with pa.ipc.open_file(tmp_path / "out.arrow") as file:
        assert file.read_all().sort_by("row").equals(rows)
