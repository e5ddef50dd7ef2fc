"""Ranks of a process group: equal numbers of batches, together every row, whoever starts them."""

import json
import subprocess
import sys

import pytest
import torch.distributed
from patience import PATIENCE

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed")

RANK = """
import json, sys
import torch.distributed as dist
from torch.utils.data import DataLoader
from corgipile.torch import CorgiPileDataset

def main():
    path, rank, world, port, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
    dataset = CorgiPileDataset(path, batch_size=64, columns=["row"], memory="4KB")
    dist.init_process_group("gloo", init_method=f"file://{port}", rank=rank, world_size=world)
    # A spawned worker knows the group through its parent only.
    context = {"multiprocessing_context": "spawn"} if rank else {}
    loader = DataLoader(dataset, batch_size=None, num_workers=1, persistent_workers=True, **context)
    epochs = []
    for _ in range(2):
        epochs.append([])
        for batch in loader:
            total = batch["row"].sum()
            dist.all_reduce(total)  # hangs if one rank has a batch more
            epochs[-1].append(batch["row"].tolist())
    with open(out, "w") as file:
        json.dump(epochs, file)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""


def test_two_ranks_of_a_group_share_each_epoch(path, tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    outs = [tmp_path / f"{rank}.json" for rank in range(2)]
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), path, str(rank), "2", str(tmp_path / "meet"), str(out)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, out in enumerate(outs)
    ]
    errors = [rank.communicate(timeout=PATIENCE)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    seen = [json.loads(out.read_text()) for out in outs]
    for epoch in range(2):
        assert len(seen[0][epoch]) == len(seen[1][epoch]) == 8
        assert sorted(row for rank in seen for batch in rank[epoch] for row in batch) == list(range(1000))
    assert seen[0][0] != seen[0][1]


STARTED = """
import json, os, sys
import torch.multiprocessing as mp
from torch.utils.data import DataLoader
from corgipile.torch import CorgiPileDataset

def rank(rank, datasets, out):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    found = []
    for workers, dataset in enumerate(datasets):
        if mp.get_start_method() == "fork":
            dataset.set_epoch(0)
        loader = DataLoader(dataset, batch_size=None, num_workers=workers)
        rows = [row for batch in loader for row in batch["row"].tolist()]
        found.append([dataset.epoch, rows])
    with open(f"{out}{rank}", "w") as file:
        json.dump(found, file)

if __name__ == "__main__":
    datasets = [CorgiPileDataset(sys.argv[1], batch_size=64, columns=["row"], memory="4KB") for _ in range(2)]
    mp.set_start_method(sys.argv[2])
    for number in range(2):  # one after the other: they must not count each other's epochs
        process = mp.get_context().Process(target=rank, args=(number, datasets, sys.argv[3]))
        process.start()
        process.join()
"""


@pytest.mark.parametrize("how", ["spawn", "fork"])
def test_ranks_that_got_the_dataset_count_their_own_epochs(path, tmp_path, how):
    """Without a worker and with one."""
    script = tmp_path / "start.py"
    script.write_text(STARTED)
    subprocess.run([sys.executable, str(script), path, how, str(tmp_path / "out")], check=True, timeout=PATIENCE)
    ranks = [json.loads((tmp_path / f"out{rank}").read_text()) for rank in range(2)]
    for (first, rows), (second, others) in zip(*ranks, strict=True):
        assert (first, second) == (0, 0)
        assert sorted(rows + others) == list(range(1000))
