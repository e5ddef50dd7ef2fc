"""One pass of the SGD kernel over a table, to learn, to measure, to score or to survey."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadValue, BudgetTooSmall
from corgipile.linear.features import Features
from corgipile.linear.row_names import RowName
from corgipile.linear.scaling import Moments
from corgipile.linear.sgd import SGD, Figures, Locate, rows_in
from corgipile.linear.sparse import Sparse, gathered
from corgipile.loader.buffer import SlotArray
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.orders.order import visited_rows
from corgipile.tables.table import Table, even_cuts

__all__ = ["checked", "learn", "measure", "moments", "reader", "scores"]

READ_MEMORY = 4 << 20
SURVEYED = 1 << 14  # rows at a time
COUNTED = 1 << 16  # labels at a time
Count = Callable[[int], object]
Labels = Callable[[npt.NDArray[Any], npt.NDArray[Any] | None], object]
Watch = Callable[[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.float64]], object]
SCORED = 1 << 17  # scores at a time


def row_at(feeder: BufferedReader, epoch: int, step: int) -> Callable[[int], str]:
    """Return what names a row by its place in the visits of a step; nothing is read to find out."""

    def name(place: int) -> str:
        rows = next(islice(visited_rows(feeder.order, feeder.blocks, feeder.key(epoch)), step, None))
        return RowName(feeder.table, int(rows[place]))

    return name


def learn(
    sgd: SGD,
    feeder: BufferedReader,
    label: str,
    rate: float,
    epoch: int,
    on_rows: Count | None = None,
    on_labels: Labels | None = None,
    weight: str | None = None,
) -> Figures:
    """Run one epoch and return its figures; ``weight`` is the column of what rows count for.

    Raises:
        BadValue: Every row was skipped, or there is none, or none counts for anything.
    """
    sgd.begin(rate)
    steps = feeder.epoch(epoch)
    if on_labels is not None and feeder.kept() and not sgd.loss.numbers:  # counts ask for no order
        on_labels(feeder.buffer.dense(label), None if weight is None else feeder.buffer.dense(weight))
        on_labels = None
    for step, visit in enumerate(steps):
        where = row_at(feeder, epoch, step)
        labels, weights = feeder.buffer.dense(label), None if weight is None else feeder.buffer.dense(weight)
        sgd.learn(rows_in(feeder.buffer, sgd.inputs, visit), labels, visit, where, weights)
        if on_labels is not None:
            for start in range(0, len(visit), COUNTED):
                some = visit[start : start + COUNTED]
                on_labels(labels[some], None if weights is None else weights[some])
        if on_rows is not None:
            on_rows(len(visit))
    return checked(sgd.flush(), sgd, feeder)


def checked(figures: Figures, sgd: SGD, feeder: BufferedReader) -> Figures:
    """Return figures of rows that counted for something.

    Raises:
        BadValue: None did.
    """
    if not figures.rows:
        why = f"all {sgd.skipped} were skipped: none can be learnt from" if sgd.skipped else "there are none"
        raise BadValue(f"no rows of {feeder.table!r} were used; {why}")
    if not figures.weight:
        raise BadValue(f"the weights of {feeder.table!r} are all zero; one above 0 is needed")
    return figures


def measure(
    sgd: SGD, feeder: BufferedReader, label: str, weight: str | None = None, watch: Watch | None = None
) -> Figures:
    """Return the figures of a table without learning: a pass at learning rate 0.

    Args:
        sgd: The model.
        feeder: Reads the rows.
        label: The column of labels.
        weight: That of what rows count for.
        watch: Is told the scores of rows, [rows, outputs], their labels and what they count for.
    """
    sgd.eval_mode()
    if watch is None:
        return learn(sgd, feeder, label, 0.0, 0, weight=weight)
    sgd.begin(0.0)
    for step, visit in enumerate(feeder.epoch(0)):
        rows, where = rows_in(feeder.buffer, sgd.inputs, visit), row_at(feeder, 0, step)
        labels, weights = feeder.buffer.dense(label), None if weight is None else feeder.buffer.dense(weight)
        sgd.learn(rows, labels, visit, where, weights)
        some = visit[sgd.counted(visit)]
        tell(watch, partial(_scores_of, sgd, rows, some, where), sgd.outputs, some, labels, weights)
    return checked(sgd.flush(), sgd, feeder)


def _scores_of(sgd: SGD, rows: Any, visit: SlotArray, where: Locate, some: slice) -> npt.NDArray[Any]:
    return sgd.decide(rows, visit[some], further(where, some.start))


def further(where: Locate, start: int) -> Locate:
    """Return what names a row by its place after another."""
    return lambda place: where(start + place)


def tell(
    watch: Watch,
    scores: Callable[[slice], npt.NDArray[Any]],
    outputs: int,
    visit: SlotArray,
    labels: npt.NDArray[Any],
    weights: npt.NDArray[Any] | None,
) -> None:
    """Tell the scores of the rows of a step, some at a time: of many classes each has many."""
    some = max(1, SCORED // outputs)
    for start in range(0, len(visit), some):
        part = slice(start, start + some)
        slots = visit[part]
        counts = np.ones(len(slots)) if weights is None else weights[slots].astype(np.float64)
        watch(scores(part), labels[slots], counts)


def moments(inputs: Features, table: Table, feeder: BufferedReader | None = None) -> Moments:
    """Return mean and spread of each feature, by reading them once; of rows that a feeder keeps, without."""
    found = Moments(inputs)
    if feeder is not None and feeder.kept():
        for start, stop in pairwise(even_cuts(len(table), SURVEYED).tolist()):
            _survey(found, inputs, feeder, np.arange(start, stop, dtype=np.int32))
        return found
    with reader(inputs, table) as once:
        for visit in once.epoch(0):
            _survey(found, inputs, once, visit)
    return found


def _survey(found: Moments, inputs: Features, feeder: BufferedReader, visit: SlotArray) -> None:
    """Take rows that wait into the moments."""
    rows = rows_in(feeder.buffer, inputs, visit)
    if not isinstance(rows, Sparse):
        found.add(rows, visit)
        return
    for start in range(0, len(visit), SURVEYED):
        indices, values, lengths = gathered(rows, visit[start : start + SURVEYED], inputs.dtype)
        found.add_sparse(indices, values, len(lengths))


def reader(inputs: Features, table: Table, label: str | None = None, weight: str | None = None) -> BufferedReader:
    """Open a feeder that reads a table once, as it lies, in little memory: as much as a few of its rows need."""
    memory = READ_MEMORY
    while True:
        try:
            return inputs.feeder(table, label, "no_shuffle", memory, 0, weight=weight)
        except BudgetTooSmall:
            if memory > 1 << 62:
                raise
            memory *= 2


def scores(sgd: SGD, feeder: BufferedReader) -> Iterator[npt.NDArray[Any]]:
    """Yield the scores of a table's rows as they lie, [rows, outputs] a step."""
    for step, visit in enumerate(feeder.epoch(0)):
        yield sgd.decide(rows_in(feeder.buffer, sgd.inputs, visit), visit, row_at(feeder, 0, step))
