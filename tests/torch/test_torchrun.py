"""A training under torchrun --nnodes=1:4 that loses a node: the others go on with the batches that were to come."""

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
TRAIN = """
import json, os, sys, time
from datetime import timedelta
from pathlib import Path
import numpy as np, torch, torch.distributed as dist
from torch.utils.data import DataLoader
from corgipile.torch import CorgiPileDataset

folder = Path(sys.argv[1])
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
while dist.get_world_size() != int((folder / "nodes").read_text()):
    time.sleep(0.05)  # torchrun starts this again when a node joins
dataset = CorgiPileDataset({"x": np.arange(1200)}, batch_size=24, global_batches="fixed", memory="64KB", seed=1)
saved = folder / "state.json"
steps = []
if saved.exists():
    state, steps = json.loads(saved.read_text())
    dataset.load_state_dict(state)
loader = DataLoader(dataset, batch_size=None, num_workers=int(sys.argv[2]))
for done, batch in enumerate(loader, 1):
    rows = [None] * dist.get_world_size()
    dist.all_gather_object(rows, batch["x"].tolist())
    if dist.get_rank() == 0:  # one file, replaced as a whole: a kill between the two would repeat a step
        steps.append(rows)
        whole = folder / "new.json"
        whole.write_text(json.dumps([dataset.state_dict(batches=done), steps]))
        os.replace(whole, saved)
    time.sleep(0.05)
dist.barrier()
"""


def agent(script, folder, port, number):
    # Seconds without a sign of life: a node on a busy machine is not dead.
    conf = "is_host=false,last_call_timeout=1,keep_alive_interval=2,keep_alive_max_attempt=6"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes=1:4", "--nproc-per-node=1", "--max-restarts=5",
        "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=one", "--monitor-interval=0.1",
        f"--rdzv-conf={conf}", "--local-addr=127.0.0.1", str(script), str(folder), "1",
    ]  # fmt: skip
    with open(folder / f"{number}.err", "w") as said:  # noqa: PTH123
        return subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=said)


def steps(folder):
    saved = folder / "state.json"
    return json.loads(saved.read_text())[1] if saved.exists() else []


def wait_for_steps(count, folder, agents):
    until = time.monotonic() + 200
    while len(steps(folder)) < count:
        said = [(one.poll(), (folder / f"{number}.err").read_text()) for number, one in enumerate(agents)]
        assert not any(ended for ended, _ in said), said
        assert time.monotonic() < until, said
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="a node's processes are found in /proc")
def test_a_node_dies_and_the_others_go_on(tmp_path):
    (script := tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "nodes").write_text("3")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)  # on no node, so that any of them may die
    agents = [agent(script, tmp_path, store.port, number) for number in range(3)]
    try:
        wait_for_steps(8, tmp_path, agents)
        (tmp_path / "nodes").write_text("2")
        end(agents[-1])
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
    assert [len(ran[0]), len(ran[-1])] == [3, 2]


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
