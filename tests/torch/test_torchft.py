"""Replica groups of torchft over an ElasticLoader: one is killed, the others have every row that is left."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch.distributed as dist
from elastic import check_epochs

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torchft") is None, reason="torchft is not installed")
ROWS = 1500
LIGHTHOUSE = """
import sys
from torchft._torchft import LighthouseServer
server = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=500)
print(server.address(), flush=True)
sys.stdin.read()
"""
REPLICA = """
import datetime, json, os, sys, time
import numpy as np, torch, torch.distributed as dist
from torchft import Manager, ProcessGroupGloo
from corgipile.torch import ElasticLoader

port, name, out = int(sys.argv[1]), sys.argv[2], open(sys.argv[3], "a")
seconds = datetime.timedelta(seconds=10)
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
weights = {"w": torch.zeros(1)}
manager = Manager(
    pg=ProcessGroupGloo(timeout=seconds), min_replica_size=1, load_state_dict=weights.update,
    state_dict=lambda: weights, rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port,
    replica_id=name, timeout=seconds, quorum_timeout=seconds, use_async_quorum=False, init_sync=False,
    hostname="127.0.0.1",
)
shared = dist.TCPStore("127.0.0.1", port, timeout=datetime.timedelta(seconds=30))
loader = ElasticLoader({"x": np.arange(1500)}, shared, members=3, batch_size=16, seed=1, timeout=2.0)
refused = 0
while loader.epoch < 1:
    for batch in loader:
        manager.start_quorum()
        gradient = batch["x"].sum().reshape(1).float()
        manager.allreduce(gradient).wait()
        if not manager.should_commit():
            loader.give_back()
            refused += 1
            continue
        print(json.dumps([loader.generation, loader.member, 0, batch["x"].tolist()]), file=out, flush=True)
        time.sleep(0.02)
loader.leave()
manager.shutdown(wait=False)
os._exit(0)
"""


def test_a_replica_dies_and_no_row_is_lost(tmp_path):
    says = open(tmp_path / "says", "w+")  # noqa: SIM115, PTH123  # a pipe would fill
    lighthouse = subprocess.Popen(
        [sys.executable, "-c", LIGHTHOUSE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=says, text=True
    )
    shared = dist.TCPStore("127.0.0.1", 0, is_master=True)
    environment = os.environ | {"TORCHFT_LIGHTHOUSE": lighthouse.stdout.readline().strip(), "OMP_NUM_THREADS": "1"}
    logs = [tmp_path / f"{number}.log" for number in range(3)]
    replicas = [
        subprocess.Popen(
            [sys.executable, "-c", REPLICA, str(shared.port), f"replica-{number}", str(log)],
            env=environment, stderr=says,
        )
        for number, log in enumerate(logs)
    ]  # fmt: skip
    try:
        until = time.monotonic() + 90
        while not all(log.exists() and log.read_text().count("\n") > 4 for log in logs):
            assert time.monotonic() < until
            assert all(one.poll() is None for one in replicas), (tmp_path / "says").read_text()[-4000:]
            time.sleep(0.02)
        replicas[1].send_signal(signal.SIGKILL)
        ends = [one.wait(timeout=90) for one in replicas]
        assert ends == [0, -9, 0], (tmp_path / "says").read_text()[-4000:]
    finally:
        for one in (*replicas, lighthouse):
            one.kill()
        lighthouse.communicate()
        says.close()
    had = {}
    for log in logs:
        for line in log.read_text().splitlines():
            generation, member, epoch, rows = json.loads(line)
            had.setdefault((generation, member), []).append((epoch, rows))
    epochs, worlds = check_epochs(shared, had, ROWS)
    assert (epochs, worlds > 1) == (1, True)
