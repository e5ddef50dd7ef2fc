"""Results of ``ML.EVALUATE`` and related functions, computed from counts that an engine returns."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema
from corgipile.features.fit import is_plain_number
from corgipile.linear.evaluation import MAX_BINS
from corgipile.losses import loss_of
from corgipile.sizes import whole
from corgipile.sql.engines.training import column_named
from corgipile.sql.statements import ModelCall

__all__ = [
    "CALIBRATION_COLUMNS",
    "CLASS_METRICS",
    "EVALUATIONS",
    "INTERCEPT",
    "LABEL_METRICS",
    "PERCENT",
    "REGRESSION_METRICS",
    "Counts",
    "Curve",
    "Evaluator",
    "Number",
    "Row",
    "check_rows",
    "need_one_label",
    "regression_figures",
    "threshold_of",
    "weight_of",
    "weights",
]

# Columns of ML.EVALUATE for classifiers and for regression.
CLASS_METRICS = ("precision", "recall", "accuracy", "f1_score", "log_loss", "roc_auc", "loss", "rows")
ERRORS = ("mean_absolute_error", "mean_squared_error", "mean_squared_log_error", "median_absolute_error")
REGRESSION_METRICS = (*ERRORS, "r2_score", "explained_variance", "loss", "r2", "rows")
# For multi-label models, as in `LabelModels.measure`.
LABEL_MEANS = tuple(f"{name}_{mean}" for mean in ("micro", "macro") for name in ("precision", "recall", "f1"))
LABEL_METRICS = ("loss", "accuracy", "subset_accuracy", *LABEL_MEANS, "rows")
RATES = ("threshold", "recall", "false_positive_rate")
# Columns of ML.CALIBRATION and, for each coefficient, of ML.ADVANCED_WEIGHTS.
CALIBRATION_COLUMNS = ("low", "high", "predicted", "observed", "rows", "weight")
COEFFICIENT_COLUMNS = ("weight", "standard_error", "z", "p_value", "low", "high", "gap")
INTERCEPT = "__INTERCEPT__"
OUTCOMES = ("true_positives", "false_positives", "true_negatives", "false_negatives")
STORED = {"global_explain": "enable_global_explain", "trial_info": "num_trials", "feature_info": "a type of BigQuery"}
PERCENT = 100  # quantiles of the probabilities are a ROC curve's default thresholds
MAX_CONFUSION_CLASSES = 1000  # one result column each
Row = dict[str, Any]
Number = int | float
FloatArray = npt.NDArray[np.float64]


class Counts(NamedTuple):
    """Rows or their total weight by actual and predicted class, both numbered from 0."""

    classes: list[Any]
    cells: Mapping[tuple[int, int], Number]
    weighted: bool = False

    def figures(self) -> Row:
        """Return accuracy, precision, recall and F1: for two classes those of the second, for more their means.

        The precision of a class that is never predicted and the recall of a class without rows are None, or 0 in a
        mean.

        Example:
            >>> Counts(["no", "yes"], {(0, 0): 2, (1, 1): 1, (1, 0): 1}).figures()
            {'accuracy': 0.75, 'precision': 1.0, 'recall': 0.5, 'f1_score': 0.6666666666666666}
        """
        actual_rows, predicted_rows = defaultdict[int, Number](int), defaultdict[int, Number](int)
        for (actual, predicted), rows in self.cells.items():
            actual_rows[actual] += rows
            predicted_rows[predicted] += rows
        total, right = sum(actual_rows.values()), [self.cells.get((k, k), 0) for k in range(len(self.classes))]
        scored = [1] if len(right) == 2 else range(len(right))
        ratios = {
            "accuracy": [(sum(right), total)],
            "precision": [(right[k], predicted_rows[k]) for k in scored],
            "recall": [(right[k], actual_rows[k]) for k in scored],
            "f1_score": [(2 * right[k], predicted_rows[k] + actual_rows[k]) for k in scored],
        }
        return {name: _mean(pairs) for name, pairs in ratios.items()}

    def table(self) -> pa.Table:
        """Return the result of ``ML.CONFUSION_MATRIX``: a row for each actual class, a column for each predicted one.

        Example:
            >>> Counts([0.0, 1.0], {(0, 0): 2, (1, 0): 1}).table().to_pylist()
            [{'expected_label': 0.0, '_0': 2, '_1': 0}, {'expected_label': 1.0, '_0': 1, '_1': 0}]
        """
        columns, kind = {"expected_label": pa.array(self.classes)}, pa.float64() if self.weighted else pa.int64()
        for k, name in enumerate(map(_column, self.classes)):
            columns[name] = pa.array([self.cells.get((i, k), 0) for i in range(len(self.classes))], kind)
        return pa.table(columns)


def _mean(ratios: Sequence[tuple[Number, Number]]) -> float | None:
    if len(ratios) == 1:
        part, whole = ratios[0]
        return part / whole if whole else None
    return sum(part / whole if whole else 0.0 for part, whole in ratios) / len(ratios)


def regression_figures(predicted: FloatArray, labels: FloatArray, weights: FloatArray) -> Row:
    """Return the metrics of predicted numbers; undefined ones are None.

    Example:
        >>> found = regression_figures(np.array([1.0, 3.0]), np.array([2.0, 3.0]), np.ones(2))
        >>> found["mean_absolute_error"], found["median_absolute_error"], found["r2_score"]
        (0.5, 0.0, -1.0)
    """
    errors = labels - predicted
    mean, shift = (np.average(values, weights=weights) for values in (labels, errors))
    squared, spread = np.square(errors), weights @ np.square(labels - mean)
    order, logs = np.argsort(np.abs(errors)), None
    middle = order[np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)]
    if min(labels.min(), predicted.min()) >= 0:
        logs = np.average(np.square(np.log1p(predicted) - np.log1p(labels)), weights=weights)
    figures = {
        "mean_absolute_error": np.average(np.abs(errors), weights=weights),
        "mean_squared_error": np.average(squared, weights=weights),
        "mean_squared_log_error": logs,
        "median_absolute_error": abs(errors[middle]),
        "r2_score": 1 - weights @ squared / spread if spread else None,
        "explained_variance": 1 - weights @ np.square(errors - shift) / spread if spread else None,
    }
    return {name: None if value is None else float(value) for name, value in figures.items()}


def check_rows(call: ModelCall) -> None:
    """Raise BadArgument if a call lacks the rows, or the model the answer that training would have stored."""
    if call.source is None and call.function in (*STORED, *EVALUATIONS) and call.function != "evaluate":
        name, option = f"ML.{call.function.upper()}", STORED.get(call.function)
        missing = f"the rows of {name} are missing; add , TABLE name or , (SELECT …)"
        raise BadArgument(f"{name} needs a model of CREATE MODEL on DuckDB with {option}" if option else missing)


def weight_of(call: ModelCall, kinds: Mapping[str, pa.DataType], label: str) -> str | None:
    """Return the weight column that a call names, in the rows' spelling; it must be numeric, and not the label."""
    if "weight" not in call.options:
        return None
    name = column_named(call.options["weight"], list(kinds))
    if name == label:
        raise BadArgument(f"the weight column must not be the label, got {name!r}")
    if not is_plain_number(kinds[name]):
        raise BadSchema(f"weight column {name!r} must be int, bool, float or decimal, got {kinds[name]}")
    return name


