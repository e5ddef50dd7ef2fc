"""One model learnt by many ranks: the mean of their weights after each batch, or after each epoch."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, BadValue
from corgipile.linear.passes import Count, Labels, row_at
from corgipile.linear.sgd import SGD, Figures, rows_in
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.loader.default_order import chosen
from corgipile.orders import GlobalBatches, Order, Shard
from corgipile.settings import TrainArguments, declared
from corgipile.steps import step_of
from corgipile.tables.table import Table

__all__ = ["Ranks", "among", "learn", "order_for", "shard_of"]

Sums = npt.NDArray[np.float64]
WORDS = ("batch", "epoch")
ALONE = ("solver", "weight", "class_weight", "patience", "by", "labels")  # what one rank alone learns by


class Ranks(Protocol):
    """The processes that learn one model.

    Attributes:
        rank: This one.
        world: How many there are.
        sync: ``"batch"`` or ``"epoch"``: when the weights of all become their mean.
    """

    rank: int
    world: int
    sync: str

    def sum(self, values: Sums, what: str) -> Sums:
        """Return the sums over all ranks, the same bits on each; ``what`` it is for, errors say."""


def among(given: TrainArguments, ranks: Ranks) -> TrainArguments:
    """Return the settings that many ranks learn by: where no step is named, one that goes with mean gradients.

    The mean of the weights that ranks have after a step is the step of the mean of their gradients where a step is the
    gradient times a rate, and where the L2 penalty is a factor; it is not for rates by weight, or for L1.

    Raises:
        BadArgument: Settings do not go with ranks.
    """
    if ranks.sync not in WORDS:
        raise BadArgument(f"sync must be one of {', '.join(WORDS)}, got {ranks.sync!r}")
    if given.on_bad != "raise":
        raise BadArgument(
            f"many ranks learn from the same rows each time, got on_bad={given.on_bad!r}; give on_bad='raise'"
        )
    for name in ALONE:
        if getattr(given, name) != declared(TrainArguments)[name].default:
            raise BadArgument(f"{name} is for one rank, got {name}={getattr(given, name)!r} and {ranks.world} ranks")
    if ranks.sync == "epoch":
        return given
    given = replace(given, step=given.step or "decay")
    if not step_of(given.step or "decay").same or given.l1 or given.max_norm or given.average:
        raise BadArgument(
            f"step={given.step!r}, l1={given.l1:g}, max_norm={given.max_norm}, average={given.average} do not learn by "
            "mean gradients: give step='decay', 'constant' or 'inverse' without the others, or sync='epoch'"
        )
    return given


def order_for(order: Any, table: Table, label: str, batch_size: int, ranks: Ranks) -> Order:
    """Return the order by which ranks read: of global batches that are the same for any number of them."""
    found = chosen(order, table, label)
    return GlobalBatches.of(found, batch_size) if ranks.sync == "batch" else found


def shard_of(batch_size: int, order: Order, ranks: Ranks) -> Shard:
    """Return the share of this rank, and check that there is one."""
    batch = order.batch_rows(ranks.world) if isinstance(order, GlobalBatches) else batch_size
    return Shard.checked(ranks.rank, ranks.world, batch=batch)


def learn(
    ranks: Ranks,
    sgd: SGD,
    feeder: BufferedReader,
    label: str,
    rate: float,
    epoch: int,
    on_rows: Count | None = None,
    on_labels: Labels | None = None,
) -> Figures:
    """Run one epoch of this rank's rows, and return the figures of all.

    Raises:
        BadValue: There is no row.
        PeerFailed: Another rank died, or sent nothing in time.
    """
    sgd.begin(rate)
    totals = np.zeros(3)  # labels, their sum, that of their squares
    batch = 0
    for step, visit in enumerate(feeder.epoch(epoch)):
        where, labels = row_at(feeder, epoch, step), feeder.buffer.dense(label)
        each = feeder.shard.batch if ranks.sync == "batch" else max(1, len(visit))
        for start in range(0, len(visit), each):
            part = visit[start : start + each][: _own(feeder, batch, ranks)]
            if len(part):
                sgd.learn(rows_in(feeder.buffer, sgd.inputs, part), labels, part, _after(where, start))
                seen = labels[part].astype(np.float64)
                totals += len(seen), seen.sum(), (seen * seen).sum()
                if on_labels is not None:
                    on_labels(labels[part], None)
            if ranks.sync == "batch":
                _meet(sgd, len(part), feeder.shard.batch, ranks, f"the weights after batch {batch} of epoch {epoch}")
            batch += 1
        if on_rows is not None:
            on_rows(len(visit))
    figures = sgd.flush()
    if ranks.sync == "epoch":
        _meet(sgd, figures.rows, 0, ranks, f"the weights after epoch {epoch}")
    return _all(figures, totals, sgd, ranks, f"the figures of epoch {epoch}")


def _own(feeder: BufferedReader, batch: int, ranks: Ranks) -> int:
    """Return how many rows of a batch this rank learns from: of the last, short one, no row is learnt twice."""
    if ranks.sync == "epoch":
        return len(feeder.table)
    whole, rest = divmod(len(feeder.table), feeder.shard.batch * ranks.world)
    if batch < whole:
        return feeder.shard.batch
    return (ranks.rank + 1) * rest // ranks.world - ranks.rank * rest // ranks.world


def _after(where: Callable[[int], str], start: int) -> Callable[[int], str]:
    return lambda place: where(start + place)


def _meet(sgd: SGD, rows: int, batch: int, ranks: Ranks, what: str) -> None:
    """Give all ranks the mean of their weights, each counting as many times as it had rows."""
    if rows < batch:
        sgd.flush()  # the rows of a short batch wait for more
    coef, bias = sgd.last()
    beside = sgd.beside() if ranks.sync == "epoch" else None
    parts = [coef.ravel(), bias.ravel(), np.zeros(0) if beside is None else beside.ravel()]
    mine = np.concatenate([part.astype(np.float64) for part in parts])
    found = ranks.sum(np.append(mine * rows, rows), what)
    if not found[-1]:
        return
    mean = found[:-1] / found[-1]
    width, rest = coef.size, coef.size + bias.size
    kept = None if beside is None else mean[rest:].reshape(beside.shape)
    sgd.assign(mean[:width].reshape(coef.shape), mean[width:rest].reshape(bias.shape), kept)


def _all(figures: Figures, totals: Sums, sgd: SGD, ranks: Ranks, what: str) -> Figures:
    """Return the figures of all ranks together: means by rows, and R² by the squares of all labels."""
    rows, score = figures.rows, figures.score
    if sgd.loss.numbers and rows:
        score = (1 - score) * (totals[2] - totals[1] ** 2 / totals[0]) / rows  # squares that are left, a row
    score = score if math.isfinite(score) else 0.0
    loss = figures.loss if rows else 0.0
    found = ranks.sum(np.array([rows, rows * loss, rows * score, *totals]), what)
    if not found[0]:
        raise BadValue("no rows were used; there are none")
    score = found[2] / found[0]
    if sgd.loss.numbers:
        spread = found[5] - found[4] ** 2 / found[3]
        score = 1 - found[2] / spread if spread else math.nan
    return Figures(int(found[0]), float(found[1] / found[0]), float(score))
