"""Batches on their way to a CUDA device: pinned, copied without waiting, whole. Skipped where there is none."""

import numpy as np
import pyarrow as pa
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device here: pinned copies and overlap are not checked", allow_module_level=True)

from torch.utils.data import DataLoader  # noqa: E402

from corgipile.torch import CorgiPileDataset, DeviceLoader  # noqa: E402

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
    plain = [batch["label"].tolist() for batch in CorgiPileDataset(path, memory="4MB", batch_size=BATCH)]
    assert [label.tolist() for label, _ in seen] == plain
    assert sorted(row for batch in plain for row in batch) == list(range(ROWS))


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
