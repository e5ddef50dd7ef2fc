"""Trains one model by every order of the field on one table, and measures each."""

import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from corgipile import orders, scratch, tables
from corgipile.errors import BadArgument, CorgiPileError, DivergenceWarning
from corgipile.orders import Order, visited_rows
from corgipile.outputs import writing
from corgipile.quality import Report, measure
from corgipile.relayout import reshuffle
from corgipile.sizes import Size, whole
from corgipile.tables import Table
from corgipile.tables.columns import column

if TYPE_CHECKING:
    from corgipile.linear.schedule import Schedule
    from corgipile.linear.training import Task
    from corgipile.loader.feeder import Feeder

__all__ = ["ORDERS", "Result", "compare", "measure_order"]

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
    """What one order did.

    Score and loss are of the held-out rows where given, else of the rows trained on, with the model as it is after
    an epoch; what is not known is NaN.

    Attributes:
        order: Its name.
        metric: What ``score`` is: "accuracy" or "r2".
        scores: Score after each epoch; the mean where there are several seeds.
        spread: Standard deviation of the last score among the seeds; 0 for one.
        seeds: How many seeds.
        loss: Mean loss after the last epoch.
        seconds: Seconds of an epoch, median; measuring the model is not in it.
        rows_per_second: Rows of the table by these seconds, however often an order visits them.
        bytes_read: Bytes read in an epoch.
        buffer_bytes: Bytes of rows in memory at most.
        deff: Measured design effect of a batch; 1.0 is a full shuffle.
        prefix: Measured prefix discrepancy.
        setup_seconds: Seconds spent once, before the first epoch, to write the table in another order.
        failure: Why there is no result, empty if there is.
        warning: What is wrong with the result, empty if nothing is: training drifted away.
    """

    order: str
    metric: str = "accuracy"
    scores: tuple[float, ...] = ()
    spread: float = 0.0
    seeds: int = 1
    loss: float = math.nan
    seconds: float = math.nan
    rows_per_second: float = math.nan
    bytes_read: int = 0
    buffer_bytes: int = 0
    deff: float = math.nan
    prefix: float = math.nan
    setup_seconds: float = 0.0
    failure: str = ""
    warning: str = ""

    @property
    def score(self) -> float:
        """Return the score after the last epoch."""
        return self.scores[-1] if self.scores else math.nan


@dataclass(frozen=True)
class _Plan:
    """What all orders share; the table was surveyed once for all of them."""

    task: "Task"
    schedule: "Schedule"
    epochs: int
    labels: npt.NDArray[Any]
    memory: Size
    seed: int
    batch: int
    test: Table
    on_rows: Callable[[int], object] | None


