"""Comparison of orders: trains one model by each on the same table and measures them."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt

from corgipile import orders, tables
from corgipile.arguments import takes
from corgipile.errors import BadArgument, CorgiPileError, DivergenceWarning
from corgipile.linear.evaluation import measuring
from corgipile.linear.features import find_inputs
from corgipile.linear.problem import prepare
from corgipile.linear.schedule import schedule_of
from corgipile.linear.training import Training
from corgipile.loader import Loader
from corgipile.orders import Order, visited_rows
from corgipile.quality import AuditReport, Report, audit, measure
from corgipile.quality.keys import Keys
from corgipile.relayout.once import shuffled_once
from corgipile.resident import peaking
from corgipile.settings import BLOCK, CALL, TEST, Setting, Settings
from corgipile.sizes import Size, real, whole, yes_or_no
from corgipile.tables import Table
from corgipile.tables.columns import column

if TYPE_CHECKING:
    from corgipile.linear.problem import Task
    from corgipile.linear.schedule import Schedule
    from corgipile.loader.buffered_reader import BufferedReader

__all__ = ["ORDERS", "CompareArguments", "Result", "compare", "measure_order"]

SHUFFLE_ONCE = "shuffle_once"
ORDERS = (
    "no_shuffle",
    "sliding_window",
    "reservoir",
    "block_only",
    "corgipile",
    "riffle",
    "balanced",
    "full",
    SHUFFLE_ONCE,
)


@dataclass(frozen=True)
class Result:
    """The result of one order.

    Score and loss are those of the held-out rows, or of the training rows without them, after each epoch; unknown
    values are NaN.

    Attributes:
        order: Its name.
        metric: The metric of ``score``: "accuracy" or "r2".
        scores: Score after each epoch, averaged over seeds.
        spread: Standard deviation of the last score over seeds; 0 for one seed.
        seeds: Number of seeds.
        loss: Mean loss after the last epoch.
        losses: Mean loss after each epoch.
        elapsed: Seconds of training until the end of each epoch, including the seconds spent before the first one.
        seconds: Median seconds of an epoch, without evaluation.
        rows_per_second: Rows of the table per second of an epoch, however often an order visits them.
        bytes_read: Bytes read in an epoch.
        buffer_bytes: Largest number of bytes of rows in memory.
        peak_bytes: Peak resident memory of the process, libraries included; 0 if unknown.
        deff: Design effect of a batch in the plan of the first epoch; 1.0 is a full shuffle.
        prefix: Measured prefix discrepancy.
        setup_seconds: Seconds spent before the first epoch to write the table in another order.
        failure: The error if there is no result, else "".
        warning: A warning about the result, such as diverging training, else "".
        audit: Audit of two more epochs of a loader, if requested.
    """

    order: str
    metric: str = "accuracy"
    scores: tuple[float, ...] = ()
    spread: float = 0.0
    seeds: int = 1
    loss: float = math.nan
    losses: tuple[float, ...] = ()
    elapsed: tuple[float, ...] = ()
    seconds: float = math.nan
    rows_per_second: float = math.nan
    bytes_read: int = 0
    buffer_bytes: int = 0
    peak_bytes: int = 0
    deff: float = math.nan
    prefix: float = math.nan
    setup_seconds: float = 0.0
    failure: str = ""
    warning: str = ""
    audit: AuditReport | None = None

    @property
    def score(self) -> float:
        """Return the score after the last epoch."""
        return self.scores[-1] if self.scores else math.nan


@dataclass(kw_only=True, eq=False, repr=False)
class CompareArguments(Settings):
    """The arguments of `compare`; two defaults differ from training, and ``order`` has several orders."""

    table: Any = field(kw_only=False)
    learning_rate: Annotated[
        float | None, Setting("Rate of the first epoch; the usual one of the step by default.", partial(real, above=0))
    ] = None
    epochs: Annotated[int, Setting("Passes over the table.", partial(whole, least=1))] = 5
    test: Annotated[Any, TEST] = None
    order: Annotated[Sequence[Order | str], Setting("Orders to compare, with commas between; all by default.")] = ORDERS
    block: Annotated[Size | None, BLOCK] = None
    seeds: Annotated[int, Setting("Run each order with so many seeds: mean and spread.", partial(whole, least=1))] = 1
    batch: Annotated[int, Setting("Rows of a batch for which deff is measured.", partial(whole, least=1))] = 256
    folder: str | Path | None = None
    audited: Annotated[bool, Setting("", yes_or_no)] = False
    callback: Annotated[Callable[[Result], object] | None, CALL] = None
    on_rows: Annotated[Callable[[int], object] | None, CALL] = None


@dataclass(frozen=True)
class _Plan:
    """Common inputs of all orders; the table was surveyed once for all of them."""

    given: CompareArguments
    task: "Task"
    schedule: "Schedule"
    labels: npt.NDArray[Any]
    seed: int
    test: Table
    copied: bool = False  # whether the source is a reordered copy of the given table


@takes(CompareArguments)
def compare(given: CompareArguments) -> list[Result]:  # noqa: D417 - the arguments are those of CompareArguments
    """Train one model by several orders on the same table with the same memory.

    ``"shuffle_once"`` reshuffles the table to a temporary file in two passes within the same memory and reads it in
    storage order; its setup time is reported separately. All orders are checked before the first one runs. A failing
    order, such as one that exceeds the memory or diverges, reports its error in its result; the others still run.

    Args:
        table: Table, or a source that ``corgipile.open`` takes.
        model: This, features, label, encode, text, interactions, hash_bits, ngrams, missing, epochs, step, decay, l2,
            l1, max_norm, batch_size, memory, intercept, average and standardize are as for `corgipile.train`.
        learning_rate: Learning rate of the first epoch for all orders; None: the default of the step.
        test: Held-out rows to score; the table itself by default.
        order: Orders, or their names.
        block: Block size of all orders given by name; each chooses its own by default.
        seed: Seed of all orders.
        seeds: Number of seeds per order, from ``seed`` on; results are means with a spread.
        batch: Rows of a batch for which deff is measured.
        folder: Folder of the temporary file; the system's by default.
        audited: Audit two more epochs of each order, read by a loader, labels only: `Result.audit`.
        callback: Called with each result.
        on_rows: Called with the number of rows trained on since the last call.

    Returns:
        One result per order.

    Example:
        >>> from corgipile.datasets import clustered
        >>> rows = clustered(2000, classes=2)
        >>> sorted_rows, shuffled = compare(rows, epochs=2, memory="1MB", order=["no_shuffle", "full"])
        >>> sorted_rows.score < shuffled.score, sorted_rows.deff > 200, shuffled.deff < 2
        (True, True, True)
    """
    opened, label = tables.open(given.table), given.label
    schedule = schedule_of(given)
    held_out = opened if given.test is None else tables.open(given.test)
    chosen = [one if one == SHUFFLE_ONCE else _with_block(one, label, given.block) for one in _names(given.order)]
    if not chosen:
        raise BadArgument("order must name at least one order to compare")
    task, labels = _prepare(opened, given)
    plan = _Plan(given, task, schedule, labels, given.seed, held_out)
    plans = [replace(plan, seed=seed) for seed in range(given.seed, given.seed + given.seeds)]
    results = []
    for order in chosen:
        results.append(_result(order, plans))
        if given.callback is not None:
            given.callback(results[-1])
    return results


def _prepare(table: Table, given: CompareArguments) -> "tuple[Task, npt.NDArray[Any]]":
    """Return the training task and the labels, which are read once for classes and measurements."""
    task = prepare(table, given)
    labels = column(task.source, task.label)
    task.labels.keep(labels)
    return task.with_statistics(), labels


def measure_order(
    table: Table,
    order: Order | str,
    labels: npt.ArrayLike,
    *,
    features: str | Sequence[str] | None = None,
    label: str = "label",
    memory: Size | None = "64MB",
    seed: int = 0,
    epoch: int = 0,
    batch: int = 256,
) -> Report:
    """Measure the visits of an epoch as training would make them, without reading rows.

    Args:
        table: The table, for its blocks and their sketch.
        order: An order or its name.
        labels: Label of each row, in storage order.
        features: Feature columns, which determine the row size.
        label: Label column.
        memory: Budget for rows in memory.
        seed: Seed of the order.
        epoch: Number of the epoch.
        batch: Rows of a batch.

    Example:
        >>> from corgipile.datasets import clustered
        >>> rows = tables.open(clustered(1000, classes=2))
        >>> measure_order(rows, "no_shuffle", column(rows, "label"), batch=100).deff
        100.0
    """
    with find_inputs(table, features, label).feeder(table, label, order, memory, seed) as feeder:
        return _measured(feeder, labels, epoch, batch)


def _measured(feeder: "BufferedReader", labels: npt.ArrayLike, epoch: int, batch: int) -> Report:
    visits = visited_rows(feeder.order, feeder.blocks, feeder.key(epoch))
    return measure(visits, labels, min(batch, len(feeder.table)))


def _with_block(order: Order | str, label: str, block: Size | None) -> Order:
    if not isinstance(order, str):
        if block is not None:
            raise BadArgument(f"block must be left out for {order!r}, which has its own, got {block!r}")
        return order
    built: Any = orders.named(order)
    if getattr(built, "balance", None) is not None:
        built = replace(built, balance=label)
    return built if block is None else replace(built, block=block)  # type: ignore[no-any-return]


def _names(order: Sequence[Order | str] | Order | str) -> Sequence[Order | str]:
    return [order] if isinstance(order, str) or hasattr(order, "steps") else order  # type: ignore[list-item]


def _name(order: Order | str) -> str:
    if isinstance(order, str):
        return order
    return "balanced" if getattr(order, "balance", None) is not None else order.name


def _result(order: Order | str, plans: Sequence[_Plan]) -> Result:
    """Run one order with every seed; an error becomes its result, which keeps the other orders' results."""
    try:
        return _mean([_with_seed(order, plan) for plan in plans])
    except (CorgiPileError, OSError, MemoryError) as error:
        return Result(_name(order), seeds=len(plans), failure=str(error) or type(error).__name__)


