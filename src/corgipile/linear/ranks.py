"""One model trained by many ranks: weights are averaged after each batch or each epoch."""

import math
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, BadValue
from corgipile.linear.passes import Count, Labels, steps
from corgipile.linear.sgd import SGD, Figures
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.loader.default_order import chosen
from corgipile.orders import GlobalBatches, Order, Shard
from corgipile.settings import TrainArguments, changed
from corgipile.steps import step_of
from corgipile.tables.table import Table

__all__ = ["Ranks", "learn", "order_for", "rank_settings", "shard_of"]

Sums = npt.NDArray[np.float64]
SYNC_MODES = ("batch", "epoch")
ONE_RANK_SETTINGS = ("solver", "weight", "class_weight", "patience", "by", "labels")  # not supported with ranks


class Ranks(Protocol):
    """The processes that train one model.

    Attributes:
        rank: This rank.
        world: The number of ranks.
        sync: ``"batch"`` or ``"epoch"``: when weights are averaged.
    """

    rank: int
    world: int
    sync: str

    def sum(self, values: Sums, what: str) -> Sums:
        """Return the sums over all ranks, with the same bits on each; errors name ``what``."""


def rank_settings(given: TrainArguments, ranks: Ranks) -> TrainArguments:
    """Return the settings for training by ranks; without a named step, one that mean gradients allow.

    The mean of the ranks' weights after a step equals a step by their mean gradient if the step is the gradient times
    a rate and the L2 penalty a factor. It does not for adaptive rates or L1.

    Raises:
        BadArgument: A setting is not supported with ranks.
    """
    if ranks.sync not in SYNC_MODES:
        raise BadArgument(f"sync must be one of {', '.join(SYNC_MODES)}, got {ranks.sync!r}")
    if given.on_bad != "raise":
        raise BadArgument(
            f"ranks must train on the same rows each time, got on_bad={given.on_bad!r}; give on_bad='raise'"
        )
    for name, got in changed(given, ONE_RANK_SETTINGS):
        raise BadArgument(f"{name} needs one rank, got {got} and {ranks.world} ranks")
    if ranks.sync == "epoch":
        return given
    given = replace(given, step=given.step or "decay")
    if not step_of(given.step or "decay").same or given.l1 or given.max_norm or given.average:
        raise BadArgument(
            f"step={given.step!r}, l1={given.l1:g}, max_norm={given.max_norm}, average={given.average} do not allow "
            "mean gradients: give step='decay', 'constant' or 'inverse' without the others, or sync='epoch'"
        )
    return given


def order_for(order: Any, table: Table, label: str, batch_size: int, ranks: Ranks) -> Order:
    """Return the order for ranks: with global batches that are the same for any number of ranks."""
    resolved = chosen(order, table, label)
    return GlobalBatches.of(resolved, batch_size) if ranks.sync == "batch" else resolved


def shard_of(batch_size: int, order: Order, ranks: Ranks) -> Shard:
    """Return the checked shard of this rank."""
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
    """Train one epoch on this rank's rows, and return the figures of all ranks; raise PeerFailed if a rank is lost."""
    sgd.begin(rate)
    totals = np.zeros(3)  # labels, their sum, the sum of their squares
    batch = 0
    for step in steps(feeder, sgd.inputs, label, epoch=epoch):
        rows = len(step.visit)
        each = feeder.shard.batch if ranks.sync == "batch" else max(1, rows)
        for start in range(0, rows, each):
            part = step.part(slice(start, start + min(each, _batch_share(feeder, batch, ranks))))
            if len(part.visit):
                sgd.learn(*part)
                seen = step.labels[part.visit].astype(np.float64)
                totals += len(seen), seen.sum(), (seen * seen).sum()
                if on_labels is not None:
                    on_labels(step.labels[part.visit], None, None)
            if ranks.sync == "batch":
                _average(
                    sgd, len(part.visit), feeder.shard.batch, ranks, f"the weights after batch {batch} of epoch {epoch}"
                )
            batch += 1
        if on_rows is not None:
            on_rows(rows)
    figures = sgd.flush()
    if ranks.sync == "epoch":
        _average(sgd, figures.rows, 0, ranks, f"the weights after epoch {epoch}")
    return _total_figures(figures, totals, sgd, ranks, f"the figures of epoch {epoch}")


def _batch_share(feeder: BufferedReader, batch: int, ranks: Ranks) -> int:
    """Return this rank's number of rows of a batch; the last, short batch is split without repeating rows."""
    if ranks.sync == "epoch":
        return len(feeder.table)
    whole, left = divmod(len(feeder.table), feeder.shard.batch * ranks.world)
    if batch < whole:
        return feeder.shard.batch
    return (ranks.rank + 1) * left // ranks.world - ranks.rank * left // ranks.world


def _average(sgd: SGD, rows: int, batch: int, ranks: Ranks, what: str) -> None:
    """Set all ranks' weights to their mean, weighted by rows."""
    if rows < batch:
        sgd.flush()  # apply the gradient of an incomplete batch
    coef, bias = sgd.last()
    state = sgd.optimizer_state() if ranks.sync == "epoch" else None
    parts = [coef.ravel(), bias.ravel(), np.zeros(0) if state is None else state.ravel()]
    own = np.concatenate([part.astype(np.float64) for part in parts])
    summed = ranks.sum(np.append(own * rows, rows), what)
    if not summed[-1]:
        return
    mean = summed[:-1] / summed[-1]
    width, end = coef.size, coef.size + bias.size
    mean_state = None if state is None else mean[end:].reshape(state.shape)
    sgd.assign(mean[:width].reshape(coef.shape), mean[width:end].reshape(bias.shape), mean_state)


def _total_figures(figures: Figures, totals: Sums, sgd: SGD, ranks: Ranks, what: str) -> Figures:
    """Return the figures of all ranks: means by rows, and R² by the squares of all labels."""
    rows, score = figures.rows, figures.score
    if sgd.loss.numbers and rows:
        score = (1 - score) * (totals[2] - totals[1] ** 2 / totals[0]) / rows  # squared error per row
    score = score if math.isfinite(score) else 0.0
    loss = figures.loss if rows else 0.0
    summed = ranks.sum(np.array([rows, rows * loss, rows * score, *totals]), what)
    if not summed[0]:
        raise BadValue("no rows were used; there are none")
    score = summed[2] / summed[0]
    if sgd.loss.numbers:
        spread = summed[5] - summed[4] ** 2 / summed[3]
        score = 1 - summed[2] / spread if spread else math.nan
    return Figures(int(summed[0]), float(summed[1] / summed[0]), float(score))
