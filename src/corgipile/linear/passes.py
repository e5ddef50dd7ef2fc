"""A pass of the SGD kernel over a table: training, evaluation, scoring or moments."""

from collections.abc import Callable, Iterator
from itertools import islice, pairwise, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadValue, BudgetTooSmall
from corgipile.linear.features import Features
from corgipile.linear.row_errors import RowName
from corgipile.linear.scaling import Moments
from corgipile.linear.sgd import SGD, Figures, Step, rows_in
from corgipile.linear.sparse import Sparse, gather
from corgipile.loader.buffer import SlotArray
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.orders.order import visited_rows
from corgipile.tables.table import IntArray, Table, even_cuts

__all__ = ["add_moments", "check_figures", "learn", "measure", "moments", "reader", "row_at", "score", "scores"]
__all__ += ["steps", "visit_all"]

READ_MEMORY = 4 << 20
SURVEY_ROWS = 1 << 14  # rows added to moments at a time
LABEL_ROWS = 1 << 16  # labels counted at a time
Count = Callable[[int], object]
Labels = Callable[[npt.NDArray[Any], npt.NDArray[Any] | None, Any], object]
Route = Callable[[IntArray], npt.NDArray[np.integer[Any]]]
NO_LABELS = np.zeros(0)
Watch = Callable[[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.float64]], object]
MAX_SCORES = 1 << 17  # scores computed at a time


def row_at(feeder: BufferedReader, epoch: int, step: int) -> Callable[[int], str]:
    """Return a function that names a row by its place in a step's visits; it reads the row only when called."""

    def name(place: int) -> str:
        rows = next(islice(visited_rows(feeder.order, feeder.blocks, feeder.key(epoch)), step, None))
        return RowName(feeder.table, int(rows[place]))

    return name


def steps(
    feeder: BufferedReader,
    inputs: Features,
    label: str | None = None,
    weight: str | None = None,
    epoch: int = 0,
    route: Route | None = None,
) -> Iterator[Step]:
    """Yield the steps of an epoch; ``route`` returns their ``numbers`` from the row numbers of their visits."""
    visits = feeder.epoch(epoch)
    numbers = repeat(None) if route is None else map(route, feeder.rows(epoch))
    for step, (visit, of_models) in enumerate(zip(visits, numbers, strict=False)):
        labels, weights = (None if name is None else feeder.buffer.dense(name) for name in (label, weight))
        rows, locate = rows_in(feeder.buffer, inputs, visit), row_at(feeder, epoch, step)
        yield Step(rows, NO_LABELS if labels is None else labels, visit, locate, weights, of_models)


def learn(sgd: SGD, feeder: BufferedReader, *how: Any, **named: Any) -> Figures:
    """Train one epoch as `visit_all` does, and return its figures."""
    visit_all(sgd, feeder, *how, **named)
    return check_figures(sgd.flush(), sgd, feeder)


def visit_all(
    sgd: SGD,
    feeder: BufferedReader,
    label: str,
    rate: Any,
    epoch: int,
    on_rows: Count | None = None,
    on_labels: Labels | None = None,
    weight: str | None = None,
    route: Route | None = None,
) -> int:
    """Train on the rows of an epoch, and return their number."""
    sgd.begin(rate)
    seen = 0
    for step in steps(feeder, sgd.inputs, label, weight, epoch, route):
        if not seen and on_labels is not None and route is None and feeder.all_in_memory() and not sgd.loss.numbers:
            on_labels(step.labels, step.weights, None)  # class counts do not depend on the order
            on_labels = None
        sgd.learn(*step)
        if on_labels is not None:
            for start in range(0, len(step.visit), LABEL_ROWS):
                some, (slots, numbers) = slice(start, start + LABEL_ROWS), (step.visit, step.numbers)
                weights = None if step.weights is None else step.weights[slots[some]]
                on_labels(step.labels[slots[some]], weights, None if numbers is None else numbers[some])
        seen += len(step.visit)
        if on_rows is not None:
            on_rows(len(step.visit))
    return seen


def check_figures(figures: Figures, sgd: SGD, feeder: BufferedReader) -> Figures:
    """Return figures of rows with some weight; raise BadValue if there are none, or all have weight 0."""
    if not figures.rows:
        why = f"all {sgd.skipped} were skipped because they cannot be trained on" if sgd.skipped else "there are none"
        raise BadValue(f"no rows of {feeder.table!r} were used; {why}")
    if not figures.weight:
        raise BadValue(f"the weights of {feeder.table!r} are all zero; one above 0 is needed")
    return figures


def measure(
    sgd: SGD,
    feeder: BufferedReader,
    label: str,
    weight: str | None = None,
    watch: Watch | None = None,
    route: Route | None = None,
) -> Figures:
    """Return the figures of a table without learning, by a pass at learning rate 0.

    ``watch`` receives the rows' scores, [rows, outputs], labels and weights.
    """
    sgd.eval_mode()
    sgd.begin(0.0)
    for step in steps(feeder, sgd.inputs, label, weight, route=route):
        sgd.learn(*step)
        if watch is not None:
            _send_scores(watch, sgd, step.part(np.flatnonzero(sgd.counted(step.visit))))
    return check_figures(sgd.flush(), sgd, feeder)


def _send_scores(watch: Watch, sgd: SGD, step: Step) -> None:
    """Pass the scores of a step's rows to ``watch``, in parts: a row may have many classes."""
    some = max(1, MAX_SCORES // sgd.outputs)
    for start in range(0, len(step.visit), some):
        part = step.part(slice(start, start + some))
        watch(score(sgd, part), part.labels[part.visit], part.counts())


def score(sgd: Any, step: Step) -> npt.NDArray[Any]:
    """Return the scores of a step's rows, [rows, outputs]."""
    return np.asarray(sgd.decide(step.rows, step.visit, step.locate, step.numbers))


def moments(inputs: Features, table: Table, feeder: BufferedReader | None = None) -> Moments:
    """Return mean and spread of each feature, from one read, or from a reader's cached rows."""
    sums = Moments(inputs)
    if feeder is not None and feeder.all_in_memory():
        for start, stop in pairwise(even_cuts(len(table), SURVEY_ROWS).tolist()):
            add_moments(sums, inputs, feeder, np.arange(start, stop, dtype=np.int32))
        return sums
    with reader(inputs, table) as once:
        for visit in once.epoch(0):
            add_moments(sums, inputs, once, visit)
    return sums


def add_moments(moments: Moments, inputs: Features, feeder: BufferedReader, visit: SlotArray) -> None:
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


def scores(sgd: Any, feeder: BufferedReader, route: Route | None = None) -> Iterator[npt.NDArray[Any]]:
    """Yield the scores of a table's rows in file order, [rows, outputs] per step."""
    for step in steps(feeder, sgd.inputs, route=route):
        yield score(sgd, step)
