"""Trains one model by every order of the field on one table, and measures each."""

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile import orders, scratch, tables
from corgipile.about import column
from corgipile.errors import BadArgument, BudgetTooSmall, Diverged
from corgipile.orders import Order, visited_rows
from corgipile.outputs import writing
from corgipile.quality import Report, measure
from corgipile.reshuffle import reshuffle
from corgipile.sizes import Size
from corgipile.tables import Table

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
        scores: Score after each epoch.
        loss: Mean loss after the last epoch.
        seconds: Seconds of an epoch, median; measuring the model is not in it.
        rows_per_second: Rows visited in an epoch by these seconds.
        bytes_read: Bytes read in an epoch.
        buffer_bytes: Bytes of rows in memory at most.
        deff: Measured design effect of a batch; 1.0 is a full shuffle.
        prefix: Measured prefix discrepancy.
        setup_seconds: Seconds spent once, before the first epoch, to write the table in another order.
        failure: Why there is no result, empty if there is.
    """

    order: str
    metric: str = "accuracy"
    scores: tuple[float, ...] = ()
    loss: float = math.nan
    seconds: float = math.nan
    rows_per_second: float = math.nan
    bytes_read: int = 0
    buffer_bytes: int = 0
    deff: float = math.nan
    prefix: float = math.nan
    setup_seconds: float = 0.0
    failure: str = ""

    @property
    def score(self) -> float:
        """Return the score after the last epoch."""
        return self.scores[-1] if self.scores else math.nan


@dataclass(frozen=True)
class _Plan:
    """What all orders share."""

    label: str
    features: str | Sequence[str] | None
    memory: Size
    seed: int
    batch: int
    test: Table | None
    settings: dict[str, Any]
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
    batch: int = 256,
    folder: str | Path | None = None,
    callback: Callable[[Result], object] | None = None,
    on_rows: Callable[[int], object] | None = None,
) -> list[Result]:
    """Train one model by several orders on the same table with the same memory.

    ``"shuffle_once"`` is a two-pass reshuffle to a temporary file, within the same memory, read in storage order;
    what the reshuffle took is told apart. An order that does not fit the memory, or diverges, says so in its result.

    Args:
        table: Table, or what ``corgipile.open`` takes.
        model: "logistic", "svm", "linear" or "softmax".
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
        block: Size of a block for all orders; each chooses its own by default.
        seed: Seed of all orders.
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
    opened = tables.open(table)
    settings = {
        "model": model,
        "epochs": epochs,
        "learning_rate": learning_rate,
        "decay": decay,
        "l2": l2,
        "batch_size": batch_size,
    }
    held_out = opened if test is None else tables.open(test)
    plan = _Plan(label, features, memory, seed, batch, held_out, settings, on_rows)
    chosen = [one if one == SHUFFLE_ONCE else _sized(one, label, block) for one in order]
    labels = column(opened, label)
    results = []
    for one in chosen:
        if isinstance(one, str):
            with _shuffled(opened, memory, seed, folder) as (copy, seconds):
                result = _run(copy, orders.NoShuffle(), column(copy, label), plan)
                result = replace(result, order=SHUFFLE_ONCE, setup_seconds=seconds)
        else:
            result = _run(opened, one, labels, plan)
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
    from corgipile.linear.inputs import find_inputs  # noqa: PLC0415 - as in _run

    with find_inputs(table, features, label).feeder(table, label, order, memory, seed) as feeder:
        visits = visited_rows(feeder.order, feeder.blocks, feeder.key(epoch))
        return measure(visits, labels, min(batch, len(table)))


def _sized(order: Order | str, label: str, block: Size | None) -> Order:
    if not isinstance(order, str):
        return order
    made: Any = orders.named(order)
    if getattr(made, "balance", None) is not None:
        made = replace(made, balance=label)
    return made if block is None else replace(made, block=block)  # type: ignore[no-any-return]


def _run(table: Table, order: Order, labels: npt.NDArray[Any], plan: _Plan) -> Result:
    from corgipile.linear import train  # noqa: PLC0415 - keeps the import of corgipile light

    balanced = getattr(order, "balance", None) is not None
    name = "balanced" if balanced else order.name
    try:
        model = train(
            table,
            features=plan.features,
            label=plan.label,
            order=order,
            memory=plan.memory,
            seed=plan.seed,
            test=plan.test,
            on_rows=plan.on_rows,
            **plan.settings,
        )
    except (BudgetTooSmall, Diverged) as error:
        return Result(name, failure=str(error))
    quality = measure_order(
        table,
        order,
        labels,
        features=plan.features,
        label=plan.label,
        memory=plan.memory,
        seed=plan.seed,
        batch=plan.batch,
    )
    if not model.history:
        raise BadArgument("epochs is 0; at least 1 is needed to compare")
    metric = "r2" if model.kind == "linear" else "accuracy"
    seconds = median(record["seconds"] for record in model.history)
    return Result(
        name,
        metric=metric,
        scores=tuple(float(record[f"test_{metric}"]) for record in model.history),
        loss=float(model.history[-1]["test_loss"]),
        seconds=seconds,
        rows_per_second=model.history[-1]["rows"] / seconds,
        bytes_read=int(np.median([record["bytes_read"] for record in model.history])),
        buffer_bytes=int(model.params["buffer_bytes"]),
        deff=quality.deff,
        prefix=quality.prefix,
    )


@contextmanager
def _shuffled(table: Table, memory: Size, seed: int, folder: str | Path | None) -> Iterator[tuple[Table, float]]:
    """Write the rows in random order to a file that goes when the block ends; tell the seconds this took."""
    place = Path(tempfile.gettempdir() if folder is None else folder)
    with writing(place), scratch.folder(place, "compare") as room:
        path = room / "shuffled.arrow"
        start = time.perf_counter()
        reshuffle(table, path, memory=memory, seed=seed)
        yield tables.open(path), time.perf_counter() - start