def _with_seed(order: Order | str, plan: _Plan) -> Result:
    if not isinstance(order, str):
        return _run(order, plan)
    given = plan.given
    with shuffled_once(plan.task.source, given.memory or "64MB", plan.seed, given.folder) as (copy, seconds):
        labels = column(copy, plan.task.label)
        result = _run(
            orders.NoShuffle(), replace(plan, task=replace(plan.task, source=copy), labels=labels, copied=True)
        )
        elapsed = tuple(seconds + spent for spent in result.elapsed)
        return replace(result, order=order, setup_seconds=seconds, elapsed=elapsed)


def _mean(runs: Sequence[Result]) -> Result:
    if len(runs) == 1:
        return runs[0]
    names = ("loss", "seconds", "rows_per_second", "deff", "prefix", "setup_seconds")
    means: dict[str, Any] = {name: fmean(getattr(run, name) for run in runs) for name in names}
    for name in ("scores", "losses", "elapsed"):
        means[name] = tuple(fmean(past) for past in zip(*(getattr(run, name) for run in runs), strict=True))
    means["peak_bytes"] = max(run.peak_bytes for run in runs)
    spread = stdev(run.score for run in runs)
    warning = "; ".join(dict.fromkeys(run.warning for run in runs if run.warning))
    return replace(runs[0], spread=spread, seeds=len(runs), warning=warning, **means)


