"""Tensors arrive as they were sent; memory is used again once they are let go, never before."""

import os

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader

from corgipile.loader.batches import tensors_of
from corgipile.torch import CorgiPileDataset, shared_memory
from corgipile.torch.shared_memory import MAX_PIECES, MAX_PIPED, PackedRows, Sender, _opened

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def sent(sender, tensor):
    make, parts = sender.reduce(tensor)
    return make(*parts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.uint8])
@pytest.mark.parametrize("shape", [(), (3, 5), (0, 4), (64, 1024)])
def test_what_arrives_is_what_was_sent(dtype, shape):
    tensor = (torch.randn(shape) > 0).to(dtype)
    got = sent(Sender(), tensor)
    assert got.dtype == dtype
    assert torch.equal(got, tensor)


def test_views_that_are_not_in_one_piece():
    tensor = torch.arange(100_000).reshape(100, 1000).t()
    assert torch.equal(sent(Sender(), tensor), tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64])
def test_rows_of_varying_length_arrive_as_they_were_sent_in_one_tensor(dtype):
    rows = [torch.ones(length, dtype=dtype) for length in (3, 0, 5000, 1)]
    make, parts = PackedRows(rows).__reduce__()
    assert [len(parts[0]), parts[1]] == [5004, [3, 0, 5000, 1]]
    assert [(row.dtype, row.tolist()) for row in make(*parts)] == [(dtype, row.tolist()) for row in rows]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        ["a", b"b", None],
        [torch.ones(2), 3],
        [torch.ones(2), torch.ones(2, dtype=torch.int32)],
        [torch.ones(2, 2), torch.ones(1, 2)],
        [torch.arange(6)[::2], torch.arange(3)],
        [torch.nn.Parameter(torch.ones(2))],
    ],
)
def test_other_lists_are_sent_as_they_are(rows):
    make, parts = PackedRows(rows).__reduce__()
    assert make is list
    assert all(got is row for got, row in zip(make(*parts), rows, strict=True))


def test_rows_of_bytes_arrive_as_they_were_sent():
    sender, rows = Sender(), [b"x" * MAX_PIPED, b"", b"yz"]
    for _ in range(3):
        make, parts = sender.join(rows)
        assert make(*parts) == rows
    assert len(sender._pieces) == 1
    unread = [sender.join([bytes([i]) * MAX_PIPED]) for i in range(MAX_PIECES + 2)]
    assert unread[MAX_PIECES:] == [None, None]
    assert [make(*parts) for make, parts in unread[:MAX_PIECES]] == [
        [bytes([i]) * MAX_PIPED] for i in range(MAX_PIECES)
    ]


@pytest.mark.parametrize("length", [10, 1000])
def test_bytes_go_through_workers(length):
    rows = [bytes([i % 256]) * (length + i) for i in range(700)]
    dataset = CorgiPileDataset(pa.table({"x": rows, "row": np.arange(700)}), batch_size=64)
    for _ in range(2):
        batches = list(DataLoader(dataset, batch_size=None, num_workers=2))
        assert all(type(batch["x"]) is list for batch in batches)
        got = {row: data for batch in batches for row, data in zip(batch["row"].tolist(), batch["x"], strict=True)}
        assert got == dict(enumerate(rows))