def _column(value: Any) -> str:
    """Return BigQuery's column name of a class: names that would begin with a digit or sign get an underscore."""
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return text if isinstance(value, str) and not text[:1].isdigit() else f"_{text}"


class Curve(NamedTuple):
    """Rows, or weights, by class and by how many of the increasing thresholds their probability reaches."""

    thresholds: Sequence[float]
    reached: Sequence[Sequence[Number]]
    weighted: bool = False

    def table(self) -> pa.Table:
        """Return the result of ``ML.ROC_CURVE``, one row a threshold.

        Example:
            >>> Curve([0.2, 0.5], [[4, 4, 0], [1, 0, 3]]).table().to_pylist()[1]["recall"]
            0.75
        """
        (false, negatives), (true, positives) = map(_rows_above, self.reached)
        points = {
            at: (at, _mean([(tp, positives)]), _mean([(fp, negatives)]), tp, fp, negatives - fp, positives - tp)
            for at, tp, fp in zip(self.thresholds, true, false, strict=True)
        }
        kind = pa.float64() if self.weighted else pa.int64()
        kinds = pa.schema([(name, pa.float64()) for name in RATES] + [(name, kind) for name in OUTCOMES])
        named = [dict(zip(kinds.names, row, strict=True)) for row in reversed(points.values())]
        return pa.Table.from_pylist(named, kinds)


