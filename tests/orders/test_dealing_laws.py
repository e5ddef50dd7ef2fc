"""Laws of what ranks, workers and lanes get, over many passes, and faults planted in it that break them."""

from dataclasses import dataclass, replace
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.orders import (
    BlockOnly,
    Blocks,
    CorgiPile,
    FullShuffle,
    GlobalBatches,
    Key,
    Partial,
    Riffle,
    visited_rows,
)
from corgipile.orders.order import rows_of
from corgipile.testing.statistics import chi_sigmas, mean_sigmas

MAX_SIGMAS = 6.5  # exceeded by a correct order with a probability of 4e-11
ROWS, BLOCK, PASSES, BINS = 605, 10, 128, 8
MAX_TIMES = 16  # passes that repeat or leave out the same row: chance for a tenth of the rows is 2.1, above 16 < 1e-9
MAX_DROPPED = 30  # passes that drop the same row: chance for 29 of 605 rows is 6.1, above 30 < 1e-9
DEALT = [CorgiPile(), Riffle(), FullShuffle(), Partial(fraction=0.3)]


def fitted(order):
    return replace(order, block=BLOCK, buffer=60).fit(ROWS, 4000.0, None)


def visits(order, blocks, key):
    return np.concatenate([np.empty(0, np.int64), *visited_rows(order, blocks, key)])


