"""Results of ``ML.EVALUATE`` and related functions, computed from counts that an engine returns."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa

from corgipile.errors import BadArgument, BadLabel, BadSchema, BadValue
from corgipile.features.fit import is_plain_number
from corgipile.linear.evaluation import MAX_BINS
from corgipile.sizes import whole
from corgipile.sql.engines.training import column_named
from corgipile.sql.statements import ModelCall
from corgipile.suggestions import listed

__all__ = [
    "CALIBRATION_COLUMNS",
    "CLASS_METRICS",
    "INTERCEPT",
    "LABEL_METRICS",
    "REGRESSION_METRICS",
    "WEIGHT_SUM",
    "Counts",
    "bin_count",
    "class_counts",
    "confusion_table",
    "metrics_table",
    "need_classes",
    "need_one_label",
    "need_two_classes",
    "quantiles",
    "roc_table",
    "threshold_of",
    "weight_of",
    "weights_table",
]

# Columns of ML.EVALUATE for classifiers and for regression.
CLASS_METRICS = ("loss", "accuracy", "precision", "recall", "f1_score", "log_loss", "roc_auc", "rows")
REGRESSION_METRICS = ("loss", "r2", "mean_absolute_error", "mean_squared_error", "rows")
# For multi-label models, as in `LabelModels.measure`.
LABEL_MEANS = tuple(f"{name}_{mean}" for mean in ("micro", "macro") for name in ("precision", "recall", "f1"))
LABEL_METRICS = ("loss", "accuracy", "subset_accuracy", *LABEL_MEANS, "rows")
RATES = ("threshold", "recall", "false_positive_rate")
# Columns of ML.CALIBRATION and, for each coefficient, of ML.ADVANCED_WEIGHTS.
CALIBRATION_COLUMNS = ("low", "high", "predicted", "observed", "rows", "weight")
COEFFICIENT_COLUMNS = ("weight", "standard_error", "z", "p_value", "low", "high", "gap")
INTERCEPT = "__INTERCEPT__"
OUTCOMES = ("true_positives", "false_positives", "true_negatives", "false_negatives")
# SQL that sums the column `weight` and counts its invalid values.
WEIGHT_SUM = "sum(weight), count(*) FILTER (WHERE (weight >= 0 AND weight < 'Infinity'::float8) IS NOT TRUE)"
PERCENT = 100
MAX_CONFUSION_CLASSES = 1000  # one result column each
Row = dict[str, Any]


Number = int | float


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


def _mean(ratios: Sequence[tuple[Number, Number]]) -> float | None:
    if len(ratios) == 1:
        part, whole = ratios[0]
        return part / whole if whole else None
    return sum(part / whole if whole else 0.0 for part, whole in ratios) / len(ratios)


def weight_of(call: ModelCall, kinds: Mapping[str, pa.DataType], label: str) -> str | None:
    """Return the weight column that a call names, in the rows' spelling.

    Raises:
        MissingColumn: The column does not exist.
        BadSchema: The column is not numeric.
        BadArgument: The column is the label.
    """
    if "weight" not in call.options:
        return None
    name = column_named(call.options["weight"], list(kinds))
    if name == label:
        raise BadArgument(f"the weight column must not be the label, got {name!r}")
    if not is_plain_number(kinds[name]):
        raise BadSchema(f"weight column {name!r} must be int, bool, float or decimal, got {kinds[name]}")
    return name


def total_weight(count: int, weights: Sequence[Any], weight: str | None) -> Number:
    """Return the total weight of rows from SQL's counts: their number, and `WEIGHT_SUM` if they have weights.

    Raises:
        BadValue: A weight is not a finite number of 0 or more.
    """
    if weight is None:
        return count
    total, wrong = weights
    if wrong:
        raise BadValue(
            f"weights must be finite and 0 or more; {wrong} rows have a null, negative or infinite {weight!r}"
        )
    return float(total)


def _check_weights(cells: Collection[Number]) -> None:
    """Raise BadValue if there are rows but all weights are zero."""
    if cells and not any(cells):
        raise BadValue("at least one weight of the evaluated rows must be above 0, got only zeros")


def class_counts(
    rows: Iterable[Sequence[Any]], classes: Sequence[Any], model: str, weight: str | None = None
) -> Counts:
    """Build counts from SQL's rows: actual and predicted class (from 1), number of rows, and their `WEIGHT_SUM`.

    Raises:
        BadLabel: The label of a row is no class of the model.
        BadValue: A row has no prediction or an invalid weight.
    """
    cells = defaultdict[tuple[int, int], Number](int)
    for actual, predicted, count, *weights in rows:
        if not actual:
            raise BadLabel(
                f"labels must be classes of model {model!r} ({listed(classes)}); {count} rows have another label"
            )
        if not predicted:
            raise BadValue(f"model {model!r} has no prediction for {count} rows: a feature is null")
        cells[actual - 1, predicted - 1] += total_weight(count, weights, weight)
    _check_weights(cells.values())
    return Counts(list(classes), cells, weight is not None)


def metrics_table(names: Sequence[str], metrics: Mapping[str, Any]) -> pa.Table:
    """Return the result of ``ML.EVALUATE``, one row."""
    kinds = pa.schema([(name, pa.int64() if name == "rows" else pa.float64()) for name in names])
    return pa.Table.from_pylist([{name: metrics.get(name) for name in names}], kinds)


def confusion_table(counts: Counts) -> pa.Table:
    """Return the result of ``ML.CONFUSION_MATRIX``: a row for each actual class, a column for each predicted class.

    Example:
        >>> confusion_table(Counts([0.0, 1.0], {(0, 0): 2, (1, 0): 1})).to_pylist()
        [{'expected_label': 0.0, '_0': 2, '_1': 0}, {'expected_label': 1.0, '_0': 1, '_1': 0}]
    """
    classes = counts.classes
    if len(classes) > MAX_CONFUSION_CLASSES:
        raise BadArgument(
            f"ML.CONFUSION_MATRIX takes at most {MAX_CONFUSION_CLASSES} classes, got {len(classes)}; use GROUP BY"
        )
    columns = {"expected_label": pa.array(classes)}
    for k, name in enumerate(map(_column, classes)):
        kind = pa.float64() if counts.weighted else pa.int64()
        columns[name] = pa.array([counts.cells.get((i, k), 0) for i in range(len(classes))], kind)
    return pa.table(columns)


def _column(value: Any) -> str:
    """Return BigQuery's column name of a class: names that would begin with a digit or sign get an underscore."""
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return text if isinstance(value, str) and not text[:1].isdigit() else f"_{text}"


