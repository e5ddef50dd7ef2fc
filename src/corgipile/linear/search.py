"""Trains many models at once from one read of the table: a grid of settings, each by cross-validation."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from statistics import fmean, stdev
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from corgipile.errors import BadArgument, BudgetTooSmall, Diverged
from corgipile.linear import passes
from corgipile.linear.label_sets import LabelSets
from corgipile.linear.label_training import CLASSES, check_model, labels_of
from corgipile.linear.model import Model
from corgipile.linear.schedule import averaged, schedule_of
from corgipile.linear.search_labels import LabelRuns
from corgipile.linear.search_runs import Runs
from corgipile.linear.sgd import Figures
from corgipile.linear.train import order_of, prepare, train
from corgipile.linear.training import Record, Task
from corgipile.linear.weights_memory import left_for_rows
from corgipile.settings import CALL, Setting, TrainArguments, TrainSettings, declared, takes
from corgipile.sizes import parse_bytes, whole, yes_or_no
from corgipile.tables import open as open_table
from corgipile.tables.splitting import folds_of
from corgipile.tables.table import Table

__all__ = ["Search", "SearchArguments", "search"]

EACH = ("learning_rate", "step", "decay", "l2", "l1", "max_norm", "batch_size", "average")  # what models may differ in
SHARED = {"model", "features", "label", "encode", "missing", "epochs", "memory", "seed", "standardize", "order"}
SHARED |= {"intercept", "on_bad", "text", "interactions", "hash_bits", "ngrams", "weight", "class_weight"}
OWN = {"grid", "folds", "group", "labels", "refit", "on_rows"}
ALONE = ("label", "class_weight")  # what does not go with labels
MOST_FOLDS, NUMBERED = 255, 16  # bytes: the number of a row in the buffer, and of one that is visited


def _grid(value: Any, _: str) -> Any:
    points(value)
    return value


@dataclass(kw_only=True, eq=False, repr=False)
class SearchArguments(TrainSettings):
    """The arguments of `search`."""

    table: Any = field(kw_only=False)
    grid: Annotated[Any, Setting("", _grid)] = field(kw_only=False)
    folds: Annotated[int, Setting("Parts of cross-validation.", partial(whole, least=2, most=MOST_FOLDS))] = 5
    group: Annotated[str | None, Setting("Column of which all rows of a value are in one fold.")] = None
    labels: Annotated[
        str | Sequence[str] | None,
        Setting(
            "Column of lists of labels, or columns of 0 and 1: a model for each label.",
            declared(TrainArguments)["labels"].setting.check,
        ),
    ] = None
    refit: Annotated[bool, Setting("Train the best once more, on all rows.", yes_or_no)] = True
    on_rows: Annotated[Callable[[int], object] | None, CALL] = None


@dataclass(frozen=True)
class Search:
    """What a search found.

    Attributes:
        metric: What ``score`` is: "accuracy" or "r2".
        results: A record for each point of the grid, the best first: its settings; ``score`` and ``loss`` on held-out
            rows, means over folds; ``score_spread`` and ``loss_spread``, standard deviations over folds; ``scores``.
            Of a point that diverged in any fold the score is NaN and the loss infinite. Where rates that nobody chose
            were lowered, ``learning_rates`` are those of the folds.
        best: The settings of the best.
        model: Trained with them on all rows; None without ``refit``.
    """

    metric: str
    results: list[Record]
    best: dict[str, Any]
    model: Model | None = field(default=None, repr=False)

    def table(self) -> pa.Table:
        """Return the results as a table."""
        return pa.Table.from_pylist(self.results)


def points(grid: Any) -> list[dict[str, Any]]:
    """Return the points of a grid: every combination of the values by name, of each of several such grids.

    Raises:
        BadArgument: It is no such thing, or names what models of one search cannot differ in.

    Example:
        >>> points({"l2": [0, 0.1], "step": ["auto"]})
        [{'l2': 0, 'step': 'auto'}, {'l2': 0.1, 'step': 'auto'}]
    """
    several = list(grid) if isinstance(grid, Sequence) and not isinstance(grid, str) else [grid]
    found: list[dict[str, Any]] = []
    for one in several:
        if not isinstance(one, Mapping) or not one:
            raise BadArgument(f"grid must be values by setting, such as {{'l2': [0, 1e-4]}}, got {grid!r}")
        for name, values in one.items():
            if name not in EACH:
                raise BadArgument(f"grid is over {', '.join(EACH)}; got {name!r}")
            if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray) or not len(values):
                raise BadArgument(f"grid needs a list of values for {name!r}, got {values!r}")
        found += [dict(zip(one, values, strict=True)) for values in product(*one.values())]
    if not found:
        raise BadArgument("grid has no points")
    return found


@takes(SearchArguments)
def search(given: SearchArguments) -> Search:  # noqa: D417 - they are those of SearchArguments
    """Train a model for each point of a grid and each fold of a table, all from the same read of its rows.

    Rows come once an epoch, by one order for all; each model visits those that are not of its fold while they are in a
    core's cache, and at last judges those that are. That reads the table ``epochs`` + 1 times, however many models
    there are. Folds are made as by `corgipile.train_test_split`: row numbers, or values of ``group``, by a keyed hash.
    What is found out of the whole table, classes and, where features are standardised, means and spreads, all share.
    A column of constants gets a weight that the penalty and the intercept decide on, as in `corgipile.train`.

    Args:
        table: As for `corgipile.train`.
        grid: Lists of values by setting, all of whose combinations are tried, or several such dictionaries. Models may
            differ in learning_rate, step, decay, l2, l1, max_norm, batch_size and average.
        folds: How many parts there are: each is held out once.
        group: A column of which all rows of a value are in one fold.
        labels: In place of ``label``, as for `corgipile.train`: of each point and fold a model for each label, of which
            ``score`` and ``loss`` are means.
        refit: Whether to train the best once more, on all rows, by `corgipile.train`.
        on_rows: Called with numbers of rows learnt, of all epochs but those of the refit.
        model, features, label, encode, text, interactions, hash_bits, ngrams, missing, epochs, learning_rate, step,
            decay, l2, l1, max_norm, batch_size, average, intercept, memory, seed, standardize, order, on_bad, weight,
            class_weight: As for `corgipile.train`, of points that do not say otherwise. A rate that nobody chose is
            lowered for each fold by itself; one of the grid that diverges is a result. Held-out rows count for their
            ``weight``, never for ``class_weight``; "balanced" is by the classes of the whole table.

    Returns:
        The results, the best first: by mean score, then by mean loss.

    Raises:
        BadArgument: The grid or the folds make no sense.
        BadLabel: All rows of a class are in one fold.
        BadValue: The weights of a fold, or of all others, are all zero.
        Diverged: Every point diverged.

    Example:
        >>> import corgipile as cp, pyarrow as pa
        >>> rows = pa.table({"x": [-2.0, -1.0, 1.0, 2.0] * 50, "label": [0, 0, 1, 1] * 50})
        >>> found = cp.search(rows, {"learning_rate": [1e-6, 0.1]}, folds=3, epochs=2)
        >>> found.best, found.results[0]["score"], found.model.predict(rows)[:4].tolist()
        ({'learning_rate': 0.1}, 1.0, [0, 0, 1, 1])
    """
    for name, one in declared(type(given)).items():
        if name not in OWN | SHARED | {*EACH} and getattr(given, name) != one.default:
            raise BadArgument(f"{name} is for train, not for search, got {name}={getattr(given, name)!r}")
    wanted = [replace(given, **point).checked() for point in points(given.grid)]
    schedules = [schedule_of(one) for one in wanted]
    table = open_table(given.table)
    found = None if given.labels is None else _labels_of(table, given)
    task = _task(table, given, found)
    parts = folds_of(task.source, given.folds, given.seed, given.group)
    memory = _memory(given, task, len(wanted) * given.folds, found)
    with task.feeder(order_of(given.order, given.memory), memory, given.seed) as feeder:
        task = task.surveyed()
        tasks = [replace(task, batch_size=one.batch_size, average=averaged(one, one.model)) for one in wanted]
        told = [
            None if one.learning_rate else f"{point}" for one, point in zip(wanted, points(given.grid), strict=True)
        ]
        make = Runs if found is None else partial(LabelRuns, found=found)
        with make(tasks, schedules, told, parts, given.folds) as runs:
            runs.learn(feeder, given.epochs, given.on_rows)
            with passes.reader(task.inputs, task.table(), task.label, task.weight) as judged:
                figures = runs.judge(judged)
    rates = [[run.schedule.learning_rate for run in point] for point in runs.points]
    settled = [_result(*one) for one in zip(points(given.grid), figures, strict=True)]
    if any({*theirs} != {one.learning_rate} for theirs, one in zip(rates, schedules, strict=True)):  # some were lowered
        settled = [{**one, "learning_rates": theirs} for one, theirs in zip(settled, rates, strict=True)]
    results = sorted(settled, key=lambda record: (-_known(record), record["loss"]))
    if math.isinf(results[0]["loss"]):
        raise Diverged("training diverged at every point of the grid; smaller learning rates, or standardize=True")
    best = {name: value for name, value in results[0].items() if name in EACH}
    model = train(table, **_shared(given) | best) if given.refit else None
    return Search(task.loss.score, results, best, model)


def _labels_of(table: Table, given: SearchArguments) -> LabelSets:
    """Find which labels rows have.

    Raises:
        BadArgument: A setting is for one label, or the model is none of two classes.
        BadLabel: No row has a label, or all have.
    """
    for name in ALONE:
        if getattr(given, name) != declared(type(given))[name].default:
            raise BadArgument(f"{name} does not go with labels, got {name}={getattr(given, name)!r}")
    check_model(given.model)
    return labels_of(table, given)


def _task(table: Table, given: SearchArguments, found: LabelSets | None) -> Task:
    if found is None:
        return prepare(table, given, on_bad=given.on_bad)
    return prepare(found.table(table), replace(given, label=found.name), classes=CLASSES, on_bad=given.on_bad)


def _shared(given: SearchArguments) -> Record:
    names = {name for name in declared(TrainSettings) if name in SHARED or name in EACH}
    if given.labels is None:
        return {name: getattr(given, name) for name in names}
    return {name: getattr(given, name) for name in names - {*ALONE}} | {"labels": given.labels}


def _known(record: Record) -> float:
    return -math.inf if math.isnan(record["score"]) else float(record["score"])


def _memory(given: SearchArguments, task: Task, models: int, found: LabelSets | None = None) -> Any:
    """Return what of the memory is for rows: the fold of each row of the table takes a byte, and rows have numbers.

    Raises:
        BudgetTooSmall: The folds, and the labels of rows where they have several, take more than half.
    """
    if given.memory is None:
        return None
    rows, width = len(task.source), task.row_bytes
    memory, taken, what = parse_bytes(given.memory, whole=rows * width), rows, "folds"
    if found is not None:
        taken, what = rows + found.numbers.nbytes + found.sets.nbytes, "folds and labels"
        models *= len(found.labels)
    if taken > memory // 2:
        raise BudgetTooSmall(
            f"memory is {given.memory!r}, of which {what} of {rows} rows take {taken}: give twice that"
        )
    memory = parse_bytes(left_for_rows(task, memory, models) or memory, whole=1.0)
    return max(1, int((memory - taken) * width / (width + NUMBERED)))


def _result(point: Record, figures: Sequence[Figures]) -> Record:
    """Return the record of a point: what its models, one a fold, are worth."""
    losses, scores = [one.loss for one in figures], [one.score for one in figures]
    if not all(map(math.isfinite, losses)):
        nothing = {"score": math.nan, "score_spread": math.nan, "loss": math.inf, "loss_spread": math.nan}
        return {**point, **nothing, "scores": scores}
    return {
        **point,
        "score": fmean(scores),
        "score_spread": stdev(scores),
        "loss": fmean(losses),
        "loss_spread": stdev(losses),
        "scores": scores,
    }
