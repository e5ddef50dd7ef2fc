"""Statistical laws of random orders, measured over hundreds of passes from seeds and row numbers alone.

Measurements in standard deviations ("sigmas") of a normal variable have the limit `MAX_SIGMAS`, which a correct order
exceeds with a probability near 1e-12. Other limits are at least ten standard deviations from those of correct orders.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corgipile.orders import Blocks, Key, Order, Step, visited_rows
from corgipile.orders.order import IntArray, follow
from corgipile.quality.correlation import shared_again
from corgipile.quality.faults import MAX_REPEATS
from corgipile.quality.visits import Sample, mixed
from corgipile.testing.statistics import chi_sigmas, mean_sigmas, pair_sigmas, ranks_of, repetitions, uniform_sigmas

__all__ = ["Measured", "Passes", "laws"]

MAX_SIGMAS = 7.0
SEEDS, EPOCHS = 16, 16
PAIRED = 3  # seeds and epochs whose batches are compared
TINY_BLOCKS, TINY_PASSES = (2, 3, 4), 40  # blocks of the smallest tables; passes for each order of them
BINS, KINDS, TRAITS = 10, 5, 6  # parts of an epoch; values of a sketch with ties; numbers of a content vector
MIN_BALANCED = 40  # blocks of a table from which on the strength of their balance is measured
MAX_NEIGHBOURS = 4  # repeated neighbours of balanced blocks, as a multiple of chance
MAX_RELATED = 0.3  # correlation of the times at which two blocks deal their rows
MIN_REACH, MAX_REACH = 0.9, 1.0  # rows by which a row moves ahead in a window, as a share of the buffer
MIN_SPREAD, MAX_SPREAD = 0.85, 1.15  # standard deviation of a window's moves, as a share of the buffer
MAX_DRIFT = 0.2  # running sum of a balanced sketch, squared, as a share of random blocks'


class Measured(NamedTuple):
    """The measurement of a law.

    Attributes:
        law: Name of the law.
        value: The measured value.
        least: Its lower limit.
        most: Its upper limit.
        unit: Unit of the value and its limits.
        where: Passes, blocks or rows that were compared.
    """

    law: str
    value: float
    least: float
    most: float
    unit: str
    where: str

    @property
    def holds(self) -> bool:
        """Return whether the value is within its limits."""
        return self.least <= self.value <= self.most

    def __str__(self) -> str:
        limits = {"at least": self.least, "at most": self.most}
        limit = " and ".join(f"{name} {value:.3g}" for name, value in limits.items() if np.isfinite(value))
        return f"{self.law} must be {limit} {self.unit}, got {self.value:.3g} ({self.where})"


def _sigmas(law: str, value: float, where: str, least: float = -np.inf) -> Measured:
    return Measured(law, value, least, MAX_SIGMAS, "sigmas", where)


@dataclass(frozen=True)
class Passes:
    """Passes of consecutive seeds and epochs over blocks of equally many rows.

    Attributes:
        blocks: The blocks.
        seed: The first of the seeds.
        at: int64[seeds, epochs, rows], place of each row's first visit.
        last: int64[seeds, epochs, buffer], the rows visited last.
        drained: int64[steps, buffer], rows of each step that fills the buffer and visits it, in this order.
    """

    blocks: Blocks
    seed: int
    at: IntArray
    last: IntArray
    drained: IntArray

    @classmethod
    def of(cls, order: Order, blocks: Blocks, seed: int, buffer: int = 1) -> "Passes":
        """Follow an order through `SEEDS` times `EPOCHS` passes."""
        at = np.zeros((SEEDS, EPOCHS, blocks.rows), np.int64)
        last = np.zeros((SEEDS, EPOCHS, buffer), np.int64)
        drained = [np.empty((0, buffer), np.int64)]
        for s, e in np.ndindex(SEEDS, EPOCHS):
            steps = list(order.steps(blocks, Key(seed + s, e)))
            row_of = np.full(order.slots(blocks), -1, np.int64)
            rows = np.concatenate([follow(step, row_of) for step in steps])
            at[s, e, rows[::-1]] = np.arange(len(rows))[::-1]
            last[s, e] = rows[-buffer:]
            drained += [visited for step in steps if len(visited := _drained(step, buffer))]
        return cls(blocks, seed, at, last, np.concatenate(drained))

    def __str__(self) -> str:
        return f"seeds {self.seed} to {self.seed + SEEDS - 1}, epochs 0 to {EPOCHS - 1}, {self.blocks!r}"

    @property
    def by_block(self) -> IntArray:
        """Return the places by block: int64[seeds, epochs, blocks, rows of a block]."""
        return self.at.reshape(SEEDS, EPOCHS, self.blocks.count, -1)

    @property
    def block_ranks(self) -> IntArray:
        """Return the rank of each block by its first visit: int64[seeds, epochs, blocks]."""
        return ranks_of(self.by_block.min(axis=-1))

    def by_rank(self, values: IntArray) -> IntArray:
        """Sort values of blocks, int64[seeds, epochs, blocks, ...], by the rank of their block."""
        return np.take_along_axis(values, np.argsort(self.block_ranks, axis=-1)[..., None], axis=2)


def _drained(step: Step, buffer: int) -> IntArray:
    """Return the rows that a step loads, by visit, int64[1, buffer]; none if it visits others."""
    into, visit = np.argsort(step.into), np.argsort(step.visit)
    full = len(into) == len(visit) == buffer and np.array_equal(step.into[into], step.visit[visit])
    return into[np.argsort(visit)][None] if full else np.empty((0, buffer), np.int64)


def laws(order: Order, blocks: Blocks, buffer: int, batch: int, seed: int) -> Iterator[Measured]:
    """Measure the laws that a fitted random order promises to obey, from ``seed`` on; ``buffer``: declared rows."""
    sketched = order.sketch_column is not None
    blocks = _sketched(order, blocks) if sketched else blocks
    seen = Passes.of(order, blocks, seed, min(buffer, blocks.rows))
    yield from _repeated_batches(seen, batch)
    if order.sequential:
        yield from _windows(order, seen)
        return
    if blocks.even > 1:
        yield from _rows_in_blocks(seen, ordered=not getattr(order, "shuffles_rows", True))
    yield _ends_again(seen)
    yield from _orders_of_blocks(order, blocks, seed)
    if not sketched:
        yield from _blocks_in_epochs(seen)
        yield from _tiny(order, seed)
        return
    if blocks.count >= MIN_BALANCED:
        yield _drift(seen)
        yield from _starts_and_ties(order, blocks, seed)
    if order.sketch_column == "content":  # looking ahead, the order prefers some blocks at the start of small tables
        seen = Passes.of(order, _sketched(order, Blocks(blocks.rows, even=1)), seed)
    yield from _blocks_in_epochs(seen)


def _sketched(order: Order, blocks: Blocks) -> Blocks:
    """Return blocks with random sketches, without ties."""
    rng = np.random.default_rng(2)
    if order.sketch_column == "content":
        return replace(blocks, sketch=(1000 * rng.normal(size=(blocks.count, TRAITS))).astype(np.int16))
    return replace(blocks, sketch=rng.random(blocks.count))


def _repeated_batches(seen: Passes, batch: int) -> Iterator[Measured]:
    """Measure the pairs of rows that share a batch again, against chance for rows stored at equal distances."""
    ids, where = np.arange(seen.blocks.rows), f"{batch} rows a batch, {seen}"
    for name, *parts in _pairs(seen.at[:PAIRED, :PAIRED], {}):
        passes = zip(*(part.reshape(-1, len(ids)) for part in parts), strict=True)
        found = [shared_again(*(Sample(mixed(ids), ids, at, at // batch) for at in pair)) for pair in passes]
        again, chance = (sum(one[0] * one[at] for one in found) for at in (1, 2))
        law = f"pairs of rows that share a batch again between {name}"
        yield Measured(law, again / max(chance, 1.0), -np.inf, MAX_REPEATS, "times chance", where)


def _pairs(values: npt.NDArray[Any], lags: dict[str, int]) -> Iterator[tuple[str, npt.NDArray[Any], npt.NDArray[Any]]]:
    """Yield pairs of values, [seeds, epochs, places, ...], by what differs; ``lags``: distances of compared places."""
    for name, lag in lags.items():
        if lag < values.shape[2]:
            yield name, values[:, :, :-lag], values[:, :, lag:]
    yield "epochs", values[:, :-1], values[:, 1:]
    yield "seeds", values[:-1], values[1:]
    yield "seeds and epochs", values[1:, :-1], values[:-1, 1:]


def _rows_in_blocks(seen: Passes, *, ordered: bool) -> Iterator[Measured]:
    """Measure the order of rows within a block, and the times at which they are dealt."""
    if ordered:
        broken = float((np.diff(seen.by_block, axis=-1) != 1).sum())
        yield Measured("rows of blocks that do not follow in storage order", broken, -np.inf, 0, "rows", str(seen))
        return
    size, buffer = seen.blocks.even, seen.last.shape[-1]
    ranks = ranks_of(seen.by_block)
    uniform = uniform_sigmas(ranks.reshape(-1, size))
    yield _sigmas("deviation of rows from uniform places in their block", uniform, str(seen))
    if len(seen.drained):
        uniform = uniform_sigmas(seen.drained)
        yield _sigmas("deviation of rows from uniform places in the buffer that they fill", uniform, str(seen))
    lags = {"blocks": 1, "buffers": min(buffer // size, seen.blocks.count // 2)}
    same = ((f"{name} of a block", one, other) for name, one, other in _pairs(ranks, {}))
    for name, one, other in (*_pairs(seen.by_rank(ranks), lags), *same):
        for what, value in pair_sigmas(one.reshape(-1, size), other.reshape(-1, size)):
            yield _sigmas(f"{what} of rows within blocks between {name}", value, str(seen), -MAX_SIGMAS)
    yield from _dealing(seen, lags)


def _dealing(seen: Passes, lags: dict[str, int]) -> Iterator[Measured]:
    """Measure how far a block's rows spread, and whether the times at which they are dealt are drawn afresh."""
    size, count, buffer = seen.blocks.even, seen.blocks.count, seen.last.shape[-1]
    times = seen.by_rank(np.sort(seen.by_block, axis=-1))
    reach = float((times[..., -1] - times[..., 0]).mean() / (buffer * (size - 1) / (size + 1)))
    yield Measured("stretch over which rows of a block are visited", reach, MIN_REACH, np.inf, "buffers", str(seen))
    if buffer == seen.blocks.rows:
        return
    jitter = (times - np.arange(count)[:, None] * size)[:, :, count // 4 : count - count // 4].astype(np.float64)
    jitter -= jitter.mean(axis=(0, 1))
    spread = float(jitter.std())
    yield Measured("standard deviation of the times at which rows are dealt", spread, 0.5, np.inf, "visits", str(seen))
    for name, one, other in _pairs(jitter, lags):
        related = float((one * other).mean()) / max(spread * spread, 0.25)
        law = f"correlation of the times at which rows are dealt between {name}"
        yield Measured(law, related, -np.inf, MAX_RELATED, "", str(seen))


def _blocks_in_epochs(seen: Passes) -> Iterator[Measured]:
    """Measure the places of blocks in the epoch: uniform, and independent between passes."""
    ranks, count = seen.block_ranks, seen.blocks.count
    bins = min(BINS, count)
    expected = np.bincount(np.arange(count) * bins // count) * SEEDS * EPOCHS / count
    tenths = (ranks.reshape(-1, count) * bins // count).T
    worst, block = max((chi_sigmas(np.bincount(one, minlength=bins), expected), at) for at, one in enumerate(tenths))
    yield _sigmas("deviation of a block from uniform places in the epoch", worst, f"block {block}, {seen}")
    for name, *two in _pairs(ranks, {}):
        one, other = (part.reshape(-1, count) for part in two)
        for what, value in pair_sigmas(one, other):
            if what != "repeated neighbours" or seen.blocks.sketch is None:
                yield _sigmas(f"{what} of blocks between {name}", value, str(seen), -MAX_SIGMAS)
        if seen.blocks.sketch is not None:  # balance makes some neighbours more frequent than others
            again = repetitions(one, other).mean() / (1 - 1 / count)
            law = f"repeated neighbours of blocks between {name}"
            yield Measured(law, float(again), -np.inf, MAX_NEIGHBOURS, "times chance", str(seen))


def _ends_again(seen: Passes) -> Measured:
    """Measure how many of the rows visited last, which ``drop_last`` leaves out, are visited last in the next epoch."""
    buffer, rows = seen.last.shape[-1], seen.blocks.rows
    last = seen.at >= rows - buffer
    again = (last[:, 1:] & last[:, :-1]).sum(axis=-1)
    sigmas = mean_sigmas(again, buffer * buffer / rows, 1.0)
    return _sigmas(
        "repetition of the rows visited last in the next epoch", sigmas, f"{buffer} rows, {seen}", -MAX_SIGMAS
    )


def _orders_of_blocks(order: Any, blocks: Blocks, seed: int) -> Iterator[Measured]:
    """Measure orders of blocks alone, each of one row in a buffer of one: ends, pairs and parity."""
    count, passes = blocks.count, SEEDS * EPOCHS
    bare = replace(order, block=1, buffer=1).fit(count, 4000.0, None)
    seen = Passes.of(bare, replace(blocks, rows=count, even=1), seed)
    ranks = seen.block_ranks.reshape(passes, count)
    for name, rank in (("last", count - 1), ("first", 0))[: 1 if order.sketch_column == "content" else 2]:
        found = chi_sigmas(np.bincount(np.argmax(ranks == rank, axis=1), minlength=count), passes / count)
        yield _sigmas(f"deviation of the {name} block from equally frequent ones", found, str(seen))
    if blocks.sketch is None and count > 2:
        for lag in {1, count // 2}:
            distances = (ranks[:, lag:] - ranks[:, :-lag]) % count
            counts = np.bincount(distances.reshape(-1), minlength=count)[1:]
            law = "deviation of the distances of two blocks from equally frequent ones"
            yield _sigmas(law, chi_sigmas(counts, counts.mean()), f"blocks that are {lag} apart, {seen}")
        odd = mean_sigmas(np.array([np.triu(one[:, None] > one).sum() % 2 for one in ranks]), 0.5, 0.5)
        yield _sigmas("deviation of orders of blocks from equally many odd ones", odd, str(seen), -MAX_SIGMAS)


def _tiny(order: Any, seed: int) -> Iterator[Measured]:
    """Measure the frequency of each order of a few blocks."""
    for count in TINY_BLOCKS:
        numbers = {blocks: at for at, blocks in enumerate(permutations(range(count)))}
        counts, passes = np.zeros(len(numbers)), TINY_PASSES * len(numbers)
        tiny = replace(order, block=1, buffer=1).fit(count, 4000.0, None)
        for at in range(passes):
            rows = np.concatenate(list(visited_rows(tiny, Blocks(count, even=1), Key(seed + at // 30, at % 30))))
            counts[numbers[tuple(rows.tolist())]] += 1
        deviation = chi_sigmas(counts, TINY_PASSES)
        yield _sigmas("deviation from equally frequent orders of blocks", deviation, f"{count} blocks of 1 row")


def _windows(order: Order, seen: Passes) -> Iterator[Measured]:
    """Measure how far a window over the stored order moves rows, and whether it draws them afresh."""
    rows, buffer = seen.blocks.rows, seen.last.shape[-1]
    moved = (seen.at - np.arange(rows)).astype(np.float64)
    if order.once:
        reach = -float(moved.min()) / buffer
        yield Measured("move of a row ahead", reach, MIN_REACH, MAX_REACH, "buffers", str(seen))
        spread = float(np.sqrt(moved[:, :, : rows // 2].var(axis=(0, 1)).mean())) / buffer
        yield Measured("standard deviation of the moves of rows", spread, MIN_SPREAD, MAX_SPREAD, "buffers", str(seen))
    else:
        kept = np.bincount(seen.last.reshape(-1) * BINS // rows, minlength=BINS)
        yield _sigmas("deviation of the rows kept to the end from uniform", chi_sigmas(kept, kept.mean()), str(seen))
    moved -= moved.mean(axis=(0, 1))
    moved /= np.maximum(np.linalg.norm(moved, axis=-1, keepdims=True), 1e-9)
    for name, one, other in _pairs(moved, {}):
        value = mean_sigmas((one * other).sum(axis=-1), 0.0, rows**-0.5 / 2)
        yield _sigmas(f"correlation of the moves of rows between {name}", value, str(seen), -MAX_SIGMAS)


def _drift(seen: Passes) -> Measured:
    """Measure the running sum of the sketch, which random blocks let grow."""
    count, sketch = seen.blocks.count, np.asarray(seen.blocks.sketch, np.float64).reshape(seen.blocks.count, -1)
    sketch -= sketch.mean(axis=0)
    sums = np.cumsum(sketch[np.argsort(seen.block_ranks, axis=-1)], axis=2)
    random = (sketch**2).sum() * (count + 1) / (6 * count)
    drift, law = float((sums**2).sum(axis=-1).mean() / random), "squared running sum of the sketch"
    return Measured(law, drift, -np.inf, MAX_DRIFT, "times that of random blocks", str(seen))


def _starts_and_ties(order: Order, blocks: Blocks, seed: int) -> Iterator[Measured]:
    count = blocks.count // KINDS * KINDS
    kinds = np.random.default_rng(1).permutation(np.arange(count) % KINDS)
    vectors = order.sketch_column == "content"
    sketch: Any = (1000 * np.eye(KINDS)[kinds]).astype(np.int16) if vectors else kinds.astype(np.float64)
    seen = Passes.of(order, Blocks(count * blocks.even, even=blocks.even, sketch=sketch), seed)
    ranks = seen.block_ranks.reshape(-1, count)
    sequence = kinds[np.argsort(ranks, axis=1)]
    starts = [chi_sigmas(np.bincount(of, minlength=KINDS), len(sequence) / KINDS) for of in sequence[:, :KINDS].T]
    yield _sigmas("deviation of the first blocks from equally frequent kinds", max(starts), f"{KINDS} kinds, {seen}")
    ties = np.stack([ranks_of(ranks[:, kinds == kind]) for kind in range(KINDS)], axis=1)
    each = ties.reshape(-1, ties.shape[2])
    yield _sigmas("deviation of tied blocks from uniform places", uniform_sigmas(each), f"{KINDS} kinds, {seen}")
    for name, one, other in _pairs(ties.reshape(SEEDS, EPOCHS, KINDS, -1), {}):
        for what, value in pair_sigmas(one.reshape(-1, each.shape[1]), other.reshape(-1, each.shape[1])):
            yield _sigmas(f"{what} of tied blocks between {name}", value, f"{KINDS} kinds, {seen}", -MAX_SIGMAS)
