"""A training under torchrun --nnodes=2:3 that loses a node: the others go on with the batches that were to come."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist

from corgipile.torch import CorgiPileDataset

ROWS, BATCH = 1200, 24
KEPT = 8  # steps of three nodes
TRAIN = """
import json, os, sys, time
from datetime import timedelta
from pathlib import Path
import numpy as np, torch, torch.distributed as dist
from torch.utils.data import DataLoader
from corgipile.torch import CorgiPileDataset

folder, kept = Path(sys.argv[1]), int(sys.argv[3])
dist.init_process_group("gloo", timeout=timedelta(seconds=600))
world = dist.get_world_size()

def lost():  # as the first node sees it; fails, as torchrun's script may, where a node has gone
    seen = [(folder / "lost").exists()]
    dist.broadcast_object_list(seen)
    time.sleep(0.05)
    return seen[0]

while world != 3 - lost():
    pass  # torchrun starts this again when a node joins
dataset = CorgiPileDataset({"x": np.arange(1200)}, batch_size=24, global_batches="fixed", memory="64KB", seed=1)
saved = folder / "state.json"
steps = []
if saved.exists():
    state, steps = json.loads(saved.read_text())
    dataset.load_state_dict(state)
loader = DataLoader(dataset, batch_size=None, num_workers=int(sys.argv[2]))
for done, batch in enumerate(loader, 1):
    while world == 3 and len(steps) == kept:
        lost()
    rows = [None] * world
    dist.all_gather_object(rows, batch["x"].tolist())
    steps.append(rows)
    if dist.get_rank() == 0:  # one file, replaced as a whole: a kill between the two would repeat a step
        whole = folder / "new.json"
        whole.write_text(json.dumps([dataset.state_dict(batches=done), steps]))
        os.replace(whole, saved)
dist.barrier()
"""


def agent(script, folder, port, number):
    # Seconds without a sign of life: a node on a busy machine is not dead.
    conf = "is_host=false,last_call_timeout=3,keep_alive_interval=2,keep_alive_max_attempt=7"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes=2:3", "--nproc-per-node=1", "--max-restarts=99",
        "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=one", "--monitor-interval=0.1",
        f"--rdzv-conf={conf}", "--local-addr=127.0.0.1", str(script), str(folder), "1", str(KEPT),
    ]  # fmt: skip
    # The store that agents share is made once: who joins a later round waits in vain for its address.
    alone = {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with open(folder / f"{number}.err", "w") as said:  # noqa: PTH123
        return subprocess.Popen(command, env=os.environ | alone, stderr=said)


def steps(folder):
    saved = folder / "state.json"
    return json.loads(saved.read_text())[1] if saved.exists() else []


def wait_for_steps(count, folder, agents):
    until = time.monotonic() + 900
    while True:
        said = [(one.poll(), (folder / f"{number}.err").read_text()) for number, one in enumerate(agents)]
        if len(steps(folder)) >= count:
            return
        assert all(ended is None for ended, _ in said), said
        assert time.monotonic() < until, said
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="a node's processes are found in /proc")
def test_a_node_dies_and_the_others_go_on(tmp_path):
    (script := tmp_path / "train.py").write_text(TRAIN)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)  # on no node, so that any of them may die
    agents = [agent(script, tmp_path, store.port, number) for number in range(3)]
    try:
        wait_for_steps(KEPT, tmp_path, agents)
        end(agents[-1])
        (tmp_path / "lost").touch()
        wait_for_steps(ROWS // BATCH, tmp_path, agents[:-1])  # how the agents end is torch's own matter
    finally:
        for one in agents:
            end(one)
    dataset = CorgiPileDataset(
        {"x": np.arange(ROWS)}, batch_size=BATCH, global_batches="fixed", memory="64KB", seed=1, rank=0, world=1
    )
    alone = [sorted(batch["x"].tolist()) for batch in dataset]
    ran = steps(tmp_path)
    assert [sorted(row for rows in step for row in rows) for step in ran] == alone
    assert [len(step) for step in ran] == [3] * KEPT + [2] * (ROWS // BATCH - KEPT)


def end(process):
    """Kill a node: its agent and all that it started."""
    if process.poll() is None:
        for pid in [process.pid, *below(process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def below(pid):
    found = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in told(task / "children").split()]
    return [*found, *(one for child in found for one in below(child))]


def told(path):
    try:
        return path.read_text()
    except OSError:
        return ""
