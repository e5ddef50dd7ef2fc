"""The shuffle buffer on a device: the batches of a host's buffer of that size. Here the CPU is the device."""

import pickle
import time
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

from corgipile.errors import BadArgument, BadValue, BudgetTooSmall, WriteFailed
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


def test_thousands_of_columns_are_one_tensor():
    columns = pa.table({f"x{at}": np.arange(40, dtype=np.float32) + at for at in range(9000)})
    batches = list(on_device(columns, "4MB", "2MB", features="numeric", columns=None, batch_size=16))
    rows = torch.cat([batch["features"] for batch in batches])
    assert (rows - rows[:, :1]).eq(torch.arange(9000.0)).all()
    assert sorted(rows[:, 0].tolist()) == list(range(40))


def test_encoded_rows_are_unpacked_to_a_spill_file(tmp_path):
    pq.write_table(table(), tmp_path / "rows.parquet")
    loader = pickle.loads(pickle.dumps(on_device(tmp_path / "rows.parquet")))  # noqa: S301  # its spill file is gone
    rows = [row for batch in loader for row in batch["row"].tolist()]
    assert sorted(rows) == list(range(ROWS))


@pytest.mark.parametrize("order", ["riffle", "corgipile", "no_shuffle", "auto"])
def test_states_of_encoded_rows_move_between_device_and_host(tmp_path, order):
    pq.write_table(table(), path := tmp_path / "rows.parquet", row_group_size=100)
    ways = [on_device, lambda path, **settings: make(path, "1MB", **settings)]  # the host decodes row groups
    for one, other in (ways, ways[::-1]):
        batches = iter(first := one(path, order=order))
        rows = [row for _ in range(20) for row in next(batches)["row"].tolist()]
        (later := other(path, order=order)).load_state_dict(first.state_dict())
        assert sorted(rows + [row for batch in later for row in batch["row"].tolist()]) == list(range(ROWS))


def test_delays_of_both_sides(path, monkeypatch):
    scattered, fill, random = DeviceBuffer._scattered, LayoutReader.fill, np.random.default_rng(1)

    def late(self, piece, staging):
        time.sleep(random.choice([0, 0.003]))
        slots = scattered(self, piece, staging)
        for column in staging.rows.values():
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


def test_the_dataset_itself_keeps_its_memory(path):
    data = make(path, "64KB")
    loader = DeviceLoader(data, "cpu", device_memory="128KB")
    assert_equal(loader, make(path, "128KB"))
    assert data._kept.latest.stats.resident_bytes > 128_000
    for epoch, batches in enumerate([data, DataLoader(data, batch_size=None, num_workers=1), loader, data], 1):
        plain = make(path, "128KB" if batches is loader else "64KB")
        plain.set_epoch(epoch)  # all count the same epochs
        assert_equal(batches, plain)
        assert data.stats.resident_bytes > 128_000 if batches is loader else data.stats.resident_bytes <= 64 << 10
    assert (data.memory, loader.dataset.memory) == (64 << 10, 128 << 10)
    assert DeviceLoader(data, "cpu", device_memory="256KB")._source.keywords["staging"] == 64 << 10


def test_batches_of_the_fitted_dataset_are_looked_up(tmp_path):
    pq.write_table(table(), tmp_path / "rows.parquet", row_group_size=100)
    loader = on_device(tmp_path / "rows.parquet")
    for _ in range(2):
        rows = [batch["row"].tolist() for batch in loader]
        assert rows == [loader.dataset.rows_of(step).tolist() for step in range(len(loader))]
    data = make(tmp_path / "rows.parquet", "64KB")
    batches = iter(DeviceLoader(data, "cpu", device_memory="128KB"))
    assert next(batches)["row"].tolist() == data.rows_of(0).tolist()  # of the iteration that runs
    assert data.state_dict(1)["segments"][0]["batches"] == [1]


def test_a_loader_that_is_gone_frees_its_buffer(path):
    data = make(path, "64KB")
    loader = DeviceLoader(data, "cpu", device_memory="128KB")
    batches = iter(loader)
    next(batches)
    source = data._kept.latest._source
    del loader
    assert source._slots  # the iteration goes on
    del batches
    assert not source._slots
    assert not source._ring
    assert data.stats.batches == 2  # one is ahead
    data.set_epoch(0)
    assert_equal(data, make(path, "64KB"))


def test_ranks_share_the_memory_of_global_batches(path):
    sizes = []
    for world in (1, 4):
        loader = on_device(path, global_batches="fixed", rank=0, world=world)
        next(iter(loader))
        sizes.append(loader.dataset.stats.resident_bytes)
    assert sizes[1] < sizes[0] / 3


def test_batches_of_inference_mode_can_be_trained_on(path):
    loader, weight = on_device(path), torch.zeros(WIDTH, requires_grad=True)
    with torch.inference_mode():
        list(loader)
        next(batches := iter(loader))
    for batch in [*batches, *loader]:
        (batch["x"] @ weight).sum().backward()


def test_copies_wait_on_devices_without_events(path, monkeypatch):
    copy_, waited = torch.Tensor.copy_, []

    def watched(self, source, non_blocking=False):
        waited.append(not non_blocking)
        return copy_(self, source, non_blocking)

    monkeypatch.setattr(torch.Tensor, "copy_", watched)
    list(on_device(path))
    assert waited
    assert all(waited)


def test_a_default_device_is_not_that_of_the_host(path):
    torch.set_default_device("meta")
    try:
        assert sum(len(batch["row"]) for batch in on_device(path)) == ROWS
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("error", [BadArgument("no"), WriteFailed(28, "no space")])
def test_the_buffer_stays_on_the_host_if_the_device_was_not_asked_for(path, monkeypatch, error):
    def fail(self, memory):
        raise error

    loader = DeviceLoader(make(path, "64KB"), "cpu")
    monkeypatch.setattr(loader, "device", torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=1 << 30))
    monkeypatch.setattr(CorgiPileDataset, "fitted_to", fail)
    assert loader._fit_device(None) == 0
    with pytest.raises(type(error)):
        loader._fit_device("1MB")


def test_a_dataset_with_its_own_iteration_stays_on_the_host(path):
    class Doubled(CorgiPileDataset):
        def __iter__(self):
            return ({"x": batch["x"] * 2} for batch in super().__iter__())

    with pytest.raises(BadArgument, match="device_memory must be 0 here: Doubled overrides __iter__"):
        DeviceLoader(Doubled(path, memory="64KB", batch_size=BATCH), "cpu", device_memory="128KB")
