"""Trains linear models by SGD, straight from the slots of the buffer."""

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import BadArgument, BadValue, Diverged
from corgipile.linear import passes
from corgipile.linear.inputs import Inputs, find_inputs
from corgipile.linear.labels import check_classes, find_classes
from corgipile.linear.machine import LOSSES, Machine, OnBad
from corgipile.linear.model import Model
from corgipile.linear.saving import MODEL
from corgipile.loader.feeder import Feeder
from corgipile.orders import Order, Riffle
from corgipile.outputs import check_target
from corgipile.sizes import Size
from corgipile.tables import open as open_table
from corgipile.tables.base import Table

__all__ = ["train"]

ENOUGH, LOSS_GROWS = 1, 2  # of kernel/epochs.h
Record = dict[str, Any]


@dataclass(frozen=True)
class Schedule:
    """Learning rate by epoch, and when to stop."""

    learning_rate: float
    decay: float
    l2: float
    tolerance: float | None

    def __post_init__(self) -> None:
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise BadArgument(f"learning_rate must be positive, got {self.learning_rate}")
        if not 0 < self.decay <= 1:
            raise BadArgument(f"decay must be above 0 and at most 1, got {self.decay}")
        if not 0 <= self.l2 * self.learning_rate < 1:
            raise BadArgument(f"l2 must be 0 or more, and below 1 / learning_rate, got {self.l2}")
        if self.tolerance is not None and not self.tolerance >= 0:
            raise BadArgument(f"tolerance must be 0 or more, got {self.tolerance}")

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch.

        Example:
            >>> Schedule(0.5, 0.5, 0.0, None).rate(2)
            0.125
        """
        return _kernel.sgd_rate(self.learning_rate, self.decay, epoch)

    def enough(self, losses: Sequence[float], epoch: int) -> bool:
        """Say whether the loss improved too little for two epochs in a row.

        Raises:
            Diverged: The last loss is NaN, infinite, or growing and far above the first.

        Example:
            >>> Schedule(0.1, 1.0, 0.0, 0.01).enough([1.0, 0.5, 0.499, 0.499], 3)
            True
        """
        verdict = _kernel.sgd_verdict(np.array(losses), -1.0 if self.tolerance is None else self.tolerance)
        if verdict == LOSS_GROWS:
            raise self.diverged(epoch, f"the loss is {losses[-1]:.6g}, after {losses[0]:.6g} in the first epoch")
        return verdict == ENOUGH

    def diverged(self, epoch: int, why: str) -> Diverged:
        """Make the error that suggests a smaller step."""
        return Diverged(f"training diverged in epoch {epoch}: {why}; try learning_rate={self.learning_rate / 10:g}")


def train(
    table: Any,
    *,
    model: str = "logistic",
    features: str | Sequence[str] | None = None,
    label: str = "label",
    epochs: int = 5,
    learning_rate: float = 0.01,
    decay: float = 0.95,
    l2: float = 0.0,
    batch_size: int = 1,
    order: Order | str = "riffle",
    memory: Size | None = "64MB",
    seed: int = 0,
    test: Any = None,
    intercept: bool = True,
    classes: Sequence[Any] | None = None,
    tolerance: float | None = None,
    warm_start: Model | None = None,
    save: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    on_bad: OnBad = "raise",
    callback: Callable[[Record], object] | None = None,
    on_rows: Callable[[int], object] | None = None,
) -> Model:
    """Train a linear model by SGD from a table of any size.

    Args:
        table: A path, glob or list of them, a `Table` or a ``pyarrow.Table``.
        model: ``"logistic"``, ``"svm"`` (hinge loss), ``"linear"`` (squared loss) or ``"softmax"``.
        features: The feature columns; see `corgipile.linear.inputs.find_inputs`.
        label: The label column: two values for logistic and svm, any number of classes for softmax.
        epochs: Passes over the table.
        learning_rate: Step size of the first epoch.
        decay: What it is multiplied by after each epoch.
        l2: Strength of the L2 penalty; the intercept is left alone.
        batch_size: Rows of an update, whose gradient is their mean.
        order: An order of `corgipile.orders`, or its name; ``"balanced"`` is Riffle balanced by the label.
        memory: Budget for rows in memory, read-ahead included.
        seed: Seed of the order.
        test: Another table to measure the model on after each epoch.
        intercept: Whether to learn one.
        classes: The class values, to spare the reading of the label column.
        tolerance: Stop when the loss improved by less than this share of it for two epochs in a row.
        warm_start: A model to go on from; its epochs count on, so 3 epochs and 2 more are 5.
        save: Model file, written after each epoch: from it a run that was interrupted goes on, with ``warm_start``, to
            the same bits. An earlier model that is there is replaced.
        overwrite: Let ``save`` replace a file that is no model of ours too, but never one that is read.
        on_bad: ``"skip"`` leaves out rows that the model cannot learn from (a feature or label that is NaN or infinite,
            a label of no class, sparse indices out of order); the history says how many (``skipped``).
        callback: Called after each epoch with its record.
        on_rows: Called after each step with the number of rows learnt.

    Returns:
        The model; its ``history`` has one record an epoch.

    Raises:
        Diverged: The loss became NaN, infinite or grew without bound.
        BadLabel: A label is none of the model's classes.
        BadValue: A feature or label is NaN, infinite or null, or the table has no rows.

    Example:
        >>> import corgipile as cp, pyarrow as pa
        >>> rows = pa.table({"x": [-2.0, -1.0, 1.0, 2.0] * 50, "label": [0, 0, 1, 1] * 50})
        >>> model = train(rows, epochs=3, learning_rate=0.1)
        >>> model.history[-1]["accuracy"], model.predict(rows)[:4].tolist()
        (1.0, [0, 0, 1, 1])
    """
    _check_counts(model, epochs, batch_size)
    schedule = Schedule(learning_rate, decay, l2, tolerance)
    opened = open_table(table)
    order = Riffle(balance=label) if order == "balanced" else order
    if save is not None:
        check_target(save, MODEL, inputs=(table, opened, test), overwrite=overwrite)
    inputs = find_inputs(opened, features, label, warm_start.width if warm_start else None)
    given = warm_start.classes if classes is None and warm_start else classes
    found = _classes(opened, label, model, given, skip=on_bad == "skip")
    if not len(opened):
        raise BadValue(f"{opened!r} has no rows to learn from")
    machine = Machine(model, inputs, found, batch_size=batch_size, l2=l2, intercept=intercept, on_bad=on_bad)
    if warm_start is not None:
        _go_on(machine, warm_start, model, found, intercept=intercept)
    history = [dict(record) for record in warm_start.history] if warm_start else []
    params = {
        "features": list(inputs.columns),
        "label": label,
        "epochs": epochs,
        "learning_rate": learning_rate,
        "decay": decay,
        "l2": l2,
        "batch_size": batch_size,
        "memory": memory,
        "seed": seed,
        "intercept": intercept,
        "tolerance": tolerance,
    }

    def now() -> Model:
        return Model(model, *machine.weights(), found, dict(params), history)

    with ExitStack() as stack:
        feeder = stack.enter_context(inputs.feeder(opened, label, order, memory, seed))
        params |= {"order": feeder.order.name, "buffer_bytes": feeder.buffer_bytes}
        measure = _measurer(stack, test, inputs, label, found)
        for epoch in range(len(history), len(history) + epochs):
            record = _epoch(machine, feeder, label, schedule, epoch, on_rows)
            record |= measure(machine)
            history.append(record)
            if callback is not None:
                callback(record)
            stop = schedule.enough([float(past["loss"]) for past in history], epoch)
            if save is not None:
                now().save(save, overwrite=overwrite)
            if stop:
                break
    if save is not None and not epochs:
        now().save(save, overwrite=overwrite)
    return now()


def _check_counts(model: str, epochs: int, batch_size: int) -> None:
    if model not in LOSSES:
        raise BadArgument(f"model must be one of {', '.join(LOSSES)}, got {model!r}")
    if epochs < 0:
        raise BadArgument(f"epochs must be 0 or more, got {epochs}")
    if batch_size < 1:
        raise BadArgument(f"batch_size must be at least 1, got {batch_size}")


def _classes(table: Table, label: str, model: str, given: Any, *, skip: bool) -> npt.NDArray[Any]:
    if given is None or model == "linear":
        return find_classes(table, label, model, skip=skip)
    find_classes(table, label, "linear")
    return check_classes(given, model, label)


def _go_on(machine: Machine, past: Model, kind: str, classes: npt.NDArray[Any], *, intercept: bool) -> None:
    """Put the weights of an earlier model into a machine.

    Raises:
        BadArgument: It is another kind of model, of other features or classes, or has an intercept that is unwanted.
    """
    if past.kind != kind or past.width != machine.inputs.width:
        raise BadArgument(
            f"warm_start is a {past.kind} model of {past.width} features; "
            f"a {kind} model of {machine.inputs.width} is needed"
        )
    if not np.array_equal(past.classes, classes):
        raise BadArgument(f"warm_start has classes {past.classes.tolist()}, not {classes.tolist()}")
    if not intercept and past.intercept.any():
        raise BadArgument("warm_start has an intercept; intercept=False goes on from a model without one")
    machine.assign(past.coef, past.intercept)


def _epoch(
    machine: Machine,
    feeder: Feeder,
    label: str,
    schedule: Schedule,
    epoch: int,
    on_rows: Callable[[int], object] | None,
) -> Record:
    start, read = time.perf_counter(), feeder.bytes_read
    try:
        figures = passes.learn(machine, feeder, label, schedule.rate(epoch), epoch, on_rows)
    except Diverged as error:
        raise schedule.diverged(epoch, str(error)) from None
    return {
        "epoch": epoch,
        **figures.record(machine.kind),
        "rows": figures.rows,
        "seconds": time.perf_counter() - start,
        "bytes_read": feeder.bytes_read - read,
        **({"skipped": machine.skipped} if machine.skipped else {}),
    }


def _measurer(
    stack: ExitStack, test: Any, inputs: Inputs, label: str, classes: npt.NDArray[Any]
) -> Callable[[Machine], Record]:
    """Return what measures a machine on the test table, if there is one."""
    if test is None:
        return lambda _: {}
    table = open_table(test)
    found = find_inputs(table, inputs.columns, label, inputs.width)
    if found.width != inputs.width:
        raise BadArgument(f"the test table has {found.width} features, the table {inputs.width}; as many are needed")
    feeder = stack.enter_context(passes.reader(found, table, label))

    def measure(machine: Machine) -> Record:
        judge = Machine(machine.kind, found, classes)
        judge.assign(*machine.weights())
        record = passes.measure(judge, feeder, label).record(machine.kind)
        return {f"test_{name}": value for name, value in record.items()}

    return measure