def _rows_above(reached: Sequence[Number]) -> tuple[list[Number], Number]:
    """Return how many rows reach each threshold, and the number of rows."""
    at_least = list(accumulate(reversed(reached)))[::-1]
    return at_least[1:], at_least[0]


class Evaluator(ABC):
    """Evaluates a model for one call; each engine counts in its own way. ``last`` are the figures of its last epoch."""

    def __init__(
        self, call: ModelCall, kind: str, classes: list[Any], labels: Sequence[Any] | None, last: Mapping[str, Any]
    ) -> None:
        self.call, self.kind, self.classes, self.labels, self._last = call, kind, classes, labels, last
        self.loss = loss_of(kind, len(classes))

    @abstractmethod
    def figures(self, threshold: float | None) -> Mapping[str, Any]:
        """Return the metrics of ``ML.EVALUATE`` on the rows of the call."""

    @abstractmethod
    def counts(self, threshold: float | None) -> Counts:
        """Count rows by actual and predicted class."""

    @abstractmethod
    def curve(self, thresholds: list[float] | None) -> Curve:
        """Count rows by class and reached thresholds, by default percentiles of the probabilities."""

    @abstractmethod
    def bins(self, count: int) -> Iterable[Row]:
        """Return rows of `CALIBRATION_COLUMNS`, one for each filled bin of probabilities."""

    @abstractmethod
    def errors(self) -> tuple[Sequence[str], Iterable[Sequence[float | None]]]:
        """Return the names of the inputs, and the `COEFFICIENT_COLUMNS` of each weight."""

    def evaluate(self) -> pa.Table:
        """Return the result of ``ML.EVALUATE``; without rows, the metrics of the validation or training set."""
        names = LABEL_METRICS if self.labels else REGRESSION_METRICS if self.loss.numbers else CLASS_METRICS
        if self.call.options.get("threshold") is not None:
            need_one_label(self.call, self.labels)
        threshold = threshold_of(self.call, self.classes, probable=self.loss.probability)
        if self.call.source is not None:
            return _table([self.figures(threshold)], names)
        held_out = self._last.get("holdout_loss") is not None
        metrics = {name: self._last.get(f"holdout_{name}" if held_out else name) for name in names}
        return _table([metrics | {"rows": None if held_out else self._last.get("rows")}], names)

    def confusion_matrix(self) -> pa.Table:
        """Return the result of ``ML.CONFUSION_MATRIX``."""
        self._need_classes()
        if len(self.classes) > MAX_CONFUSION_CLASSES:
            most = f"at most {MAX_CONFUSION_CLASSES} classes"
            raise BadArgument(f"ML.CONFUSION_MATRIX takes {most}, got {len(self.classes)}; use GROUP BY")
        return self.counts(threshold_of(self.call, self.classes, probable=self.loss.probability)).table()

    def roc_curve(self) -> pa.Table:
        """Return the result of ``ML.ROC_CURVE``."""
        self._need_classes(two=True)
        return self.curve(self.call.options.get("thresholds")).table()

    def calibration(self) -> pa.Table:
        """Return the result of ``ML.CALIBRATION``."""
        self._need_classes(two=True)
        count = whole(self.call.options.get("bins", 10), "bins", 1, MAX_BINS)
        return _table(self.bins(count), CALIBRATION_COLUMNS)

    def advanced_weights(self) -> pa.Table:
        """Return the result of ``ML.ADVANCED_WEIGHTS``."""
        need_one_label(self.call, self.labels)
        names, values = self.errors()
        rows = [dict(zip(COEFFICIENT_COLUMNS, row, strict=True)) for row in values]
        inputs = pa.array([*names, INTERCEPT][: len(rows)])
        return _table(rows, COEFFICIENT_COLUMNS).add_column(0, "processed_input", inputs)

    def _need_classes(self, *, two: bool = False) -> None:
        """Raise BadArgument unless the model has one label, and classes; with `two`, two with probabilities."""
        need_one_label(self.call, self.labels)
        function, name = self.call.function.upper(), self.call.model
        if self.loss.numbers:
            raise BadArgument(f"ML.{function} needs a classifier; model {name!r} is {self.kind} and predicts numbers")
        if two and (len(self.classes) != 2 or not self.loss.probability):
            raise BadArgument(
                f"ML.{function} needs two classes and probabilities, as of a logistic model; {name!r} has "
                f"{len(self.classes)} classes and {'' if self.loss.probability else 'no '}probabilities"
            )


