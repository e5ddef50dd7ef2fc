"""Ranks that share a model by `fully_shard`: they learn what one process learns from the same global batches."""

import pytest
import torch
from ranks import run_ranks
from torch import nn

from corgipile.torch import CorgiPileDataset

pytest.importorskip("torch.distributed.fsdp", reason="this PyTorch has no fully_shard")
BATCH = 40
TRAIN = """
import json, sys
import torch, torch.distributed as dist
from pathlib import Path
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader
from corgipile.torch import CorgiPileDataset

out, path, batch = sys.argv[1], sys.argv[2], int(sys.argv[3])
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
fully_shard(model[0])
fully_shard(model)
assert all(isinstance(weights, DTensor) for weights in model.parameters())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
dataset = CorgiPileDataset(path, batch_size=batch, seed=3, global_batches="fixed", memory="64KB", drop_last=True)
rows = []
for epoch in range(2):
    dataset.set_epoch(epoch)
    for one in DataLoader(dataset, batch_size=None):
        rows.append(one["row"].tolist())
        loss = nn.functional.binary_cross_entropy_with_logits(model(one["features"])[:, 0], one["label"].float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
weights = [weights.full_tensor().tolist() for weights in model.parameters()]
Path(out).write_text(json.dumps([rows, weights]))
dist.destroy_process_group()
"""


def test_a_sharded_model_learns_what_a_whole_one_does(tmp_path, path):
    ranks = run_ranks(TRAIN, tmp_path, path, BATCH)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    alone = CorgiPileDataset(
        path, batch_size=BATCH, seed=3, global_batches="fixed", memory="64KB", drop_last=True, rank=0, world=1
    )
    steps = 0
    for epoch in range(2):
        alone.set_epoch(epoch)
        for one in alone:
            parts = [rows[steps] for rows, _ in ranks]
            assert [len(part) for part in parts] == [BATCH // 2] * 2
            assert sorted(parts[0] + parts[1]) == sorted(one["row"].tolist())
            loss = nn.functional.binary_cross_entropy_with_logits(model(one["features"])[:, 0], one["label"].float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
    assert steps == len(ranks[0][0]) == 50
    for _, weights in ranks:
        for theirs, mine in zip(weights, model.parameters(), strict=True):
            torch.testing.assert_close(torch.tensor(theirs), mine.detach(), rtol=1e-4, atol=1e-6)
