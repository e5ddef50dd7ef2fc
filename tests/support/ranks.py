"""Starts the ranks of a world as torchrun does."""

import importlib
import json
import os
import subprocess
import sys

from patience import PATIENCE


def run_ranks(script, folder, *args, world=2):
    """Run a script in each of ``world`` processes; return the JSON that each wrote to its first argument."""
    store = importlib.import_module("torch.distributed").TCPStore("127.0.0.1", 0, is_master=True)
    everywhere = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the parent has the store
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "OMP_NUM_THREADS": "1",
    }
    outs = [folder / f"{rank}.json" for rank in range(world)]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(out), *map(str, args)],
            env=os.environ | everywhere | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, out in enumerate(outs)
    ]
    try:
        errors = [rank.communicate(timeout=PATIENCE)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
        del store
    assert [rank.returncode for rank in ranks] == [0] * world, errors
    return [json.loads(out.read_text()) for out in outs]


def check_epoch(ranks, rows):
    """Check that ranks took equal numbers of batches and all rows, fewer rows than ranks twice."""
    assert len({len(batches) for batches in ranks}) == 1
    visited = [row for batches in ranks for batch in batches for row in batch]
    assert set(visited) == set(range(rows))
    assert len(visited) < rows + len(ranks)
