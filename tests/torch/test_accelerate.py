"""Accelerate: a loader of its own that shares nothing, or a dataset that shares nothing; never both sharing."""

import pytest
from ranks import check_epoch, run_ranks

pytest.importorskip("accelerate")

SCRIPT = """
import json, sys
from accelerate import Accelerator
from accelerate.data_loader import DataLoaderShard, skip_first_batches
from torch.utils.data import DataLoader
from corgipile.errors import BadArgument
from corgipile.torch import CorgiPileDataset

accelerator = Accelerator(cpu=True)

def make(**settings):
    return CorgiPileDataset(sys.argv[2], columns=["row"], seed=1, **{"batch_size": 64, **settings})

def epoch(loader):
    return [batch["row"].tolist() for batch in loader]

def own(dataset):
    return DataLoaderShard(dataset, device=accelerator.device, batch_size=None)

def twice(batch_size):
    dataset = make() if batch_size is None else make(batch_size=None)
    try:
        return epoch(accelerator.prepare(DataLoader(dataset, batch_size=batch_size)))
    except BadArgument as error:
        return str(error)

found = {"twice": twice(None), "rows twice": twice(50)}
accelerator.dataloader_config.dispatch_batches = False
found["turns"] = twice(50)
accelerator.dataloader_config.dispatch_batches = None
once = make(rank=0, world=1)
dealt = accelerator.prepare(DataLoader(once, batch_size=None, num_workers=1, persistent_workers=True))
found["dealt"] = [epoch(dealt) for _ in range(2)]
dataset = make()
loader = own(dataset)
found["own"] = [epoch(loader) for _ in range(2)]
found["lengths"] = len(dealt), len(loader)
loader.set_epoch(0)
found["skipped"] = epoch(skip_first_batches(loader, 3))
assert len([batch for _, batch in zip(range(5), loader)]) == 5
again = make()
again.load_state_dict(dataset.state_dict(batches=5))
loader = own(again)
loader.set_epoch(again.epoch)
found["tail"] = epoch(loader)
found["next"] = epoch(loader)
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
accelerator.end_training()
"""


@pytest.mark.parametrize("world", [1, 2])
def test_every_row_is_visited_once(path, tmp_path, world):
    ranks = run_ranks(SCRIPT, tmp_path, path, world=world)
    for found in ranks:
        for how in ("twice", "rows twice", "turns"):
            if world == 1:
                check_epoch([found[how]], 1000)
            else:
                assert "Accelerate would share the epoch among ranks a second time" in found[how]
        batches = -(-1000 // (64 * world))
        assert found["lengths"] == [batches, batches]
        assert found["skipped"] == found["own"][0][3:]
        assert found["tail"] == found["own"][0][5:]
        assert found["next"] == found["own"][1]
    for how in ("dealt", "own"):
        for epoch in range(2):
            check_epoch([found[how][epoch] for found in ranks], 1000)
        assert ranks[0][how][0] != ranks[0][how][1]