def compare(
    table: Any,
    *,
    model: str = "logistic",
    features: str | Sequence[str] | None = None,
    label: str = "label",
    test: Any = None,
    memory: Size = "64MB",
    epochs: int = 5,
    learning_rate: float = 0.01,
    decay: float = 0.95,
    l2: float = 0.0,
    batch_size: int = 1,
    order: Sequence[Order | str] = ORDERS,
    block: Size | None = None,
    seed: int = 0,
    seeds: int = 1,
    batch: int = 256,
    folder: str | Path | None = None,
    callback: Callable[[Result], object] | None = None,
    on_rows: Callable[[int], object] | None = None,
) -> list[Result]:
    """Train one model by several orders on the same table with the same memory.

    ``"shuffle_once"`` is a two-pass reshuffle to a temporary file, within the same memory, read in storage order;
    what the reshuffle took is told apart. All orders are checked before the first is run. One that does not fit the
    memory, diverges, or fails in another way, says so in its result, and the others are run.

    Args:
        table: Table, or what ``corgipile.open`` takes.
        model: A loss by its name, as `corgipile.train` takes it.
        features: Feature columns, as for ``corgipile.train``.
        label: Label column.
        test: Held-out rows to score; the table itself by default.
        memory: Budget for rows in memory, read-ahead included.
        epochs: Passes over the table.
        learning_rate: Step of the first epoch.
        decay: Factor on the step from epoch to epoch.
        l2: Strength of L2 regularisation.
        batch_size: Rows of one update.
        order: Orders, or their names.
        block: Size of a block for all orders that are named; each chooses its own by default.
        seed: Seed of all orders.
        seeds: Run each order with so many seeds, from ``seed`` on, and give means and the spread.
        batch: Rows of a batch for which deff is measured.
        folder: Where the temporary file goes; where temporary files belong by default.
        callback: Called with each result.
        on_rows: Called with the number of rows learnt since the last call.

    Returns:
        One result an order.

    Example:
        >>> from corgipile.datasets import clustered
        >>> rows = clustered(2000, classes=2)
        >>> sorted_rows, shuffled = compare(rows, epochs=2, memory="1MB", order=["no_shuffle", "full"])
        >>> sorted_rows.score < shuffled.score, sorted_rows.deff > 200, shuffled.deff < 2
        (True, True, True)
    """
    from corgipile.linear.losses import check_kind  # noqa: PLC0415 - keeps the import of corgipile light
    from corgipile.linear.schedule import Schedule  # noqa: PLC0415
    from corgipile.linear.train import check_calls, check_way, prepare  # noqa: PLC0415

    opened = tables.open(table)
    check_kind(model)
    check_calls(callback=callback, on_rows=on_rows)
    check_way("full", memory, seed)
    schedule, epochs = Schedule(learning_rate, decay, l2, None), whole(epochs, "epochs", 1)
    batch_size = whole(batch_size, "batch_size", 1)
    seed, batch = whole(seed, "seed"), whole(batch, "batch", 1)
    held_out = opened if test is None else tables.open(test)
    chosen = [one if one == SHUFFLE_ONCE else _sized(one, label, block) for one in _names(order)]
    if not chosen:
        raise BadArgument("no orders are given; at least one is needed to compare")
    numbers = range(seed, seed + whole(seeds, "seeds", 1))
    task = prepare(opened, features, label, model, batch_size=batch_size, intercept=True, on_bad="raise")
    plan = _Plan(task, schedule, epochs, column(opened, label), memory, seed, batch, held_out, on_rows)
    results = []
    for one in chosen:
        result = _result(one, [replace(plan, seed=number) for number in numbers], folder)
        results.append(result)
        if callback is not None:
            callback(result)
    return results


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
    """Measure the visits of an epoch as training would make them; no row is read.

    Args:
        table: The table, for its cuts and the sketch of its blocks.
        order: An order or its name.
        labels: Label of each row, in storage order.
        features: Feature columns, which decide how many rows the memory holds.
        label: Label column.
        memory: Budget for rows in memory.
        seed: Seed of the order.
        epoch: Which epoch.
        batch: Rows of a batch.

    Example:
        >>> from corgipile.datasets import clustered
        >>> rows = tables.open(clustered(1000, classes=2))
        >>> measure_order(rows, "no_shuffle", column(rows, "label"), batch=100).deff
        100.0
    """
    from corgipile.linear.features import find_inputs  # noqa: PLC0415 - as in compare

    with find_inputs(table, features, label).feeder(table, label, order, memory, seed) as feeder:
        return _measured(feeder, labels, epoch, batch)


def _measured(feeder: "Feeder", labels: npt.ArrayLike, epoch: int, batch: int) -> Report:
    visits = visited_rows(feeder.order, feeder.blocks, feeder.key(epoch))
    return measure(visits, labels, min(batch, len(feeder.table)))


def _sized(order: Order | str, label: str, block: Size | None) -> Order:
    if not isinstance(order, str):
        if block is not None:
            raise BadArgument(f"block is {block!r}, but {order!r} has its own; name orders, or leave block out")
        return order
    made: Any = orders.named(order)
    if getattr(made, "balance", None) is not None:
        made = replace(made, balance=label)
    return made if block is None else replace(made, block=block)  # type: ignore[no-any-return]


