"""Small loaders, each with the fault of a public bug, and right ones. Rows are numbers; sources have names."""

import numpy as np
from numpy.random import default_rng

from corgipile import Loader
from corgipile import open as open_table

ROWS, BATCH = 600, 20


class Right:
    """A full shuffle, split among ranks batch by batch; its state counts the rows of all ranks."""

    rows = ROWS

    def __init__(self, rank, world, seed):
        self.rank, self.world, self.seed = rank, world, seed
        self.epoch = self.done = 0

    def order(self):
        return default_rng([self.seed, self.epoch]).permutation(self.rows)

    def batch(self, rows):
        return {"id": rows}

    def __len__(self):
        return len(range(0, self.rows, BATCH * self.world))

    def __iter__(self):
        order, step = self.order(), BATCH * self.world
        for start in range(self.done, len(order), step):
            some = order[start : start + step]
            self.done = start + len(some)
            yield self.batch(np.array_split(some, self.world)[self.rank])
        self.epoch, self.done = self.epoch + 1, 0

    def state_dict(self):
        return {"epoch": self.epoch, "done": self.done}

    def load_state_dict(self, state):
        self.epoch, self.done = state["epoch"], state["done"]


class Blocks(Right):
    """Blocks of 4 rows in random order, 60 of which are mixed at a time."""

    def order(self):
        random = default_rng([self.seed, self.epoch])
        blocks = random.permutation(self.rows // 4).reshape(-1, 50)
        return np.concatenate([random.permutation((some[:, None] * 4 + np.arange(4)).ravel()) for some in blocks])


class Mixture(Right):
    """Seven rows of source a and three of source b in every ten."""

    a, b = np.arange(420), np.arange(420, ROWS)

    def order(self):
        random = default_rng([self.seed, self.epoch])
        a, b = random.permutation(self.a).reshape(-1, 7), random.permutation(self.b).reshape(-1, 3)
        return random.permuted(np.hstack([a, b]), axis=1).ravel()

    def batch(self, rows):
        return {"id": rows, "source": np.where(rows < 420, "a", "b")}


def pair(rank, world, seed):
    """Make a loader of a tensor-parallel group of two ranks."""
    return Right(rank // 2, world // 2, seed)


def riffle(rank, world, seed):
    """Make our own loader."""
    return Loader(TABLE, batch_size=BATCH, order="riffle", memory="4KB", rank=rank, world=world, seed=seed)


TABLE = open_table({"id": np.arange(ROWS)})


class LostBuffer(Right):
    """datasets#7901: the state has the place in the source, but not the buffered rows that it has read."""

    def __iter__(self):
        source, buffer = self.order()[self.rank :: self.world], []
        random = default_rng(self.seed)
        for start in range(self.done, len(source), BATCH):
            buffer.extend(source[start : start + BATCH])
            self.done = start + BATCH
            if len(buffer) > 4 * BATCH:
                random.shuffle(buffer)
                yield self.batch(np.array([buffer.pop() for _ in range(BATCH)]))
        for start in range(0, len(buffer), BATCH):
            yield self.batch(np.array(buffer[start : start + BATCH]))
        self.epoch, self.done = self.epoch + 1, 0


class FrozenState(Right):
    """datasets#8308: after the first resume the reported state no longer advances."""

    frozen = False

    def state_dict(self):
        return {"epoch": 0, "done": 0} if self.frozen else super().state_dict()

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.frozen = True


class SkippedChunk(Right):
    """datasets#7538: the place advances by a chunk as soon as it is read, before its rows are used."""

    def __iter__(self):
        order = self.order()[self.rank :: self.world]
        for start in range(self.done, len(order), 5 * BATCH):
            chunk = order[start : start + 5 * BATCH]
            self.done = start + len(chunk)
            for first in range(0, len(chunk), BATCH):
                yield self.batch(chunk[first : first + BATCH])
        self.epoch, self.done = self.epoch + 1, 0


class OneShard(Right):
    """datasets#8194: the buffer takes its rows from one shard at a time."""

    def order(self):
        random = default_rng([self.seed, self.epoch])
        shards = random.permutation(np.arange(self.rows).reshape(10, -1))
        return random.permuted(shards, axis=1).ravel()


class Resampled(Right):
    """webdataset#453: shards are drawn with replacement, so that some come again and others never."""

    def order(self):
        random = default_rng([self.seed, self.epoch])
        shards = np.arange(self.rows).reshape(60, -1)[random.integers(0, 60, 60)]
        return random.permutation(shards.ravel())


class FinishingEpoch(Right):
    """torchdata#1437: a state taken after an epoch is that of one that is about to end."""

    ended = False

    def __iter__(self):
        self.ended = False
        yield from super().__iter__()
        self.ended = True

    def state_dict(self):
        return {"epoch": self.epoch - 1, "done": self.rows} if self.ended else super().state_dict()


class OwnShard(Right):
    """Megatron-Bridge#5637: a rank's place in its own shard is restored although the shards are cut anew."""

    def __init__(self, rank, world, seed, state=None):
        super().__init__(rank, world, seed)
        if state is not None:
            self.epoch, self.done = state["epoch"], state["done"]

    def __iter__(self):
        shard = self.order()[self.rank :: self.world]
        for start in range(self.done, len(shard), BATCH):
            self.done = start + BATCH
            yield self.batch(shard[start : start + BATCH])
        self.epoch, self.done = self.epoch + 1, 0


class MissingRanks(OwnShard):
    """torchtitan#816: states have the names of their ranks, and those of ranks that are gone are ignored."""

    def __init__(self, rank, world, seed, states=None):
        named = {f"dp_rank_{number}": state for number, state in enumerate(states or ())}
        super().__init__(rank, world, seed, named[f"dp_rank_{rank}"] if named else None)


class FirstRank(OwnShard):
    """prime-rl#1035: the checkpoint keeps one state for all ranks, though packing lets them advance unequally."""

    def __init__(self, rank, world, seed, states=None):
        super().__init__(rank, world, seed, states[0] if states else None)

    __len__ = None

    def __iter__(self):
        shard = self.order()[self.rank :: self.world]
        while self.done < len(shard):
            size = BATCH - int(shard[self.done]) % 3  # documents that fit
            batch = shard[self.done : self.done + size]
            self.done += size
            yield self.batch(batch)
        self.epoch, self.done = self.epoch + 1, 0


class ShortBatches(Right):
    """litData#402: each worker ends with a short batch, and the length counts one."""

    def __init__(self, rank, world, seed, workers):
        super().__init__(rank, world, seed)
        self.workers = workers

    def __iter__(self):
        shard = self.order()[self.rank :: self.world]
        for worker in range(max(1, self.workers)):
            part = shard[worker :: max(1, self.workers)]
            yield from (self.batch(part[start : start + BATCH]) for start in range(0, len(part), BATCH))
        self.epoch += 1

    state_dict = load_state_dict = property()


class Stretches(Mixture):
    """streaming#658: streams are shuffled, but they do not mix evenly along the epoch."""

    def order(self):
        random = default_rng([self.seed, self.epoch])
        half = [random.permutation(self.a), random.permutation(self.b)]
        return np.concatenate([random.permutation(half[0][:300]), random.permutation(np.r_[half[0][300:], half[1]])])


class OneSeed(Right):
    """ray#61391: every partition is shuffled by the same permutation."""

    def order(self):
        random = default_rng([self.seed, self.epoch])
        parts = np.sort(random.permutation(self.rows).reshape(6, -1), axis=1)
        return parts[:, random.permutation(self.rows // 6)].ravel()


class OwnOrder(Right):
    """Ranks of one tensor-parallel group shuffle by their own seeds."""

    def order(self):
        return default_rng([self.seed, self.epoch, self.rank]).permutation(self.rows)


class Cut(Right):
    """Each row is a document, of which at most 100 tokens are used."""

    def batch(self, rows):
        return {"id": rows, "tokens": np.minimum(rows, 100), "document": rows}


class Leak(Right):
    """Every batch that was yielded is kept."""

    kept = ()

    def batch(self, rows):
        self.kept = (*self.kept, rows.tolist(), list(map(float, rows)))
        return super().batch(rows)


class Refusing(Right):
    """A state holds for its own world."""

    def state_dict(self):
        return {**super().state_dict(), "world": self.world}

    def load_state_dict(self, state):
        if state["world"] != self.world:
            raise ValueError("the world has changed")
        super().load_state_dict(state)


class ForgottenEpoch(Right):
    """The state has no epoch; a resumed run begins with that after the first one again."""

    def load_state_dict(self, state):
        super().load_state_dict(state | {"epoch": -1 if state["done"] else 0})

    def order(self):
        return default_rng([self.seed, max(0, self.epoch)]).permutation(self.rows)


class Shortened(Right):
    """After a resumed epoch, the next ones have the rows alone that it had left."""

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.first = self.done

    def __iter__(self):
        yield from super().__iter__()
        self.done = getattr(self, "first", 0)


class Endless(Right):
    """Epochs without an end; the state holds."""

    def __iter__(self):
        while True:
            yield from super().__iter__()

    __len__ = None


def stateless(rank, world, seed):
    """Make an iterator without a state."""
    return iter([{"id": rows} for rows in default_rng(seed).permutation(ROWS).reshape(-1, BATCH)[rank::world]])


def failing():
    """Make a loader that fails in its first batch."""
    yield {"id": [0] / 0}


def dying():
    """Make a loader whose process dies."""
    import os  # noqa: PLC0415 - in the new process alone

    yield {"id": [0]}
    os._exit(3)


def hanging():
    """Make a loader that waits for ever."""
    import time  # noqa: PLC0415

    yield time.sleep(600)
