"""Faults planted in the orders: each breaks a law, computed from seeds and row numbers alone."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from changed_kernel import ChangedCorgiPile, ChangedReservoir, ChangedRiffle, ChangedWindow, build, compiler

from corgipile.orders import BlockOnly, Blocks, CorgiPile, FullShuffle, Key, Reservoir, Riffle, SlidingWindow
from corgipile.orders import visited_rows as followed
from corgipile.testing import LawBroken, check_order, measure_order

ROW_KEY = "cp_derive2(plan->spec.key ^ CP_KEY_ROWS, (uint64_t)(plan->first + k))"
DRAIN_KEY = "cp_derive2(s->key ^ CP_KEY_ROWS, (uint64_t)plan->step)"
JITTER_KEY = "cp_derive2(plan->spec.key ^ CP_KEY_JITTER, (uint64_t)(plan->first + k))"
FIRST_SWAP, SECOND_SWAP = "(random >> 32) * i >> 32", "(random & 0xFFFFFFFFu) * (i - 1) >> 32"
PHASE = "(int64_t)cp_below(t->key, (uint64_t)from << 31 | (uint64_t)count, (uint64_t)count)"

# Fault of the kernel: the order, the changes of kernel/plan as (file, old, new), and the law that it breaks.
IN_KERNEL: dict[str, tuple[Callable[..., Any], list[tuple[str, str, str]], str]] = {
    "the same rows permutation in every epoch": (
        ChangedRiffle,
        [("chunks.h", ROW_KEY, "cp_derive2(CP_KEY_ROWS, (uint64_t)(plan->first + k))")],
        "of rows within blocks between epochs",
    ),
    "the same buffer permutation in every epoch": (
        ChangedCorgiPile,
        [("plan.h", DRAIN_KEY, "cp_derive2(CP_KEY_ROWS, (uint64_t)plan->step)")],
        "of rows within blocks between epochs",
    ),
    "the same permutation in every block": (
        ChangedRiffle,
        [("chunks.h", ROW_KEY, "cp_derive2(plan->spec.key ^ CP_KEY_ROWS, 0)")],
        "of rows within blocks between blocks",
    ),
    "the same permutation in every buffer": (
        ChangedCorgiPile,
        [("plan.h", DRAIN_KEY, "cp_derive2(s->key ^ CP_KEY_ROWS, 0)")],
        "of rows within blocks between buffers",
    ),
    "a row never keeps its place": (
        ChangedRiffle,
        [("permute.h", FIRST_SWAP, "(random >> 32) * (i - 1) >> 32")],
        "deviation of rows from uniform places in their block",
    ),
    "each row swaps with any other": (
        ChangedCorgiPile,
        [
            ("permute.h", FIRST_SWAP, "(random >> 32) * count >> 32"),
            ("permute.h", SECOND_SWAP, "(random & 0xFFFFFFFFu) * count >> 32"),
        ],
        "deviation of rows from uniform places in the buffer that they fill",
    ),
    "even orders of blocks": (
        ChangedCorgiPile,
        [
            ("permute.h", "n <= CP_TABLED) {", "n < 2) {"),
            ("permute.h", "if (cp_random(swap, 0) >> 63)", "if (0)"),
            ("permute.h", "b->n <= CP_TABLED)\n        return b->value[i]", "b->n < 2)\n        return i"),
        ],
        "orders of blocks from equally many odd ones",
    ),
    "neighbours that stay neighbours": (
        ChangedCorgiPile,
        [
            (
                "blocks.h",
                "(int64_t)cp_permute(&plan->walk, (uint64_t)position)",
                "(int64_t)(cp_permute(&plan->walk, 0) + (uint64_t)position) % s->blocks",
            )
        ],
        "distances of two blocks from equally frequent ones",
    ),
    "no jitter": (
        ChangedRiffle,
        [("clock.h", "return cp_random(c->key, (uint64_t)p >> 2);", "return 0;")],
        "standard deviation of the times at which rows are dealt",
    ),
    "the same jitter in every block": (
        ChangedRiffle,
        [("clock.h", JITTER_KEY, "cp_derive2(plan->spec.key ^ CP_KEY_JITTER, 0)")],
        "correlation of the times at which rows are dealt between blocks",
    ),
    "the same jitter in every epoch": (
        ChangedRiffle,
        [("clock.h", JITTER_KEY, "cp_derive2(CP_KEY_JITTER, (uint64_t)(plan->first + k))")],
        "correlation of the times at which rows are dealt between epochs|standard deviation of the times",
    ),
    "balance with a fixed start": (
        lambda **library: ChangedRiffle(balance="label", **library),
        [("balance.h", PHASE, "0")],
        "deviation of the first blocks from equally frequent kinds",
    ),
    "balance with fixed ties": (
        lambda **library: ChangedRiffle(balance="label", **library),
        [("balance.h", "cp_derive2(key, CP_KEY_BALANCE)", "cp_derive2(0, CP_KEY_BALANCE)")],
        "of tied blocks",
    ),
    "content with fixed ties": (
        lambda **library: ChangedRiffle(balance="content", **library),
        [("seriate.h", "cp_derive2(key, CP_KEY_BALANCE)", "cp_derive2(0, CP_KEY_BALANCE)")],
        "of tied blocks",
    ),
    "content without looking ahead": (
        lambda **library: ChangedRiffle(balance="content", **library),
        [("seriate.h", "pass < CP_PASSES", "pass < 0")],
        "squared running sum of the sketch",
    ),
    "content that ends with the same blocks": (
        lambda **library: ChangedRiffle(balance="content", **library),
        [("seriate.h", "place == 0 || ", "")],
        "deviation of the last block from equally frequent ones",
    ),
    "a window of half the rows": (
        ChangedWindow,
        [("stream.h", ": (uint64_t)s->window", ": (uint64_t)s->window / 2")],
        "standard deviation of the moves of rows",
    ),
    "a reservoir that prefers late rows": (
        ChangedReservoir,
        [("stream.h", "(uint64_t)seen + 1", "((uint64_t)seen + 1) * 3 / 4 + 1")],
        "deviation of the rows kept to the end from uniform",
    ),
    "the same window in every epoch": (
        ChangedWindow,
        [("stream.h", "cp_below(s->key, (uint64_t)seen, range)", "cp_below(7, (uint64_t)seen, range)")],
        "standard deviation of the moves of rows",
    ),
}


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """Return the library of the unchanged kernel."""
    return built(tmp_path_factory)


def built(tmp_path_factory, *changes):
    if compiler() is None:
        pytest.skip("no C compiler")
    return build(tmp_path_factory.mktemp("kernel") / "text", *changes)


def sized(order):
    return replace(order, block=10, buffer=60).fit(600, 4000.0, None)


def visited(order, blocks):
    return np.concatenate(list(followed(order, blocks, Key(3, 4))))


@pytest.mark.parametrize(
    ("make", "real", "sketch"),
    [
        (ChangedCorgiPile, CorgiPile(), None),
        (ChangedRiffle, Riffle(), None),
        (ChangedRiffle, Riffle(balance="label"), np.arange(60) % 7.0),
        (ChangedRiffle, Riffle(balance="content"), np.arange(120).reshape(60, 2).astype(np.int16)),
        (ChangedWindow, SlidingWindow(), None),
        (ChangedReservoir, Reservoir(), None),
    ],
)
def test_without_a_change_the_orders_are_ours(right, make, real, sketch):
    blocks, balance = Blocks(600, even=10, sketch=sketch), {} if sketch is None else {"balance": real.balance}
    changed = make(library=right, **balance)
    assert np.array_equal(visited(sized(changed), blocks), visited(sized(real), blocks))


@pytest.mark.parametrize("fault", IN_KERNEL)
def test_a_fault_in_the_kernel_breaks_a_law(fault, tmp_path_factory):
    make, changes, law = IN_KERNEL[fault]
    assert re.search(law, " ".join(broken(make(library=built(tmp_path_factory, *changes)))))


def broken(order):
    return [law.law for law in measure_order(order) if not law.holds]


@dataclass(frozen=True, kw_only=True)
class Keyed(Riffle):
    """Changes its key."""

    change: Any

    def plan(self, blocks, key, start=0):
        return super().plan(blocks, self.change(key), start)


@dataclass(frozen=True, kw_only=True)
class Laid(Riffle):
    """Lays blocks out by a function of their number and a generator."""

    lay: Any

    def block_order(self, blocks, key):
        return np.ascontiguousarray(self.lay(blocks.count, np.random.default_rng(key.hash())), np.int64)


@dataclass(frozen=True, kw_only=True)
class Stepped(CorgiPile):
    """Changes each step."""

    change: Any

    def steps(self, blocks, key, start=0):
        return map(self.change, super().steps(blocks, key, start))


class Halved(CorgiPile):
    """Mixes half as many blocks as it declares."""

    def buffer_blocks(self):
        return max(1, super().buffer_blocks() // 2)


class HalvedWindow(SlidingWindow):
    """Draws from half the window that it declares."""

    @property
    def window(self):
        return max(1, super().window // 2)


class HalvedReservoir(Reservoir):
    """Keeps half the rows that it declares."""

    @property
    def window(self):
        return max(1, super().window // 2)


class Stepping(FullShuffle):
    """Visits every k-th row, from a random one on, with a random k."""

    def steps(self, blocks, key, start=0):
        rows, begin = blocks.rows, key.share(blocks.rows)[0]
        rng = np.random.default_rng(key.hash())
        strides = [stride for stride in range(1, rows + 1) if np.gcd(stride, rows) == 1]
        order = (rng.integers(rows) + rng.choice(strides) * np.arange(rows)) % rows
        for at, step in enumerate(super().steps(blocks, key, start), start):
            first = begin + at * self.visits_per_step
            part = order[first : first + len(step.into)]
            yield step._replace(extents=np.stack([part, part + 1], axis=1), into=step.visit)


def cycle(count, rng):
    return np.argsort((np.arange(count) * 0.6180339887498949 + rng.random()) % 1)


def lost(step):
    return step._replace(visit=step.visit[:-1])


def twice(step):
    return step._replace(visit=np.append(step.visit[:-1], step.visit[:1]))


# Fault of an order: the order, and the law that it breaks.
IN_PYTHON: dict[str, tuple[Any, str]] = {
    "the same pass in every epoch": (
        Keyed(change=lambda key: key._replace(epoch=0)),
        "seed 7, epoch 1 is seed 7, epoch",
    ),
    "the same passes for every seed": (Keyed(change=lambda key: key._replace(seed=0)), "epoch 1 is seed 8, epoch 1"),
    "seed and epoch are added": (
        Keyed(change=lambda key: key._replace(seed=key.seed + key.epoch, epoch=0)),
        "seed 7, epoch 1 is seed 8, epoch 0",
    ),
    "two epochs in turn": (
        Keyed(change=lambda key: key._replace(epoch=key.epoch % 2)),
        "deviation of rows from uniform places in their block",
    ),
    "every rank has the first part": (Keyed(change=lambda key: key._replace(rank=0)), "rows are lost"),
    "a row is lost": (Stepped(change=lost), "times"),
    "a row comes twice": (Stepped(change=twice), "times"),
    "one cycle of blocks": (Laid(lay=cycle), "repeated neighbours of blocks between epochs"),
    "blocks in storage order": (Laid(lay=lambda count, rng: np.arange(count)), "deviation of a block from uniform"),
    "blocks move a little": (
        Laid(lay=lambda count, rng: np.argsort(np.arange(count) + 40 * rng.random(count))),
        "deviation of a block from uniform places in the epoch",
    ),
    "rows of a block in storage order": (
        Stepped(change=lambda step: step._replace(visit=np.sort(step.visit))),
        "deviation of rows from uniform places in their block",
    ),
    "rows of a block in the opposite order": (
        Stepped(change=lambda step: step._replace(visit=np.sort(step.visit)[::-1].copy())),
        "correlation of rows within blocks between",
    ),
    "half the blocks in the buffer": (Halved(), "stretch over which rows of a block are visited"),
    "half the window": (HalvedWindow(), "move of a row ahead"),
    "half the reservoir": (HalvedReservoir(), "deviation of the rows kept to the end from uniform"),
    "rows at equal distances": (Stepping(), "repeated neighbours of blocks|equally frequent orders"),
}


@pytest.mark.parametrize("fault", IN_PYTHON)
def test_a_fault_of_an_order_breaks_a_law(fault):
    order, law = IN_PYTHON[fault]
    with pytest.raises(LawBroken, match=law):
        check_order(order)


def test_an_order_that_keeps_rows_must_declare_it():
    class Undeclared(BlockOnly):
        shuffles_rows = True

    assert "deviation of rows from uniform places in their block" in broken(Undeclared())

    class Overdeclared(CorgiPile):
        shuffles_rows = False

    assert broken(Overdeclared()) == ["rows of blocks that do not follow in storage order"]


def test_a_measurement_names_its_law_limits_and_passes():
    law = next(law for law in measure_order(CorgiPile(), seed=40) if law.law.startswith("stretch"))
    assert str(law).startswith("stretch over which rows of a block are visited must be at least 0.9 buffers, got 1.")
    assert "(seeds 40 to 55, epochs 0 to 15, Blocks(rows=600, cuts=None, even=10))" in str(law)
