"""The shuffle buffer on a device: the batches of a host's buffer of that size. Here the CPU is the device."""

import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

from corgipile.errors import BadArgument, BadValue, BudgetTooSmall
from corgipile.loader.in_place import LayoutReader
from corgipile.torch import CorgiPileDataset, DeviceLoader
from corgipile.torch.device_buffer import DeviceBuffer

ROWS, WIDTH, BATCH = 3000, 16, 64
ORDERS = ("auto", "riffle", "corgipile", "no_shuffle", "block_only", "full", "sliding_window", "reservoir")


def table():
    values = pa.array(np.repeat(np.arange(ROWS, dtype=np.float32), WIDTH))
    columns = {
        "x": pa.FixedSizeListArray.from_arrays(values, WIDTH),
        "label": pa.array(np.arange(ROWS) % 7, pa.int32()),
    }
    columns |= {"row": pa.array(range(ROWS), pa.uint16()), "flag": pa.array(np.arange(ROWS) % 2 == 0)}
    return pa.table(columns)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("device") / "rows.arrow"
    with pa.ipc.new_file(str(path), table().schema) as writer:
        writer.write_table(table(), max_chunksize=177)
    return path


def make(source, memory, **settings):
    return CorgiPileDataset(source, memory=memory, **{"batch_size": BATCH, "seed": 3, **settings})


def on_device(source, device_memory="128KB", staging="64KB", **settings):
    return DeviceLoader(make(source, staging, **settings), "cpu", device_memory=device_memory)


def assert_equal(batches, others):
    batches, others = list(batches), list(others)
    assert len(batches) == len(others)
    for batch, other in zip(batches, others, strict=True):
        pairs = zip(batch, other, strict=True) if isinstance(batch, tuple) else ((batch[n], other[n]) for n in other)
        assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("staging", ["20KB", "8MB"])
def test_batches_are_those_of_a_buffer_of_that_size(path, order, staging):
    assert_equal([*(loader := on_device(path, staging=staging, order=order)), *loader],
                 [*(data := make(path, "128KB", order=order)), *data])  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [
        {"rank": 1, "world": 3, "drop_last": True},
        {"rank": 1, "world": 4, "global_batches": "fixed"},
        {"skip": [5, (0, 3), 777]},
        {"features": "numeric", "label": "label", "as_tuple": True},
        {"features": ["x"], "label": "label", "columns": ["row"]},
        {"features": ["label", "flag"], "label": "row", "dtype": "float64"},
        {"columns": ["row"]},
        {"prefetch": 0},
    ],
    ids="-".join,
)
def test_batches_with_other_settings(path, settings):
    assert_equal(on_device(path, **settings), make(path, "128KB", **settings))


@pytest.mark.parametrize("got", [0, 1, 7, 46])
def test_a_state_goes_on_here_and_on_the_host(path, got):
    whole, first = list(make(path, "128KB")), on_device(path)
    batches = iter(first)
    came = [next(batches) for _ in range(got)]
    state = first.state_dict()
    batches.close()
    assert_equal(came, whole[:got])
    for later in (on_device(path), make(path, "128KB")):
        later.load_state_dict(state)
        assert_equal(later, whole[got:])
    other = on_device(path, "512KB")  # another order of the rows that are left
    other.load_state_dict(state)
    left = [row for batch in other for row in batch["row"].tolist()]
    assert sorted(left + [row for batch in came for row in batch["row"].tolist()]) == list(range(ROWS))


def test_encoded_rows_are_unpacked_to_a_spill_file(tmp_path):
    pq.write_table(table(), tmp_path / "rows.parquet")
    rows = [row for batch in on_device(tmp_path / "rows.parquet") for row in batch["row"].tolist()]
    assert sorted(rows) == list(range(ROWS))


def test_delays_of_both_sides(path, monkeypatch):
    scattered, fill, random = DeviceBuffer._scattered, LayoutReader.fill, np.random.default_rng(1)

    def late(self, piece, lane):
        time.sleep(random.choice([0, 0.003]))
        slots = scattered(self, piece, lane)
        for column in lane.rows.values():
            column[:] = 77  # whoever reads it again is wrong
        return slots

    def slow(self, step, *, urgent=True):
        time.sleep(random.choice([0, 0, 0.003]))
        fill(self, step, urgent=urgent)

    monkeypatch.setattr(DeviceBuffer, "_scattered", late)
    monkeypatch.setattr(LayoutReader, "fill", slow)  # not the kernel's, which reads for "riffle"
    for order in ("riffle", "full"):
        assert_equal(on_device(path, staging="20KB", order=order), make(path, "128KB", order=order))


def test_values_that_no_learner_takes(tmp_path):
    x, y = np.zeros(ROWS, np.float32), np.zeros(ROWS, np.float32)
    x[[5, 6]] = np.inf, -np.inf
    fine = on_device(pa.table({"x": x, "y": y}), features=["x"], label="y")
    assert sum(len(batch["label"]) for batch in fine) == ROWS
    x[900] = np.nan
    with pytest.raises(BadValue, match="feature column 'x' holds NaN"):
        list(on_device(pa.table({"x": x, "y": y}), features=["x"], label="y"))
    with pytest.raises(BadValue, match="label column holds NaN"):
        list(on_device(pa.table({"x": y, "y": x}), features=["x"], label="y"))
    with pytest.raises(BadValue, match="at most 2\\^63"):
        list(on_device(pa.table({"x": y, "y": pa.array([1 << 63] * ROWS, pa.uint64())}), features=["x"], label="y"))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"batch_size": None}, "batch_size="),
        ({"transform": lambda batch: batch}, "transform="),
        ({"columns": ["words"]}, "'words'"),
        ({"columns": ["wide"]}, "read one by one"),
    ],
)
def test_what_a_device_cannot_gather_is_an_error_where_it_is_asked_for(settings, why):
    wide = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(20 * 10_000, np.float32)), 10_000)
    source = pa.table({"words": ["a", "bc"] * 10, "wide": wide, "x": range(20)})
    with pytest.raises(BadArgument, match="device_memory must be 0 here: .*" + why):
        on_device(source, staging="8MB", **{"columns": ["x"], **settings})


def test_arguments_are_checked(path):
    with pytest.raises(BadArgument, match="got DataLoader: give the dataset itself"):
        DeviceLoader(DataLoader(make(path, "1MB"), batch_size=None), "cpu", device_memory="1MB")
    with pytest.raises(BudgetTooSmall, match=r"memory must hold 4 rows of 71 B .* give memory='316B'"):
        next(iter(on_device(path, staging=300)))
    with pytest.raises(BudgetTooSmall):
        on_device(path, device_memory=100)
    assert DeviceLoader(make(path, "1MB"), "cpu").device_memory == on_device(path, 0).device_memory == 0


def test_the_dataset_itself_still_reads_to_the_host(path):
    data = make(path, "64KB")
    loader = DeviceLoader(data, "cpu", device_memory="128KB")
    assert_equal(loader, make(path, "128KB"))
    data.set_epoch(0)
    assert_equal(data, make(path, "128KB"))
    assert data._kept.latest._source.__class__.__name__ == "BatchGatherer"