def _run(order: Order, plan: _Plan) -> Result:

    task, given = plan.task, plan.given
    with task.feeder(order, given.memory, plan.seed) as feeder:
        training = Training(task, feeder, plan.schedule, None, {}, adaptive=False, on_rows=given.on_rows)
        with peaking() as peak, warnings.catch_warnings(record=True) as warned, measuring(plan.test, task) as judge:
            warnings.simplefilter("always", DivergenceWarning)
            history = training.run(given.epochs, judge, _idle, _idle).history
        quality = _measured(feeder, plan.labels, 0, given.batch)
        buffer_bytes, fitted = feeder.buffer_bytes, feeder.order
    metric = task.loss.score
    seconds = median(record["seconds"] for record in history)
    return Result(
        _name(order),
        metric=metric,
        scores=tuple(float(record[f"test_{metric}"]) for record in history),
        loss=float(history[-1]["test_loss"]),
        losses=tuple(float(record["test_loss"]) for record in history),
        elapsed=tuple(accumulate(float(record["seconds"]) for record in history)),
        seconds=seconds,
        rows_per_second=min(history[-1]["rows"], len(task.source)) / seconds,
        bytes_read=int(np.median([record["bytes_read"] for record in history])),
        buffer_bytes=buffer_bytes,
        peak_bytes=peak.nbytes,
        deff=quality.deff,
        prefix=quality.prefix,
        warning="; ".join(str(record.message) for record in warned if issubclass(record.category, DivergenceWarning)),
        audit=_audit(fitted, plan) if given.audited else None,
    )


def _audit(order: Order, plan: _Plan) -> AuditReport:
    """Audit a loader's batches in this order; only the label column is read."""
    label, batch = plan.task.label, min(plan.given.batch, len(plan.task.source))
    with Loader(
        plan.task.source, order=order, memory=None, columns=[label], batch_size=batch, seed=plan.seed
    ) as loader:
        batches = _Numbered(loader, label, plan.labels, numbers=Keys(plan.labels).kinds == 1)
        if plan.copied:  # the copy's row numbers are meaningless
            return audit(batches, key=label)
        return audit(batches, id="row", key=label, rows=len(plan.labels))


@dataclass(frozen=True)
class _Numbered:
    """Batches of labels with their planned row numbers; -1 if the label differs from the planned row's.

    Numeric labels become a column of vectors: the audit must not treat a sample's few values as classes.
    """

    loader: "Loader"
    label: str
    labels: npt.NDArray[Any]
    numbers: bool

    def __iter__(self) -> Iterator[dict[str, npt.NDArray[Any]]]:
        feeder = self.loader.feeder
        visits = visited_rows(feeder.order, feeder.blocks, feeder.key(self.loader.epoch))
        pending = np.zeros(0, np.int64)
        for batch in self.loader:
            labels = np.asarray(batch[self.label])
            while len(pending) < len(labels):
                pending = np.concatenate([pending, next(visits)])
            rows, pending = pending[: len(labels)], pending[len(labels) :]
            numbered = np.where(self.labels[rows] == labels, rows, -1)
            yield {"row": numbered, self.label: labels[:, None] if self.numbers else labels}


def _idle(_: object) -> None:
    """Ignore a training's report of an epoch."""
