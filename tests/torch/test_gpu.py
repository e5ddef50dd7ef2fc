"""Batches on their way to a CUDA device: pinned, copied without waiting, whole. Skipped where there is none."""

import gc

import numpy as np
import pyarrow as pa
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device here: pinned copies and overlap are not checked", allow_module_level=True)

from torch.utils.data import DataLoader, Dataset  # noqa: E402

from corgipile.errors import BudgetTooSmall  # noqa: E402
from corgipile.torch import CorgiPileDataset, DeviceLoader  # noqa: E402
from corgipile.torch.device_buffer import DeviceBuffer  # noqa: E402

ROWS, WIDTH, BATCH = 20_000, 256, 512


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("gpu") / "rows.arrow"
    values = pa.array(np.repeat(np.arange(ROWS, dtype=np.float32), WIDTH))
    table = pa.table(
        {"features": pa.FixedSizeListArray.from_arrays(values, WIDTH), "label": pa.array(range(ROWS), pa.int32())}
    )
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)
    return path


def loader(path, workers=0):
    data = CorgiPileDataset(path, memory="4MB", batch_size=BATCH)
    return DataLoader(data, batch_size=None, num_workers=workers, pin_memory=True)


@pytest.mark.parametrize("workers", [0, 2])
def test_pinned_copies_hold_every_row(path, workers):
    seen = []
    for batch in loader(path, workers):
        assert all(tensor.is_pinned() for tensor in batch.values())
        seen.append({name: tensor.to("cuda", non_blocking=True) for name, tensor in batch.items()})
    torch.cuda.synchronize()
    for batch in seen:
        assert (batch["features"] == batch["label"][:, None]).all()
    assert sorted(torch.cat([batch["label"] for batch in seen]).tolist()) == list(range(ROWS))


def test_copies_do_not_wait_for_the_device(path):
    batch = next(iter(loader(path)))
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    torch.cuda._sleep(10**9)  # cycles: about half a second of work before the copy
    copy = batch["features"].to("cuda", non_blocking=True)
    copied = torch.cuda.Event()
    copied.record()
    assert not copied.query()  # we are back, and the copy is still to come
    copied.synchronize()
    assert torch.equal(copy.cpu(), batch["features"])


def test_a_device_loader_brings_every_row_whole(path):
    data = CorgiPileDataset(path, memory="4MB", batch_size=BATCH)
    seen = []
    for batch in DeviceLoader(data):
        assert all(tensor.is_cuda for tensor in batch.values())
        torch.cuda._sleep(10**7)  # the loop's work is late, and so is what it reads
        seen.append((batch["label"] * 1, (batch["features"] == batch["label"][:, None]).all()))
    assert all(bool(whole) for _, whole in seen)
    plain = [batch["label"].tolist() for batch in CorgiPileDataset(path, memory="2GB", batch_size=BATCH)]
    assert [label.tolist() for label, _ in seen] == plain
    assert sorted(row for batch in plain for row in batch) == list(range(ROWS))


@pytest.mark.parametrize("order", ["auto", "corgipile", "full", "no_shuffle"])
def test_a_buffer_on_the_device_under_delays(path, order, monkeypatch):
    random, send, scattered = np.random.default_rng(2), DeviceBuffer._send, DeviceBuffer._scattered

    def sleep():
        torch.cuda._sleep(int(random.choice([0, 0, 3_000_000])))  # cycles, on the stream of the caller

    def late_send(self, piece, staging):
        with torch.cuda.stream(self._stream):
            sleep()
        send(self, piece, staging)

    def late_scattered(self, piece, staging):
        sleep()
        slots = scattered(self, piece, staging)
        for column in staging.rows.values():
            column[:] = 77  # whoever reads it again is wrong
        staging.scattered.record()
        return slots

    monkeypatch.setattr(DeviceBuffer, "_send", late_send)
    monkeypatch.setattr(DeviceBuffer, "_scattered", late_scattered)
    loader = DeviceLoader(CorgiPileDataset(path, memory="1MB", order=order, batch_size=BATCH), device_memory="6MB")
    plain = CorgiPileDataset(path, memory="6MB", order=order, batch_size=BATCH)
    for _ in range(2):
        seen = [(batch["label"], (batch["features"] == batch["label"][:, None]).all()) for batch in loader]
        assert all(bool(whole) for _, whole in seen)
        assert [label.tolist() for label, _ in seen] == [batch["label"].tolist() for batch in plain]


def test_a_buffer_on_the_device_follows_the_loop_to_other_streams(path):
    loader = DeviceLoader(CorgiPileDataset(path, memory="1MB", batch_size=BATCH), device_memory="6MB")
    streams, seen, batches = [torch.cuda.Stream() for _ in range(3)], [], iter(loader)
    for number in range(len(loader)):
        with torch.cuda.stream(streams[number % 3]):
            torch.cuda._sleep(10**7)  # a batch is gathered late, and one of its group is used on another stream at once
            batch = next(batches)
            seen.append((batch["label"].clone(), (batch["features"] == batch["label"][:, None]).all()))
            torch.cuda._sleep(10**6)
    torch.cuda.synchronize()
    assert all(bool(whole) for _, whole in seen)
    assert sorted(torch.cat([label for label, _ in seen]).tolist()) == list(range(ROWS))


def test_a_buffer_too_large_for_the_device_is_an_error(path):
    data = CorgiPileDataset(path, memory="1MB", batch_size=BATCH)
    loader = DeviceLoader(data, device_memory="6MB")
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1e-5)
    try:
        with pytest.raises(BudgetTooSmall, match="lower device_memory"):
            next(iter(loader))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


class Rows(Dataset):
    """A validation set with enough objects for the workers' garbage collector to run."""

    def __len__(self):
        return 2000

    def __getitem__(self, row):
        return [object() for _ in range(50)] and torch.zeros(4)


@pytest.mark.parametrize("device_memory", [0, None])
def test_workers_that_are_forked_later_live(path, device_memory):
    for batch in DeviceLoader(CorgiPileDataset(path, memory="4MB", batch_size=BATCH), device_memory=device_memory):
        batch["features"].sum()
    torch.cuda.synchronize()
    assert sum(map(len, DataLoader(Rows(), batch_size=64, num_workers=4))) == 2000


def test_a_device_loader_serves_a_stream_of_the_loop(path):
    loader, stream = DeviceLoader(CorgiPileDataset(path, memory="4MB", batch_size=BATCH), "cuda:0"), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        whole = [(batch["features"] == batch["label"][:, None]).all() for batch in loader]
    torch.cuda.synchronize()
    assert len(whole) == len(loader)
    assert all(map(bool, whole))


def test_a_device_that_is_full_is_the_loops_error(path):
    huge = [torch.zeros(1), torch.empty(1, dtype=torch.uint8).expand(1 << 45)]  # no such memory, on either side
    batches = iter(DeviceLoader(huge))
    next(batches)
    with pytest.raises(RuntimeError):
        next(batches)
