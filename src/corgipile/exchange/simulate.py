"""Simulation of an exchange in a cluster, by block numbers: bytes, balance, storage, mixing and requests."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from corgipile import random
from corgipile.errors import BadArgument
from corgipile.orders import Exchange
from corgipile.orders.order import IntArray
from corgipile.sizes import Size, choice, parse_bytes, to_rows, whole

__all__ = ["Mixing", "Reading", "Simulation", "simulate"]

Staging = Literal["sorted", "random"]
BLOCK_BYTES, MIN_BLOCKS = 1 << 20, 64  # bytes per block; blocks per rank at least
REPORTED_EPOCHS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # reported epochs
TURNS, MAX_COUNTED, BATCHES, MAX_ROWS = 32, 100_000, 256, 1 << 18


@dataclass(frozen=True)
class Mixing:
    """Mixing of the ranks in an epoch.

    Attributes:
        epoch: Number of the epoch.
        home: Share of rows on their initial rank, exactly by the plan.
        paper: The same if rows may go to any rank, including their own: ``1/M + (1 - 1/M) (1 - Q)^epoch``.
        home_counted: ``home``, counted for random blocks.
        local: Deff of a rank's batch, drawn from the rank's rows.
        local_counted: ``local``, counted for batches of random ranks.
        everywhere: Deff of the union of all ranks' batches.
        everywhere_counted: ``everywhere``, counted; None if that takes too many rows.
    """

    epoch: int
    home: float
    paper: float
    home_counted: float
    local: float
    local_counted: float
    everywhere: float
    everywhere_counted: float | None


@dataclass(frozen=True)
class Reading:
    """Reads from shared storage of a way to distribute rows.

    Attributes:
        way: Name of the way.
        gets: Requests per rank and epoch.
        nbytes: Bytes per rank and epoch.
    """

    way: str
    gets: int
    nbytes: int


@dataclass(frozen=True)
class Simulation:
    """Result of `simulate`; bytes count rows without message headers.

    Attributes:
        plan: The exchange of blocks.
        block: Rows per block.
        row_bytes: Bytes per row.
        batch: Rows per batch of one rank.
        rows: Rows per rank: minimum and maximum.
        steps: Batches per rank and epoch.
        moved: Blocks that each rank sends, and receives, per epoch: minimum and maximum.
        sent: Bytes that a rank sends per epoch at most; it receives as many.
        sent_per_step: ``sent`` divided by ``steps``.
        unbalanced: Blocks that a rank sent beyond those it received, or to itself, over all ranks and some turns.
        peer: Blocks that a rank sends to each other rank per epoch: minimum and maximum.
        storage: Bytes per rank at most, including arriving ones.
        mixing: Mixing of the ranks at some epochs.
        reading: Reads from shared storage for each way to distribute rows.
    """

    plan: Exchange
    block: int
    row_bytes: int
    batch: int
    rows: tuple[int, int]
    steps: int
    moved: tuple[int, int]
    sent: int
    sent_per_step: float
    unbalanced: int
    peer: tuple[int, int]
    storage: int
    mixing: tuple[Mixing, ...]
    reading: tuple[Reading, ...]


def simulate(
    ranks: int,
    rows: int,
    fraction: float,
    *,
    row_bytes: Size = "4KB",
    block: Size | None = None,
    batch: int = 256,
    epochs: int = 10,
    classes: int = 10,
    staging: Staging = "sorted",
    request: Size = "8MB",
    seed: int = 0,
) -> Simulation:
    """Simulate an exchange among ranks by block numbers; counts follow the actual plan.

    The deff is that of labels of a table sorted by them, the worst case, divided in storage order or at random. A rank
    draws its batches from all its rows, as a full shuffle of them would.

    Args:
        ranks: Number of ranks, M.
        rows: Rows of the table, N.
        fraction: Fraction of its rows that a rank sends per epoch, Q.
        row_bytes: Bytes per row.
        block: Rows (int), bytes or share of a block, which is sent as a whole; None: 1 MB, or 1/64 of a rank's rows.
        batch: Rows per batch of one rank.
        epochs: Number of epochs.
        classes: Number of labels, with equally many rows.
        staging: Whether ranks begin with parts in storage order ("sorted") or with random blocks.
        request: Bytes per request to an object store.
        seed: Seed of the plan.

    Raises:
        BadArgument: There are fewer rows than ranks, or an argument is out of range.

    Example:
        >>> result = simulate(8, 80_000, 0.1, row_bytes=100, block=10, epochs=5)
        >>> result.moved, result.sent, result.unbalanced, [round(mixing.home, 3) for mixing in result.mixing]
        ((100, 100), 100000, 0, [1.0, 0.9, 0.811, 0.602])
    """
    ranks, rows = whole(ranks, "ranks", 1), whole(rows, "rows", 1, 1 << 60)
    batch, epochs, classes = whole(batch, "batch", 1), whole(epochs, "epochs", 0, 10_000), whole(classes, "classes", 2)
    choice(staging, "staging", Staging)
    if rows < ranks:
        raise BadArgument(f"rows must be at least {ranks}, one per rank, got {rows}")
    size, asked = parse_bytes(row_bytes, "row_bytes"), parse_bytes(request, "request")
    default = max(1, min(BLOCK_BYTES // size, rows // ranks // MIN_BLOCKS))
    each = default if block is None else min(to_rows(block, rows, size, "block"), rows // ranks)
    plan = Exchange(rows // each, ranks, fraction, seed)
    cluster = _Cluster(plan, rows, batch, classes, staging)
    share = rows // ranks, -(-rows // ranks)
    moved = [plan.moved(epoch) for epoch in range(max(1, epochs))]
    sent = max(moved) * each * size
    peers = max(1, ranks - 1)
    steps = -(-share[1] // batch)
    return Simulation(
        plan, each, size, batch, share, steps, (min(moved), max(moved)), sent, sent / steps, cluster.unbalanced(),
        (min(moved) // peers, -(-max(moved) // peers)), (share[1] + plan.max_moved * each) * size,
        (*(cluster.mixing(epoch) for epoch in REPORTED_EPOCHS if epoch < epochs), cluster.mixing(epochs)),
        tuple(_ways(plan, share[1], each, size, asked)),
    )  # fmt: skip


def _ways(plan: Exchange, rows: int, block: int, size: int, request: int) -> list[Reading]:
    blocks, gets, some = -(-plan.units // plan.world), -(-block * size // request), plan.max_moved
    return [
        Reading("rows exchanged", 0, 0),
        Reading("blocks owned, kept", some * gets, some * block * size),
        Reading("blocks owned, anew", blocks * gets, rows * size),
        Reading("single rows", rows * -(-size // request), rows * size),
    ]


class _Cluster:
    """Blocks on ranks; some of them are sampled."""

    def __init__(self, plan: Exchange, rows: int, batch: int, classes: int, staging: Staging) -> None:
        self._plan, self._rows, self._classes, self._staging = plan, rows, classes, staging
        self._share = rows // plan.world
        self._batch = min(batch, self._share)
        self._key = random.derive(plan.seed, 1)
        self._even = np.full(classes, 1 / classes)

    def unbalanced(self) -> int:
        """Count blocks that ranks send beyond those received, or to themselves, in some turns of the first exchange."""
        plan = self._plan
        epoch = next((epoch for epoch in range(1000) if plan.moved(epoch)), None)
        if epoch is None:
            return 0
        wrong, ranks = 0, np.arange(plan.world)
        for turn in np.unique(np.linspace(0, plan.moved(epoch) - 1, TURNS).astype(np.int64)).tolist():
            to = plan.along(epoch, ranks, np.full(plan.world, turn))
            wrong += int(abs(np.bincount(to, minlength=plan.world) - 1).sum() + (to == ranks).sum())
        return wrong

    def mixing(self, epoch: int) -> Mixing:
        """Return the mixing in one epoch."""
        plan, world = self._plan, self._plan.world
        home, among = plan.at_home(epoch), max(1, world - 1)
        kept = (home * world - 1) / among if world > 1 else 1.0
        least = (plan.units - plan.least) / max(1, plan.units - 1) / plan.least  # with random blocks
        first = least if self._staging == "random" else self._between_ranks()
        variance = kept**2 * first + (1 - kept**2) * least
        within = (1 - variance) * (self._share - self._batch) / max(1, self._share - 1)
        share = 1 / world
        paper = share + (1 - share) * (1 - plan.fraction) ** epoch
        batches = min(BATCHES, MAX_ROWS // (world * self._batch))
        counted = self._deff(epoch, batches, together=True) if batches > 7 else None
        return Mixing(
            epoch, home, paper, self._at_home(epoch), within + self._batch * variance,
            self._deff(epoch, BATCHES, together=False), within, counted,
        )  # fmt: skip

    def _between_ranks(self) -> float:
        """Return the variance of label means between ranks with contiguous parts, relative to its maximum."""
        edges = np.linspace(0, 1, self._classes + 1)
        ends = np.arange(self._plan.world + 1) / self._plan.world
        inside = np.minimum(ends[1:, None], edges[None, 1:]) - np.maximum(ends[:-1, None], edges[None, :-1])
        return self._distance(np.maximum(inside, 0) * self._plan.world)

    def _distance(self, means: npt.NDArray[np.float64]) -> float:
        """Return the mean squared distance of label means from the overall mean, relative to a row's variance."""
        return float(((means - self._even) ** 2).sum(axis=1).mean() / (1 - (self._even**2).sum()))

    def _at_home(self, epoch: int) -> float:
        some = min(MAX_COUNTED, self._plan.units)
        units = random.permute(self._plan.units, self._key, 0, some)
        first, _ = self._plan.holders(units, 0)
        return float((self._plan.holders(units, epoch)[0] == first).mean())

    def _deff(self, epoch: int, batches: int, *, together: bool) -> float:
        """Count the deff of batches of random ranks, or of all ranks together."""
        plan, world = self._plan, self._plan.world
        key = random.derive(plan.seed, 2, epoch, together)
        drawn = (random.randoms(key, 0, batches) % np.uint64(world)).astype(np.int64)
        ranks = np.tile(np.arange(world), batches) if together else drawn
        keys = (random.derive(key, at) for at in range(len(ranks)))
        rows = np.concatenate([random.permute(self._share, one, 0, self._batch) for one in keys])
        ranks = np.repeat(ranks, self._batch)
        labels = self._labels(ranks, rows, epoch).reshape(batches, -1)
        counts = np.stack([(labels == label).sum(axis=1) for label in range(self._classes)], axis=1)
        return self._distance(counts / labels.shape[1]) * labels.shape[1]

    def _labels(self, ranks: IntArray, rows: IntArray, epoch: int) -> IntArray:
        """Return the labels of ranks' rows."""
        plan = self._plan
        sizes = (ranks + 1) * plan.units // plan.world - ranks * plan.units // plan.world
        each = self._share / sizes
        slots = np.minimum((rows / each).astype(np.int64), sizes - 1)
        units = plan.origins(ranks, slots, epoch)
        if self._staging == "random":
            units = random.permute_at(plan.units, random.derive(plan.seed, 3), units)
        labels = (units + rows / each - slots) / plan.units * self._classes
        return np.asarray(np.minimum(labels, self._classes - 1), np.int64)