def odd_rows(order, world, disjoint):
    """Return for each pass one row that ranks leave out, or that two of them visit."""
    blocks, found = Blocks(ROWS, even=order.block_rows), []
    for at in range(PASSES):
        keys = [Key(at // 8, at % 8, rank, world, disjoint) for rank in range(world)]
        counts = np.bincount(np.concatenate([visits(order, blocks, key) for key in keys]), minlength=ROWS)
        odd = np.flatnonzero(counts != 1)
        found.append(int(odd[np.random.default_rng(at).integers(len(odd))]))
    return np.array(found)


def dealing_faults(order, world=4):
    """Return which laws of repeated and left-out rows an order breaks."""
    order, found = fitted(order), []
    for name, disjoint in (("repeated rows", False), ("left-out rows", True)):
        rows = odd_rows(order, world, disjoint)
        deviation = chi_sigmas(np.bincount(rows * BINS // ROWS, minlength=BINS), PASSES / BINS)
        found += [name] if deviation > MAX_SIGMAS or np.bincount(rows).max() > MAX_TIMES else []
    return found


@dataclass(frozen=True, kw_only=True)
class Padded(CorgiPile):
    """Repeats the first rows of the table, as many as the last rank lacks."""

    def steps(self, blocks, key, start=0):
        if key.disjoint or key.rank < key.world - 1:
            yield from super().steps(blocks, key, start)
            return
        last = 0
        for step in super().steps(blocks, key, start):
            rows, last = rows_of(step.extents), last + 1
            if last == 1:
                rows[step.visit[-1] - step.into[0]] = 0
            yield step._replace(extents=np.stack([rows, rows + 1], axis=1))


@dataclass(frozen=True, kw_only=True)
class Truncated(CorgiPile):
    """Leaves out the last rows of the table."""

    def steps(self, blocks, key, start=0):
        rows = blocks.rows // key.world * key.world if key.disjoint else blocks.rows
        return super().steps(replace(blocks, rows=rows), key, start)


@pytest.mark.parametrize("order", DEALT, ids=lambda order: order.name)
def test_repeated_and_left_out_rows_are_any(order):
    assert not dealing_faults(order)


@pytest.mark.parametrize(("order", "law"), [(Padded(), "repeated rows"), (Truncated(), "left-out rows")])
def test_a_fault_of_dealing_breaks_a_law(order, law):
    assert dealing_faults(order) == [law]


def drop_faults(table, order, **settings):
    """Return which laws of the rows that ``drop_last`` leaves out a loader breaks."""
    ends, batch = [], 64
    for seed in range(PASSES // 16):
        order = replace(order, block=BLOCK, buffer=60)
        with cp.Loader(table, batch_size=batch, order=order, drop_last=True, seed=seed, **settings) as loader:
            for _ in range(16):
                seen = np.concatenate([batch["row"] for batch in loader])
                ends.append(np.setdiff1d(np.arange(ROWS), seen))
    count = ROWS % batch
    found = ["dropped rows"] if {len(one) for one in ends} != {count} else []
    some = np.array([one[np.random.default_rng(at).integers(len(one))] for at, one in enumerate(ends)])
    deviation = chi_sigmas(np.bincount(some * BINS // ROWS, minlength=BINS), PASSES / BINS)
    times = np.bincount(np.concatenate(ends), minlength=ROWS)
    found += ["places"] if deviation > MAX_SIGMAS or times.max() > MAX_DROPPED else []
    again = np.array([len(np.intersect1d(*two)) for two in pairwise(ends)])
    return found + (["epochs"] if abs(mean_sigmas(again, count * count / ROWS, 1.0)) > MAX_SIGMAS else [])


@pytest.fixture(scope="module")
def table():
    return pa.table({"row": np.arange(ROWS), "x": np.random.default_rng(0).normal(size=ROWS)})


@pytest.mark.parametrize(
    "order",
    [BlockOnly(), CorgiPile(), Riffle(), Riffle(balance="x"), Riffle(balance="content"), FullShuffle()],
    ids=lambda order: f"{order.name} {getattr(order, 'balance', '')}",
)
def test_dropped_rows_are_any(table, order):
    assert not drop_faults(table, order)


@dataclass(frozen=True, kw_only=True)
class SameEnd(Riffle):
    """Ends every epoch with the same blocks."""

    def block_order(self, blocks, key):
        drawn = np.random.default_rng(key.hash()).permutation(blocks.count)
        return np.append(drawn[drawn >= 4], drawn[drawn < 4])


def test_a_fault_of_dropped_rows_breaks_a_law(table):
    assert drop_faults(table, SameEnd()) == ["places", "epochs"]


def lane_faults(order, blocks):
    """Return which laws of global batches an order breaks."""
    found = []
    batches = [batches_of(order, blocks, world) for world in (1, 2, 6)]
    found += ["batches of a world"] if any(one != batches[0] for one in batches[1:]) else []
    seen = sorted(chain(*batches[0]))
    found += ["each row once"] if seen != list(range(blocks.rows)) else []
    inner = np.argsort(visits(order.within, blocks, Key(5, 1)))  # place of each row in the pass that lanes divide
    spread = np.mean([np.ptp(inner[sorted(batch)]) for batch in batches[0][:-1]])
    even = blocks.rows / order.groups * (order.ways - 1) / order.ways
    found += ["lanes of a batch"] if spread < 0.9 * even else []
    passes = [np.argsort(visits(order, blocks, Key(5, epoch, batch=order.rows))) // order.rows for epoch in range(24)]
    same = np.array([(one == other).mean() for one, other in pairwise(passes)])
    chance = order.rows / blocks.rows
    return found + (["batches of epochs"] if mean_sigmas(same, chance, chance / 4) > MAX_SIGMAS else [])


def batches_of(order, blocks, world):
    keys = [Key(5, 1, rank, world, batch=order.rows // world) for rank in range(world)]
    parts = [visits(order, blocks, key) for key in keys]
    count = -(-len(parts[0]) // keys[0].batch)
    return [set(chain(*(rows[at * k.batch : (at + 1) * k.batch].tolist() for rows, k in zip(parts, keys, strict=True))))
            for at in range(count)]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SameLanes(GlobalBatches):
    """Runs the lanes of epoch 0 in every epoch."""

    def steps(self, blocks, key, start=0):
        return super().steps(blocks, key._replace(epoch=0), start)


@dataclass(frozen=True, kw_only=True)
class Neighbouring(GlobalBatches):
    """Gives a batch the rows of one stretch of the pass."""

    def _stretches(self, batches, key, group):
        own = replace(self, ways=1)
        return GlobalBatches._stretches(own, batches, key, group)


@dataclass(frozen=True, kw_only=True)
class Shifted(GlobalBatches):
    """Gives every rank the columns of the first one."""

    def _stretches(self, batches, key, group):
        return super()._stretches(batches, key._replace(rank=0), group)


@pytest.mark.parametrize(
    ("make", "laws"),
    [
        (GlobalBatches, []),
        (SameLanes, ["batches of epochs"]),
        (Neighbouring, ["lanes of a batch"]),
        (Shifted, ["batches of a world"]),
    ],
)
def test_a_fault_of_lanes_breaks_a_law(make, laws):
    order = GlobalBatches.of(Riffle(block=4, buffer=200), 12).fit(600, 8.0, None)
    assert lane_faults(make(**vars(order)), Blocks(600, even=4)) == laws