OTHERS = {
    "text": [f"é{i}" * (i % 40) for i in range(900)],
    "some": [None if i % 7 else b"ab" * (i % 400) for i in range(900)],
    "many": [[{"a": i, "b": str(i)}] * (i % 5) for i in range(900)],
    "gaps": [None if i % 11 == 0 else [i] * (i % 5) for i in range(900)],
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("rows", [3, 900])
def test_rows_that_are_no_numbers_arrive_as_they_were_sent(name, rows):
    column = pa.array(OTHERS[name]).slice(1, rows - 1)
    make, parts = Sender().write(pa.RecordBatch.from_arrays([column], names=["rows"]))
    assert str(make(*parts)) == str(tensors_of(column))


def test_no_object_of_such_rows_is_made_in_a_worker(monkeypatch):
    dataset = CorgiPileDataset(pa.table(OTHERS), batch_size=300, memory="4MB", order="no_shuffle")
    told = list(map(str, dataset))
    for name in ("batches.tensors_of", "varlen.Varlen.objects"):
        monkeypatch.setattr(f"corgipile.loader.{name}", None)
    assert list(map(str, DataLoader(dataset, batch_size=None, num_workers=1))) == told


def test_memory_is_used_again_when_nobody_looks():
    sender = Sender()
    for i in range(5):
        got = sent(sender, torch.full((MAX_PIPED,), float(i)))
        part = got[7:]
        del got
        assert (part == i).all()
        del part
    assert len(sender._pieces) == 1


def test_held_tensors_stay_as_they_are():
    sender = Sender()
    held = [sent(sender, torch.full((MAX_PIPED,), float(i))) for i in range(MAX_PIECES + 5)]
    assert [float(tensor.sum()) / MAX_PIPED for tensor in held] == [float(i) for i in range(MAX_PIECES + 5)]
    assert len(sender._pieces) == MAX_PIECES


def test_memory_of_many_sizes_is_bounded(monkeypatch):
    spare, sender = 4 << 20, Sender()
    monkeypatch.setattr(shared_memory, "MAX_IDLE", spare)
    for i in range(100):
        tensor = torch.full((6000 + 2500 * i,), float(i))
        assert torch.equal(sent(sender, tensor), tensor)
    assert sum(len(piece) for _, piece in sender._pieces.values()) <= spare + 1.25 * tensor.nbytes
    made = sender._created
    for i in range(50):
        sent(sender, torch.zeros(200_000 + 1000 * (i * 17 % 50)))
    assert sender._created == made
    held = [sent(sender, torch.zeros(spare // 64)) for _ in range(50)]
    assert sum(len(piece) for _, piece in sender._pieces.values()) > 3 * spare
    del held
    sent(sender, torch.zeros(MAX_PIPED))
    assert sum(len(piece) for _, piece in sender._pieces.values()) <= spare + 5 * MAX_PIPED
    assert {number for process, number in _opened if process == os.getpid()} >= set(sender._pieces)
    assert sum(len(_opened[os.getpid(), number]) for number in sender._pieces) <= spare + 5 * MAX_PIPED


def test_the_longest_idle_makes_room():
    sender = Sender()
    held = [sent(sender, torch.full((MAX_PIPED,), float(i))) for i in range(MAX_PIECES)]
    del held[3]
    got = sent(sender, torch.zeros(4 * MAX_PIPED))
    assert len(sender._pieces) == MAX_PIECES
    assert not got.any()
    assert float(held[3][0]) == 4


def test_a_fork_keeps_what_it_sees():
    sender = Sender()
    seen = sent(sender, torch.full((MAX_PIPED,), 1.0))
    begin, go = os.pipe()
    child = os.fork()
    if not child:
        os.read(begin, 1)
        os._exit(0 if (seen == 1).all() else 3)
    del seen
    later = [sent(sender, torch.full((MAX_PIPED,), 2.0)) for _ in range(3)]
    os.write(go, b"!")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all((tensor == 2).all() for tensor in later)
    assert len(sender._pieces) == 3
    os.close(begin)
    os.close(go)


def varying(batch):
    return torch.zeros(100_000 + 2000 * int(batch["x"][0]))


def test_memory_of_dead_workers_is_let_go():
    dataset = CorgiPileDataset(pa.table({"x": np.arange(500)}), batch_size=10, transform=varying)
    assert [rows for rows in dataset if rows.any()] == []
    for batch in DataLoader(dataset, batch_size=None, num_workers=1):
        assert not batch.any()
        ours = {process for process, _ in _opened} - {os.getpid()}
        assert len(ours) == 1
    del batch
    assert not {process for process, _ in _opened} & ours


def wide(batch):
    return batch["x"].repeat(1, 64), batch["x"][:, 0]


@pytest.mark.parametrize("keep", [False, True])
def test_through_workers(keep):
    x = pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(np.arange(2000, dtype=np.float32), 8)), 8)
    dataset = CorgiPileDataset(pa.table({"x": x}), batch_size=16, transform=wide)
    loader = DataLoader(dataset, batch_size=None, num_workers=2)
    for _ in range(2):
        seen, held = [], []
        for rows, first in loader:
            assert rows.nbytes > MAX_PIPED
            assert (rows == first[:, None]).all()
            seen += first.tolist()
            held += [(rows, first)] if keep else []
        assert sorted(seen) == list(range(2000))
        assert all((rows == first[:, None]).all() for rows, first in held)
    assert len({process for process, _ in _opened} - {os.getpid()}) == 2