def _names(order: Sequence[Order | str] | Order | str) -> Sequence[Order | str]:
    return [order] if isinstance(order, str) or hasattr(order, "steps") else order  # type: ignore[list-item]


def _name(order: Order | str) -> str:
    if isinstance(order, str):
        return order
    return "balanced" if getattr(order, "balance", None) is not None else order.name


def _result(order: Order | str, plans: Sequence[_Plan], folder: str | Path | None) -> Result:
    """Run one order with every seed; what goes wrong with it is its result, so that the others' are not lost."""
    try:
        return _mean([_with_seed(order, plan, folder) for plan in plans])
    except (CorgiPileError, OSError, MemoryError) as error:
        return Result(_name(order), seeds=len(plans), failure=str(error) or type(error).__name__)


def _with_seed(order: Order | str, plan: _Plan, folder: str | Path | None) -> Result:
    if not isinstance(order, str):
        return _run(order, plan)
    with _shuffled(plan.task.source, plan.memory, plan.seed, folder) as (copy, seconds):
        labels = column(copy, plan.task.label)
        result = _run(orders.NoShuffle(), replace(plan, task=replace(plan.task, source=copy), labels=labels))
        return replace(result, order=order, setup_seconds=seconds)


def _mean(runs: Sequence[Result]) -> Result:
    """Join the runs of several seeds."""
    if len(runs) == 1:
        return runs[0]
    names = ("loss", "seconds", "rows_per_second", "deff", "prefix", "setup_seconds")
    means: dict[str, Any] = {name: fmean(getattr(run, name) for run in runs) for name in names}
    scores = tuple(fmean(past) for past in zip(*(run.scores for run in runs), strict=True))
    spread = stdev(run.score for run in runs)
    warning = "; ".join(dict.fromkeys(run.warning for run in runs if run.warning))
    return replace(runs[0], scores=scores, spread=spread, seeds=len(runs), warning=warning, **means)


def _run(order: Order, plan: _Plan) -> Result:
    from corgipile.linear.train import measuring  # noqa: PLC0415
    from corgipile.linear.training import Training  # noqa: PLC0415 - as in compare

    task = plan.task
    with task.inputs.feeder(task.table(), task.label, order, plan.memory, plan.seed) as feeder:
        training = Training(task, feeder, plan.schedule, None, {}, adaptive=False, on_rows=plan.on_rows)
        with warnings.catch_warnings(record=True) as told, measuring(plan.test, task) as judge:
            warnings.simplefilter("always", DivergenceWarning)
            history = training.run(plan.epochs, judge, _idle, _idle).history
        quality = _measured(feeder, plan.labels, 0, plan.batch)
        buffer_bytes = feeder.buffer_bytes
    metric = task.loss.score
    seconds = median(record["seconds"] for record in history)
    return Result(
        _name(order),
        metric=metric,
        scores=tuple(float(record[f"test_{metric}"]) for record in history),
        loss=float(history[-1]["test_loss"]),
        seconds=seconds,
        rows_per_second=min(history[-1]["rows"], len(task.source)) / seconds,
        bytes_read=int(np.median([record["bytes_read"] for record in history])),
        buffer_bytes=buffer_bytes,
        deff=quality.deff,
        prefix=quality.prefix,
        warning="; ".join(str(one.message) for one in told if issubclass(one.category, DivergenceWarning)),
    )


def _idle(_: object) -> None:
    """Do nothing with what a training says after each epoch."""


@contextmanager
def _shuffled(table: Table, memory: Size, seed: int, folder: str | Path | None) -> Iterator[tuple[Table, float]]:
    """Write the rows in random order to a file that goes when the block ends; tell the seconds this took."""
    place = Path(tempfile.gettempdir() if folder is None else folder)
    with writing(place), scratch.folder(place, "compare") as room:
        path = room / "shuffled.arrow"
        start = time.perf_counter()
        reshuffle(table, path, memory=memory, seed=seed)
        yield tables.open(path), time.perf_counter() - start