def quantiles() -> list[float]:
    """Return the quantiles that are a ROC curve's default thresholds."""
    return [i / PERCENT for i in range(PERCENT + 1)]


def roc_table(
    thresholds: Sequence[float], rows: Iterable[Sequence[Any]], model: str, weight: str | None = None
) -> pa.Table:
    """Return the result of ``ML.ROC_CURVE``, one row a threshold.

    Args:
        thresholds: Probabilities from which a row counts as the second class, in increasing order.
        rows: Class number (from 1), number of thresholds reached, number of rows, and their `WEIGHT_SUM`.
        model: The model's name.
        weight: The weight column.

    Example:
        >>> roc_table([0.2, 0.5], [(2, 2, 3), (2, 0, 1), (1, 1, 4)], "m").to_pylist()[1]["recall"]
        0.75
    """
    masses: list[Number] = []
    tallies: dict[int, list[Number]] = {1: [0] * (len(thresholds) + 1), 2: [0] * (len(thresholds) + 1)}
    for actual, reached, count, *weights in rows:
        if reached is None:
            raise BadValue(f"model {model!r} has no prediction for {count} rows: a feature is null")
        if actual not in tallies:
            raise BadLabel(f"labels must be classes of model {model!r}; {count} rows have another label")
        masses.append(total_weight(count, weights, weight))
        tallies[actual][reached] += masses[-1]
    _check_weights(masses)
    (false, negatives), (true, positives) = (_rows_above(tallies[k]) for k in (1, 2))
    points = {
        at: (at, _mean([(tp, positives)]), _mean([(fp, negatives)]), tp, fp, negatives - fp, positives - tp)
        for at, tp, fp in zip(thresholds, true, false, strict=True)
    }
    side = pa.int64() if weight is None else pa.float64()
    kinds = pa.schema([(name, pa.float64()) for name in RATES] + [(name, side) for name in OUTCOMES])
    return pa.Table.from_pylist([dict(zip(kinds.names, row, strict=True)) for row in reversed(points.values())], kinds)


def _rows_above(reached: list[Number]) -> tuple[list[Number], Number]:
    """Return how many rows reach each threshold, and the number of rows."""
    at_least = list(accumulate(reversed(reached)))[::-1]
    return at_least[1:], at_least[0]


def weights_table(names: Sequence[str], values: Iterable[Sequence[float | None]]) -> pa.Table:
    """Return the result of ``ML.ADVANCED_WEIGHTS``: a row of `COEFFICIENT_COLUMNS` for each weight.

    Example:
        >>> weights_table(["x"], [(2, 1, 2, 0.05, 0, 4, 0.1)]).to_pylist()[0]["p_value"]
        0.05
    """
    rows = [dict(zip(COEFFICIENT_COLUMNS, row, strict=True)) for row in values]
    named = [*names, INTERCEPT][: len(rows)]
    kinds = pa.schema([(name, pa.float64()) for name in COEFFICIENT_COLUMNS])
    return pa.Table.from_pylist(rows, kinds).add_column(0, "processed_input", pa.array(named))


def bin_count(call: ModelCall) -> int:
    """Return the number of bins of a call.

    Raises:
        BadArgument: The number is out of range.
    """
    return whole(call.options.get("bins", 10), "bins", 1, MAX_BINS)


def need_classes(call: ModelCall, kind: str, *, numbers: bool) -> None:
    """Raise BadArgument for a regression model."""
    if numbers:
        raise BadArgument(
            f"ML.{call.function.upper()} needs a classifier; model {call.model!r} is {kind} and predicts numbers"
        )


def need_one_label(call: ModelCall, labels: Sequence[Any] | None) -> None:
    """Raise BadArgument for a multi-label model."""
    if labels is not None:
        raise BadArgument(
            f"ML.{call.function.upper()} needs a model of one label; {call.model!r} has {len(labels)}. Use ML.EVALUATE "
            "without a threshold"
        )


def need_two_classes(call: ModelCall, classes: Sequence[Any], *, probable: bool) -> None:
    """Raise BadArgument unless a model has two classes and probabilities."""
    if len(classes) != 2 or not probable:
        raise BadArgument(
            f"ML.{call.function.upper()} needs two classes and probabilities, as of a logistic model; "
            f"{call.model!r} has {len(classes)} classes and {'' if probable else 'no '}probabilities"
        )


def threshold_of(call: ModelCall, classes: Sequence[Any], *, probable: bool) -> float | None:
    """Return the threshold of a call, or None.

    Raises:
        BadArgument: It is not from 0 to 1, or the model lacks two classes with probabilities.
    """
    threshold: float | None = call.options.get("threshold")
    if threshold is not None and (not 0 <= threshold <= 1 or not probable or len(classes) != 2):
        raise BadArgument(f"threshold must be from 0 to 1 and needs a logistic model of two classes, got {threshold!r}")
    return threshold
