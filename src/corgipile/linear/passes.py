"""A pass of the SGD kernel over a table: training, evaluation, scoring or moments."""

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
from corgipile.linear.sparse import Sparse, gather
from corgipile.loader.buffer import SlotArray
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.orders.order import visited_rows
from corgipile.tables.table import Table, even_cuts

__all__ = ["check_figures", "learn", "measure", "moments", "reader", "scores"]

READ_MEMORY = 4 << 20
SURVEY_ROWS = 1 << 14  # rows added to moments at a time
LABEL_ROWS = 1 << 16  # labels counted at a time
Count = Callable[[int], object]
Labels = Callable[[npt.NDArray[Any], npt.NDArray[Any] | None], object]
Watch = Callable[[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.float64]], object]
MAX_SCORES = 1 << 17  # scores computed at a time


def row_at(feeder: BufferedReader, epoch: int, step: int) -> Callable[[int], str]:
    """Return a function that names a row by its place in a step's visits; it reads the row only when called."""

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
    """Train one epoch and return its figures; ``weight`` is the weight column.

    Raises:
        BadValue: There are no rows, all were skipped, or all have weight 0.
    """
    sgd.begin(rate)
    steps = feeder.epoch(epoch)
    if on_labels is not None and feeder.kept() and not sgd.loss.numbers:  # class counts do not depend on the order
        on_labels(feeder.buffer.dense(label), None if weight is None else feeder.buffer.dense(weight))
        on_labels = None
    for step, visit in enumerate(steps):
        where = row_at(feeder, epoch, step)
        labels, weights = feeder.buffer.dense(label), None if weight is None else feeder.buffer.dense(weight)
        sgd.learn(rows_in(feeder.buffer, sgd.inputs, visit), labels, visit, where, weights)
        if on_labels is not None:
            for start in range(0, len(visit), LABEL_ROWS):
                some = visit[start : start + LABEL_ROWS]
                on_labels(labels[some], None if weights is None else weights[some])
        if on_rows is not None:
            on_rows(len(visit))
    return check_figures(sgd.flush(), sgd, feeder)


def check_figures(figures: Figures, sgd: SGD, feeder: BufferedReader) -> Figures:
    """Return figures of rows with some weight.

    Raises:
        BadValue: There are no rows, or all have weight 0.
    """
    if not figures.rows:
        why = f"all {sgd.skipped} were skipped because they cannot be trained on" if sgd.skipped else "there are none"
        raise BadValue(f"no rows of {feeder.table!r} were used; {why}")
    if not figures.weight:
        raise BadValue(f"the weights of {feeder.table!r} are all zero; one above 0 is needed")
    return figures


def measure(
    sgd: SGD, feeder: BufferedReader, label: str, weight: str | None = None, watch: Watch | None = None
) -> Figures:
    """Return the figures of a table without learning, by a pass at learning rate 0.

    Args:
        sgd: The model.
        feeder: Reads the rows.
        label: The label column.
        weight: The weight column.
        watch: Receives the rows' scores, [rows, outputs], labels and weights.
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
        send_scores(watch, partial(_scores_of, sgd, rows, some, where), sgd.outputs, some, labels, weights)
    return check_figures(sgd.flush(), sgd, feeder)


def _scores_of(sgd: SGD, rows: Any, visit: SlotArray, where: Locate, some: slice) -> npt.NDArray[Any]:
    return sgd.decide(rows, visit[some], shifted(where, some.start))


def shifted(where: Locate, start: int) -> Locate:
    """Return a function that names a row by its place after ``start``."""
    return lambda place: where(start + place)


def send_scores(
    watch: Watch,
    scores: Callable[[slice], npt.NDArray[Any]],
    outputs: int,
    visit: SlotArray,
    labels: npt.NDArray[Any],
    weights: npt.NDArray[Any] | None,
) -> None:
    """Pass the scores of a step's rows to ``watch``, in parts: a row may have many classes."""
    some = max(1, MAX_SCORES // outputs)
    for start in range(0, len(visit), some):
        part = slice(start, start + some)
        slots = visit[part]
        counts = np.ones(len(slots)) if weights is None else weights[slots].astype(np.float64)
        watch(scores(part), labels[slots], counts)


def moments(inputs: Features, table: Table, feeder: BufferedReader | None = None) -> Moments:
    """Return mean and spread of each feature, from one read, or from a reader's cached rows."""
    sums = Moments(inputs)
    if feeder is not None and feeder.kept():
        for start, stop in pairwise(even_cuts(len(table), SURVEY_ROWS).tolist()):
            _add_moments(sums, inputs, feeder, np.arange(start, stop, dtype=np.int32))
        return sums
    with reader(inputs, table) as once:
        for visit in once.epoch(0):
            _add_moments(sums, inputs, once, visit)
    return sums


def _add_moments(moments: Moments, inputs: Features, feeder: BufferedReader, visit: SlotArray) -> None:
    """Add buffered rows to the moments."""
    rows = rows_in(feeder.buffer, inputs, visit)
    if not isinstance(rows, Sparse):
        moments.add(rows, visit)
        return
    for start in range(0, len(visit), SURVEY_ROWS):
        indices, values, lengths = gather(rows, visit[start : start + SURVEY_ROWS], inputs.dtype)
        moments.add_sparse(indices, values, len(lengths))


def reader(inputs: Features, table: Table, label: str | None = None, weight: str | None = None) -> BufferedReader:
    """Open a reader for one pass in file order, with as little memory as its rows allow."""
    memory = READ_MEMORY
    while True:
        try:
            return inputs.feeder(table, label, "no_shuffle", memory, 0, weight=weight)
        except BudgetTooSmall:
            if memory > 1 << 62:
                raise
            memory *= 2


def scores(sgd: SGD, feeder: BufferedReader) -> Iterator[npt.NDArray[Any]]:
    """Yield the scores of a table's rows in file order, [rows, outputs] per step."""
    for step, visit in enumerate(feeder.epoch(0)):
        yield sgd.decide(rows_in(feeder.buffer, sgd.inputs, visit), visit, row_at(feeder, 0, step))
