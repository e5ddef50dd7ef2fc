"""Trains many models in the same pass: a grid of settings, each by cross-validation."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from statistics import fmean, stdev
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from corgipile.arguments import takes
from corgipile.errors import BadArgument, Diverged
from corgipile.linear import passes
from corgipile.linear.fit import memory_beside
from corgipile.linear.label_sets import LabelSets
from corgipile.linear.label_training import CLASSES, check_model, labels_of
from corgipile.linear.model import Model
from corgipile.linear.problem import Record, Task, memory_for_rows, order_of, prepare
from corgipile.linear.schedule import schedule_of, uses_average
from corgipile.linear.search_runs import Runs
from corgipile.linear.sgd import Figures
from corgipile.linear.train import train
from corgipile.settings import CALL, Setting, TrainArguments, TrainSettings, changed, declared
from corgipile.sizes import whole, yes_or_no
from corgipile.tables import open as open_table
from corgipile.tables.splitting import folds_of
from corgipile.tables.table import Table

__all__ = ["Search", "SearchArguments", "search"]

GRID_SETTINGS = ("learning_rate", "step", "decay", "l2", "l1", "max_norm", "batch_size", "average")
SHARED = {"model", "features", "label", "encode", "missing", "epochs", "memory", "seed", "standardize", "order"}
SHARED |= {"intercept", "on_bad", "text", "interactions", "hash_bits", "ngrams", "weight", "class_weight"}
SEARCH_SETTINGS = {"grid", "folds", "group", "labels", "refit", "on_rows"}
NOT_WITH_LABELS = ("label", "class_weight")
MAX_FOLDS, ROW_OVERHEAD = 255, 16  # bytes per row: its number in the buffer and in the visit


def _grid(value: Any, _: str) -> Any:
    points(value)
    return value


@dataclass(kw_only=True, eq=False, repr=False)
class SearchArguments(TrainSettings):
    """The arguments of `search`."""

    table: Any = field(kw_only=False)
    grid: Annotated[Any, Setting("", _grid)] = field(kw_only=False)
    folds: Annotated[int, Setting("Parts of cross-validation.", partial(whole, least=2, most=MAX_FOLDS))] = 5
    group: Annotated[str | None, Setting("Column whose values are never split across folds.")] = None
    labels: Annotated[
        str | Sequence[str] | None,
        Setting(
            "Column of lists of labels, or columns of 0 and 1: one model per label.",
            declared(TrainArguments)["labels"].setting.check,
        ),
    ] = None
    refit: Annotated[bool, Setting("Train the best settings again on all rows.", yes_or_no)] = True
    on_rows: Annotated[Callable[[int], object] | None, CALL] = None


@dataclass(frozen=True)
class Search:
    """The result of a search.

    Attributes:
        metric: The meaning of ``score``: "accuracy" or "r2".
        results: A record per grid point, the best first: its settings; ``score`` and ``loss`` on held-out rows, means
            over folds; ``score_spread`` and ``loss_spread``, standard deviations over folds; ``scores``. A point that
            diverged in any fold has score NaN and loss infinity. If default learning rates were lowered,
            ``learning_rates`` holds those of the folds.
        best: The best settings.
        model: The model with them, trained on all rows; None without ``refit``.
    """

    metric: str
    results: list[Record]
    best: dict[str, Any]
    model: Model | None = field(default=None, repr=False)

    def table(self) -> pa.Table:
        """Return the results as a table."""
        return pa.Table.from_pylist(self.results)


def points(grid: Any) -> list[dict[str, Any]]:
    """Return the points of a grid: all combinations of its values; of a list of grids, those of each.

    Raises:
        BadArgument: It is not a grid, or names a setting that models of a search share.

    Example:
        >>> points({"l2": [0, 0.1], "step": ["auto"]})
        [{'l2': 0, 'step': 'auto'}, {'l2': 0.1, 'step': 'auto'}]
    """
    several = list(grid) if isinstance(grid, Sequence) and not isinstance(grid, str) else [grid]
    all_points: list[dict[str, Any]] = []
    for values_by_name in several:
        if not isinstance(values_by_name, Mapping) or not values_by_name:
            raise BadArgument(f"grid must be values by setting, such as {{'l2': [0, 1e-4]}}, got {grid!r}")
        for name, values in values_by_name.items():
            if name not in GRID_SETTINGS:
                raise BadArgument(f"grid must name settings among {', '.join(GRID_SETTINGS)}, got {name!r}")
            if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray) or not len(values):
                raise BadArgument(f"grid needs a list of values for {name!r}, got {values!r}")
        all_points += [dict(zip(values_by_name, values, strict=True)) for values in product(*values_by_name.values())]
    if not all_points:
        raise BadArgument("grid must have at least one point")
    return all_points


@takes(SearchArguments)
def search(given: SearchArguments) -> Search:  # noqa: D417 - arguments of SearchArguments
    """Train a model per grid point and fold, all in the same passes over the table.

    All models share the order. Each visits the rows outside its fold while they are in a core's cache, and finally
    evaluates the rows of its fold: the table is read ``epochs`` + 1 times, however many models there are. Folds are
    those of `corgipile.train_test_split`: row numbers, or values of ``group``, by a keyed hash. All models share the
    classes and, with standardised features, the means and spreads of the whole table. The weight of a constant column
    depends on the penalty and the intercept, as in `corgipile.train`.

    Args:
        table: As for `corgipile.train`.
        grid: Lists of values by setting, of which all combinations are tried, or several such dictionaries. Grid
            settings are learning_rate, step, decay, l2, l1, max_norm, batch_size and average.
        folds: The number of folds; each is held out once.
        group: A column whose values are never split across folds.
        labels: Replaces ``label``, as for `corgipile.train`: each point and fold has one model per label, and
            ``score`` and ``loss`` are means over labels.
        refit: Whether to train the best settings again on all rows, by `corgipile.train`.
        on_rows: Called with the numbers of trained rows in all epochs except the refit.
        settings: Arguments of `corgipile.train`, where a point does not set them. A default learning rate is lowered
            for each fold separately; a diverging grid rate is a result. Held-out rows have their ``weight``, never
            ``class_weight``; "balanced" uses the classes of the whole table.

    Returns:
        The results, the best first: by mean score, then by mean loss.

    Raises:
        BadArgument: The grid or the folds are not valid.
        BadLabel: All rows of a class are in one fold.
        BadValue: The weights of a fold, or of all other folds, are all 0.
        Diverged: Every point diverged.

    Example:
        >>> import corgipile as cp, pyarrow as pa
        >>> rows = pa.table({"x": [-2.0, -1.0, 1.0, 2.0] * 50, "label": [0, 0, 1, 1] * 50})
        >>> found = cp.search(rows, {"learning_rate": [1e-6, 0.1]}, folds=3, epochs=2)
        >>> found.best, found.results[0]["score"], found.model.predict(rows)[:4].tolist()
        ({'learning_rate': 0.1}, 1.0, [0, 0, 1, 1])
    """
    unsupported = [name for name in declared(type(given)) if name not in {*SEARCH_SETTINGS, *SHARED, *GRID_SETTINGS}]
    for name, got in changed(given, unsupported):
        raise BadArgument(f"search does not support {name}, got {got}; use train")
    candidates = [replace(given, **point).checked() for point in points(given.grid)]
    schedules = [schedule_of(one) for one in candidates]
    table = open_table(given.table)
    found = None if given.labels is None else _labels_of(table, given)
    task = _task(table, given, found)
    parts = folds_of(task.source, given.folds, given.seed, given.group)
    memory = _memory(given, task, len(candidates) * given.folds, found)
    with task.feeder(order_of(given.order, given.memory), memory, given.seed) as feeder:
        task = task.with_statistics()
        tasks = [replace(task, batch_size=one.batch_size, average=uses_average(one, one.model)) for one in candidates]
        both = zip(candidates, points(given.grid), strict=True)
        names = [None if one.learning_rate else f"{point}" for one, point in both]
        with Runs(tasks, schedules, names, parts, given.folds, found) as runs:
            runs.learn(feeder, given.epochs, given.on_rows)
            with passes.reader(task.inputs, task.table(), task.label, task.weight) as held_out:
                figures = runs.evaluate(held_out)
    rates = [[run.schedule.learning_rate for run in point] for point in runs.points]
    records = [_result(*one) for one in zip(points(given.grid), figures, strict=True)]
    if any({*theirs} != {one.learning_rate} for theirs, one in zip(rates, schedules, strict=True)):  # some were lowered
        records = [{**one, "learning_rates": theirs} for one, theirs in zip(records, rates, strict=True)]
    results = sorted(records, key=lambda record: (-_known(record), record["loss"]))
    if math.isinf(results[0]["loss"]):
        raise Diverged("training diverged at every point of the grid; try smaller learning rates, or standardize=True")
    best = {name: value for name, value in results[0].items() if name in GRID_SETTINGS}
    model = train(table, **_shared(given) | best) if given.refit else None
    return Search(task.loss.score, results, best, model)


def _labels_of(table: Table, given: SearchArguments) -> LabelSets:
    """Read the labels of rows; raise BadArgument for a setting that labels exclude."""
    for name, got in changed(given, NOT_WITH_LABELS):
        raise BadArgument(f"{name} must be left out with labels, got {got}")
    check_model(given.model)
    return labels_of(table, given)


def _task(table: Table, given: SearchArguments, found: LabelSets | None) -> Task:
    if found is None:
        return prepare(table, given, on_bad=given.on_bad)
    return prepare(found.table(table), replace(given, label=found.name), classes=CLASSES, on_bad=given.on_bad)


def _shared(given: SearchArguments) -> Record:
    names = {name for name in declared(TrainSettings) if name in SHARED or name in GRID_SETTINGS}
    if given.labels is None:
        return {name: getattr(given, name) for name in names}
    return {name: getattr(given, name) for name in names - {*NOT_WITH_LABELS}} | {"labels": given.labels}


def _known(record: Record) -> float:
    return -math.inf if math.isnan(record["score"]) else float(record["score"])


def _memory(given: SearchArguments, task: Task, models: int, found: LabelSets | None = None) -> Any:
    """Return the memory for rows, without that for folds (a byte per row), labels, models and row numbers."""
    if given.memory is None:
        return None
    rows, width = len(task.source), task.row_bytes
    overhead, what = rows, "folds"
    if found is not None:
        overhead, what = rows + found.numbers.nbytes + found.sets.nbytes, "folds and labels"
        models *= len(found.labels)
    describe = f"{what} of {rows} rows take {overhead} bytes; give twice that"
    memory: Any = memory_beside(given.memory, task, overhead, describe) + overhead
    memory = memory_for_rows(task, memory, models)
    return max(1, int((memory - overhead) * width / (width + ROW_OVERHEAD)))


def _result(point: Record, figures: Sequence[Figures]) -> Record:
    """Return the record of a point from its models' figures, one per fold."""
    losses, scores = [fold.loss for fold in figures], [fold.score for fold in figures]
    if not all(map(math.isfinite, losses)):
        undefined = {"score": math.nan, "score_spread": math.nan, "loss": math.inf, "loss_spread": math.nan}
        return {**point, **undefined, "scores": scores}
    score = {"score": fmean(scores), "score_spread": stdev(scores)}
    return {**point, **score, "loss": fmean(losses), "loss_spread": stdev(losses), "scores": scores}
