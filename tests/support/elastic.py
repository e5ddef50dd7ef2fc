"""Members of live epochs that join, leave and die at random, as threads of one process, and a log of their work.

A member that a busy machine starves until others take it for dead joins again.
"""

import json
import random
import threading
import time

import torch.distributed as dist
from patience import PATIENCE

from corgipile.errors import PeerFailed
from corgipile.torch import ElasticLoader


class Crowd:
    """Runs two to eight members until the epochs, the random events and the worlds are complete."""

    def __init__(self, table, rows, *, events, epochs, worlds=0, timeout=0.2, pause=0.001, seed=0, **settings):
        self.store, self.table, self.rows, self.epochs = dist.HashStore(), table, rows, epochs
        self.worlds, self.newest = worlds, 0
        self.settings = {"timeout": timeout, "seed": 1, **settings}
        self.left, self.pause, self.random = events, pause, random.Random(seed)  # noqa: S311
        self.lock, self.logs, self.errors = threading.Lock(), {}, []
        self.happened = {"join": 0, "leave": 0, "kill": 0}

    @property
    def going(self):
        """Whether more events follow."""
        return self.left > 0 or self.newest < self.worlds

    def run(self, limit=PATIENCE):
        """Run; return the number of events by kind."""
        threads = [self.start(4) for _ in range(4)]
        until = time.monotonic() + limit
        while (alive := [thread for thread in threads if thread.is_alive()]) and time.monotonic() < until:
            time.sleep(0.01)
            if self.going and (len(alive) < 2 or (len(alive) < 8 and self.random.random() < 0.2)):
                self.happened["join"] += 1
                self.left -= 1
                threads.append(self.start(1))
        assert not alive, "members still wait"
        if self.errors:
            raise self.errors[0]
        return self.happened

    def start(self, members):
        thread = threading.Thread(target=self.guarded, args=(members, self.random.random()), daemon=True)
        thread.start()
        return thread

    def guarded(self, members, seed):
        chance = random.Random(seed)  # noqa: S311
        try:
            while True:
                try:
                    return self.member(members, chance)
                except PeerFailed as error:
                    if "taken for dead" not in str(error):
                        raise
                members = 1
        except BaseException as error:  # noqa: BLE001  # raised by run
            self.errors.append(error)

    def member(self, members, chance):
        loader = ElasticLoader(self.table, self.store, members=members, **self.settings)
        try:
            self.work(loader, chance)
        except PeerFailed:
            loader.die()
            raise

    def work(self, loader, chance):
        while loader.epoch < self.epochs or self.going:
            epoch = loader.epoch
            for batch in loader:
                with self.lock:
                    rows = batch["x"].tolist()
                    self.newest = max(self.newest, loader.generation)
                    self.logs.setdefault((loader.generation, loader.member), []).append((epoch, rows))
                time.sleep(self.pause)
                if self.going and chance.random() < 0.05:
                    what = chance.choice(["leave", "kill"])
                    self.happened[what] += 1
                    self.left -= 1
                    if what == "leave":
                        loader.leave()
                    else:
                        loader.die()
                    return
        loader.leave()

    def check(self):
        """See to it that each row of each finished epoch was done once; return the epochs and worlds there were."""
        return check_epochs(self.store, self.logs, self.rows)


def check_epochs(store, logs, rows):
    """Compare what members had, as far as the store counts it done, with each row once."""
    number, seen, last = 0, {}, 0
    while store.check([f"world/{number}"]):
        world = json.loads(store.get(f"world/{number}"))
        last = world["told"]["epoch"]
        for name in world["members"]:
            key = f"done/{number}/{name}"
            done = int(store.get(key).split()[0]) if store.check([key]) else 0
            had = logs.get((number, name), [])
            assert done <= len(had)
            for epoch, batch in had[:done]:
                assert epoch == last
                seen.setdefault(epoch, []).extend(batch)
        number += 1
    for epoch in range(last):
        assert sorted(seen[epoch]) == list(range(rows)), epoch
    return last, number
