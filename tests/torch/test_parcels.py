"""Tensors arrive as they were sent; memory is used again once they are let go, never before."""

import os

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader

from corgipile.torch import CorgiPileDataset
from corgipile.torch.parcels import KEPT, SMALL, Sender, _opened

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


def test_memory_is_used_again_when_nobody_looks():
    sender = Sender()
    for i in range(5):
        got = sent(sender, torch.full((SMALL,), float(i)))
        part = got[7:]
        del got
        assert (part == i).all()
        del part
    assert len(sender._pieces) == 1


def test_held_tensors_stay_as_they_are():
    sender = Sender()
    held = [sent(sender, torch.full((SMALL,), float(i))) for i in range(KEPT + 5)]
    assert [float(tensor.sum()) / SMALL for tensor in held] == [float(i) for i in range(KEPT + 5)]
    assert len(sender._pieces) == KEPT


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
            assert rows.nbytes > SMALL
            assert (rows == first[:, None]).all()
            seen += first.tolist()
            held += [(rows, first)] if keep else []
        assert sorted(seen) == list(range(2000))
        assert all((rows == first[:, None]).all() for rows, first in held)
    assert len({process for process, _ in _opened} - {os.getpid()}) == 2