EVALUATIONS = {  # by the name of the function
    "evaluate": Evaluator.evaluate,
    "confusion_matrix": Evaluator.confusion_matrix,
    "roc_curve": Evaluator.roc_curve,
    "calibration": Evaluator.calibration,
    "advanced_weights": Evaluator.advanced_weights,
}


def _table(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> pa.Table:
    """Return rows as a table of numbers; missing ones are null."""
    kinds = pa.schema([(name, pa.int64() if name == "rows" else pa.float64()) for name in names])
    return pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows], kinds)


def weights(
    names: Sequence[str],
    lines: Iterable[Sequence[float]],
    constants: Iterable[float],
    classes: Sequence[Any],
    by: str | None = None,
    values: Sequence[Any] = (None,),
) -> pa.Table:
    """Return the result of ``ML.WEIGHTS``: a row for each input and the intercept.

    Weights and intercepts follow each other by group or label, and by class if the model has several outputs;
    ``classes`` is empty for one output.

    Example:
        >>> weights(["x"], [[2.0], [3.0]], [0.5, 1.0], [], "city", ["A", "B"]).to_pylist()[3]
        {'city': 'B', 'processed_input': '__INTERCEPT__', 'weight': 1.0}
    """
    outputs = [(value, str(label)) for value in values for label in classes or ("",)]
    rows = [
        (value, name, weight, label)
        for (value, label), line, constant in zip(outputs, lines, constants, strict=True)
        for name, weight in zip([*names, INTERCEPT], [*line, constant], strict=True)
    ]
    group, *columns = (pa.array(column) for column in zip(*rows, strict=True))
    titles = ["processed_input", "weight", "class"][: 3 if classes else 2]
    table = pa.Table.from_arrays(columns[: len(titles)], titles)
    return table if by is None else table.add_column(0, by, group)


def need_one_label(call: ModelCall, labels: Sequence[Any] | None) -> None:
    """Raise BadArgument for a multi-label model."""
    if labels is not None:
        one = f"ML.{call.function.upper()} needs a model of one label; {call.model!r} has {len(labels)}"
        raise BadArgument(f"{one}. Use ML.EVALUATE without a threshold")


def threshold_of(call: ModelCall, classes: Sequence[Any], *, probable: bool) -> float | None:
    """Return the threshold of a call, or None; it needs two classes with probabilities."""
    threshold: float | None = call.options.get("threshold")
    if threshold is not None and (not 0 <= threshold <= 1 or not probable or len(classes) != 2):
        raise BadArgument(f"threshold must be from 0 to 1 and needs a logistic model of two classes, got {threshold!r}")
    return threshold
