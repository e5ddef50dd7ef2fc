"""Epochs that ranks leave, join and die in: each row of a finished epoch is done exactly once."""

import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch.distributed as dist
from elastic import Crowd, check_epochs
from patience import PATIENCE, wait_for

from corgipile.errors import BadArgument, PeerFailed, StateMismatch
from corgipile.torch import CorgiPileDataset, ElasticLoader

ROWS = 2000
TABLE = {"x": np.arange(ROWS), "label": np.arange(ROWS) // 200}


@pytest.mark.parametrize("order", ["riffle", "auto", "full"])
def test_kills_leaves_and_joins_lose_no_row(order):
    crowd = Crowd(TABLE, ROWS, events=20, epochs=2, worlds=10, batch_size=16, order=order, memory="64KB")
    happened = crowd.run()
    epochs, worlds = crowd.check()
    assert epochs >= 2
    assert sum(happened.values()) >= 20
    assert worlds > 10


def alone(**settings):
    return ElasticLoader(TABLE, dist.HashStore(), **{"batch_size": 64, "seed": 1, "timeout": 0.2, **settings})


def test_epochs_follow_one_another():
    with alone() as loader:
        epochs = [np.concatenate([batch["x"] for batch in loader]) for _ in range(2)]
    assert [sorted(epoch.tolist()) for epoch in epochs] == [list(range(ROWS))] * 2
    assert not np.array_equal(*epochs)


def test_a_batch_given_back_comes_again():
    with alone() as loader:
        seen = []
        for batch in loader:
            if len(seen) == 3 and loader.generation == 0:
                loader.give_back()
                continue
            seen.append(batch["x"].tolist())
    assert sorted(sum(seen, [])) == list(range(ROWS))  # noqa: RUF017


def test_a_state_goes_on_elsewhere():
    with alone() as loader:
        for _, batch in zip(range(5), loader, strict=False):
            last = batch
        state = json.loads(json.dumps(loader.state_dict()))
    dataset = CorgiPileDataset(TABLE, batch_size=32, seed=1, rank=0, world=1)
    dataset.load_state_dict(state)
    rest = [row for batch in dataset for row in batch["x"].tolist()]
    assert len(rest) == len(set(rest)) == ROWS - 4 * 64  # the fifth batch is not done
    assert set(last["x"].tolist()) <= set(rest)
    with alone(state=state) as loader:
        assert sorted(row for batch in loader for row in batch["x"].tolist()) == sorted(rest)
    with pytest.raises(StateMismatch, match="seed"):
        alone(state=state, seed=2)


def test_a_state_of_a_dataset_goes_on_here():
    dataset = CorgiPileDataset(TABLE, batch_size=32, seed=1, rank=0, world=3)
    first = [batch["x"].tolist() for _, batch in zip(range(4), dataset, strict=False)]
    others = [CorgiPileDataset(TABLE, batch_size=32, seed=1, rank=rank, world=3) for rank in (1, 2)]
    first += [batch["x"].tolist() for one in others for _, batch in zip(range(4), one, strict=False)]
    with alone(state=dataset.state_dict()) as loader:
        rest = [row for batch in loader for row in batch["x"].tolist()]
    assert sorted([*rest, *(row for batch in first for row in batch)]) == list(range(ROWS))


def test_who_was_taken_for_dead_is_told():
    store = dist.HashStore()
    first = ElasticLoader(TABLE, store, batch_size=64, timeout=0.1)
    batches = iter(first)
    next(batches)
    first.die()  # it only seems so
    second = ElasticLoader(TABLE, store, batch_size=64, timeout=0.1)
    assert sum(len(batch["x"]) for batch in second) == ROWS
    with pytest.raises(PeerFailed, match="declared dead"):
        next(batches)
    second.leave()


def test_what_is_wrong_is_said():
    with pytest.raises(BadArgument, match="sets rank itself"):
        alone(rank=1)
    with pytest.raises(BadArgument, match="visit each row once"):
        alone(order="reservoir")


MEMBER = """
import datetime, json, os, signal, sys, time
import numpy as np, torch.distributed as dist
from corgipile.errors import PeerFailed
from corgipile.torch import ElasticLoader
port, members, out, last = int(sys.argv[1]), int(sys.argv[2]), open(sys.argv[3], "a"), int(sys.argv[4])
store = dist.TCPStore("127.0.0.1", port, timeout=datetime.timedelta(seconds=300))
def work(members, batches=0):
    loader = ElasticLoader({"x": np.arange(2000)}, store, members=members, batch_size=16, seed=1, timeout=2.0)
    while loader.epoch < 2:
        epoch = loader.epoch
        for batch in loader:
            print(json.dumps([loader.generation, loader.member, epoch, batch["x"].tolist()]), file=out, flush=True)
            batches += 1
            if loader.generation >= last and batches > 5:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.005)
    loader.leave()

while True:
    try:
        work(members)
        break
    except PeerFailed as error:  # on a busy machine
        if "declared dead" not in str(error):
            raise
        members = 1
"""
NEVER = 99  # is a member killed


def test_killed_processes_lose_no_row(tmp_path):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)

    def start(number, members, last=NEVER):
        log = tmp_path / f"{number}.log"
        command = [sys.executable, "-c", MEMBER, str(store.port), str(members), str(log), str(last)]
        return subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True)

    ranks = [start(number, 3, last) for number, last in enumerate((0, 1, NEVER))]
    for number in (0, 1):
        ranks[number].wait(PATIENCE)
        ranks.append(start(3 + number, 1))
    ends = [rank.communicate(timeout=PATIENCE)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [-9, -9, 0, 0, 0], ends
    logs = {}
    for log in tmp_path.glob("*.log"):
        for line in log.read_text().splitlines():
            generation, member, epoch, rows = json.loads(line)
            logs.setdefault((generation, member), []).append((epoch, rows))
    epochs, worlds = check_epochs(store, logs, ROWS)
    assert epochs == 2
    assert worlds >= 4


def test_a_store_that_went_is_an_error():
    servers = [dist.TCPStore("127.0.0.1", 0, is_master=True)]
    words = [str(servers[0].port), "1", os.devnull, str(NEVER)]
    code = MEMBER.replace("loader.epoch < 2", "True")
    rank = subprocess.Popen([sys.executable, "-c", code, *words], stderr=subprocess.PIPE, text=True)
    wait_for(lambda: servers[0].check(["world/0"]))
    servers.clear()
    error = rank.communicate(timeout=PATIENCE)[1]
    assert "cannot reach the store" in error
    assert rank.returncode == 1


def test_a_first_world_waits_for_its_members():
    store, worlds = dist.HashStore(), []

    def member():
        with ElasticLoader(TABLE, store, members=2, batch_size=64, timeout=PATIENCE) as loader:
            worlds.append((loader.world, sum(len(batch["x"]) for batch in loader)))

    threads = [threading.Thread(target=member) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert [world for world, _ in worlds] == [2, 2]
    assert sum(rows for _, rows in worlds) == ROWS
