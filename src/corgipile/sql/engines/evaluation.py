"""How well a model does: what ``ML.EVALUATE`` and its like answer, of rows that an engine has counted."""

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
    "BINS",
    "CLASSES",
    "INTERCEPT",
    "LABELS",
    "MASS",
    "NUMBERS",
    "Counts",
    "bins_of",
    "confused",
    "counted",
    "curve",
    "figures",
    "need_classes",
    "need_one_label",
    "quantiles",
    "threshold_of",
    "two_probable",
    "weight_of",
    "with_errors",
]

# What ML.EVALUATE answers of models of classes, and of models of numbers.
CLASSES = ("loss", "accuracy", "precision", "recall", "f1_score", "log_loss", "roc_auc", "rows")
NUMBERS = ("loss", "r2", "mean_absolute_error", "mean_squared_error", "rows")
# And of models of several labels, as `LabelModels.measure` has it.
MEANS = tuple(f"{name}_{mean}" for mean in ("micro", "macro") for name in ("precision", "recall", "f1"))
LABELS = ("loss", "accuracy", "subset_accuracy", *MEANS, "rows")
RATES = ("threshold", "recall", "false_positive_rate")
# What ML.CALIBRATION answers, as Python and PostgreSQL call it, and ML.ADVANCED_WEIGHTS of a coefficient.
BINS = ("low", "high", "predicted", "observed", "rows", "weight")
ERRORS = ("weight", "standard_error", "z", "p_value", "low", "high", "gap")
INTERCEPT = "__INTERCEPT__"
SIDES = ("true_positives", "false_positives", "true_negatives", "false_negatives")
# Rows as SQL counts them by a column `weight`: what they count for, and how many weights are wrong.
MASS = "sum(weight), count(*) FILTER (WHERE (weight >= 0 AND weight < 'Infinity'::float8) IS NOT TRUE)"
PERCENT = 100
MOST_CLASSES = 1000  # columns of an answer
Row = dict[str, Any]


Number = int | float


class Counts(NamedTuple):
    """Rows, or what they count for, by their class and the one that was predicted, both by number, from 0 on."""

    classes: list[Any]
    cells: Mapping[tuple[int, int], Number]
    weighted: bool = False

    def figures(self) -> Row:
        """Return accuracy, precision, recall and F1: of two classes those of the second, of more their means.

        A precision of a class that is never predicted is None, and so is the recall of one without rows; in a mean
        both are 0.

        Example:
            >>> Counts(["no", "yes"], {(0, 0): 2, (1, 1): 1, (1, 0): 1}).figures()
            {'accuracy': 0.75, 'precision': 1.0, 'recall': 0.5, 'f1_score': 0.6666666666666666}
        """
        there, said = defaultdict[int, Number](int), defaultdict[int, Number](int)
        for (actual, predicted), rows in self.cells.items():
            there[actual] += rows
            said[predicted] += rows
        total, right = sum(there.values()), [self.cells.get((k, k), 0) for k in range(len(self.classes))]
        asked = [1] if len(right) == 2 else range(len(right))
        found = {
            "accuracy": [(sum(right), total)],
            "precision": [(right[k], said[k]) for k in asked],
            "recall": [(right[k], there[k]) for k in asked],
            "f1_score": [(2 * right[k], said[k] + there[k]) for k in asked],
        }
        return {name: _mean(shares) for name, shares in found.items()}


def _mean(shares: Sequence[tuple[Number, Number]]) -> float | None:
    if len(shares) == 1:
        part, whole = shares[0]
        return part / whole if whole else None
    return sum(part / whole if whole else 0.0 for part, whole in shares) / len(shares)


def weight_of(call: ModelCall, kinds: Mapping[str, pa.DataType], label: str) -> str | None:
    """Return the column of what rows count for that a call names, as the rows spell it.

    Raises:
        MissingColumn: There is none.
        BadSchema: It holds no numbers.
        BadArgument: It is the label.
    """
    if "weight" not in call.options:
        return None
    name = column_named(call.options["weight"], list(kinds))
    if name == label:
        raise BadArgument(f"column {name!r} is the label; it cannot be the weight too")
    if not is_plain_number(kinds[name]):
        raise BadSchema(f"weight column {name!r} is {kinds[name]}; int, bool, float or decimal are needed")
    return name


def mass(count: int, weights: Sequence[Any], weight: str | None) -> Number:
    """Return what rows count for, of what SQL counted: how many they are, and `MASS` where they have weights.

    Raises:
        BadValue: A weight is not a finite number of 0 or more.
    """
    if weight is None:
        return count
    total, wrong = weights
    if wrong:
        raise BadValue(f"{wrong} rows have a null, negative or infinite {weight!r}; weights are finite and 0 or more")
    return float(total)


def _count_for_something(cells: Collection[Number]) -> None:
    """Raise BadValue where there are rows, and each counts for nothing."""
    if cells and not any(cells):
        raise BadValue("the weights of the rows to judge are all zero; one above 0 is needed")


def counted(rows: Iterable[Sequence[Any]], classes: Sequence[Any], model: str, weight: str | None = None) -> Counts:
    """Return counts of what SQL counted: the numbers of classes, from 1 on, rows, and their `MASS` by a column.

    Raises:
        BadLabel: A row is of no class of the model.
        BadValue: Nothing is predicted of a row, or its weight serves for nothing.
    """
    cells = defaultdict[tuple[int, int], Number](int)
    for actual, predicted, count, *weights in rows:
        if not actual:
            raise BadLabel(
                f"{count} rows have a label that is none of the classes of model {model!r}: {listed(classes)}"
            )
        if not predicted:
            raise BadValue(f"model {model!r} predicts nothing of {count} rows: a feature of theirs is null")
        cells[actual - 1, predicted - 1] += mass(count, weights, weight)
    _count_for_something(cells.values())
    return Counts(list(classes), cells, weight is not None)


def figures(names: Sequence[str], found: Mapping[str, Any]) -> pa.Table:
    """Return the answer of ``ML.EVALUATE``, a row."""
    kinds = pa.schema([(name, pa.int64() if name == "rows" else pa.float64()) for name in names])
    return pa.Table.from_pylist([{name: found.get(name) for name in names}], kinds)


def confused(counts: Counts) -> pa.Table:
    """Return the answer of ``ML.CONFUSION_MATRIX``: a row a class that rows have, a column each that is predicted.

    Example:
        >>> confused(Counts([0.0, 1.0], {(0, 0): 2, (1, 0): 1})).to_pylist()
        [{'expected_label': 0.0, '_0': 2, '_1': 0}, {'expected_label': 1.0, '_0': 1, '_1': 0}]
    """
    classes = counts.classes
    if len(classes) > MOST_CLASSES:
        raise BadArgument(f"the model has {len(classes)} classes, too many for a column each; GROUP BY counts them")
    columns = {"expected_label": pa.array(classes)}
    for k, name in enumerate(map(_column, classes)):
        kind = pa.float64() if counts.weighted else pa.int64()
        columns[name] = pa.array([counts.cells.get((i, k), 0) for i in range(len(classes))], kind)
    return pa.table(columns)


def _column(value: Any) -> str:
    """Return what a column of a class is called, as BigQuery has it: names do not begin with a digit or a sign."""
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return text if isinstance(value, str) and not text[:1].isdigit() else f"_{text}"


def quantiles() -> list[float]:
    """Return the shares of rows at whose probabilities a curve has its points where nobody names thresholds."""
    return [i / PERCENT for i in range(PERCENT + 1)]


def curve(
    thresholds: Sequence[float], rows: Iterable[Sequence[Any]], model: str, weight: str | None = None
) -> pa.Table:
    """Return the answer of ``ML.ROC_CURVE``, a row a threshold.

    Args:
        thresholds: Where a row counts as of the second class, in increasing order.
        rows: Of each class, by its number from 1 on, how many rows reach so many of the thresholds; and their `MASS`.
        model: The model's name.
        weight: The column of what rows count for.

    Example:
        >>> curve([0.2, 0.5], [(2, 2, 3), (2, 0, 1), (1, 1, 4)], "m").to_pylist()[1]["recall"]
        0.75
    """
    there: list[Number] = []
    found: dict[int, list[Number]] = {1: [0] * (len(thresholds) + 1), 2: [0] * (len(thresholds) + 1)}
    for actual, reached, count, *weights in rows:
        if reached is None:
            raise BadValue(f"model {model!r} predicts nothing of {count} rows: a feature of theirs is null")
        if actual not in found:
            raise BadLabel(f"{count} rows have a label that is none of the classes of model {model!r}")
        there.append(mass(count, weights, weight))
        found[actual][reached] += there[-1]
    _count_for_something(there)
    (false, negatives), (true, positives) = (_above(found[k]) for k in (1, 2))
    made = {
        at: (at, _mean([(tp, positives)]), _mean([(fp, negatives)]), tp, fp, negatives - fp, positives - tp)
        for at, tp, fp in zip(thresholds, true, false, strict=True)
    }
    side = pa.int64() if weight is None else pa.float64()
    kinds = pa.schema([(name, pa.float64()) for name in RATES] + [(name, side) for name in SIDES])
    return pa.Table.from_pylist([dict(zip(kinds.names, row, strict=True)) for row in reversed(made.values())], kinds)


def _above(reached: list[Number]) -> tuple[list[Number], Number]:
    """Return how many rows reach each threshold, and how many there are."""
    least = list(accumulate(reversed(reached)))[::-1]
    return least[1:], least[0]


def with_errors(names: Sequence[str], values: Iterable[Sequence[float | None]]) -> pa.Table:
    """Return the answer of ``ML.ADVANCED_WEIGHTS``: a row a feature, as `ERRORS`, and one for the constant.

    Example:
        >>> with_errors(["x"], [(2, 1, 2, 0.05, 0, 4, 0.1)]).to_pylist()[0]["p_value"]
        0.05
    """
    rows = [dict(zip(ERRORS, row, strict=True)) for row in values]
    named = [*names, INTERCEPT][: len(rows)]
    kinds = pa.schema([(name, pa.float64()) for name in ERRORS])
    return pa.Table.from_pylist(rows, kinds).add_column(0, "processed_input", pa.array(named))


def bins_of(call: ModelCall) -> int:
    """Return how many bins a call names.

    Raises:
        BadArgument: They are none, or too many.
    """
    return whole(call.options.get("bins", 10), "bins", 1, MAX_BINS)


def need_classes(call: ModelCall, kind: str, *, numbers: bool) -> None:
    """Raise BadArgument of a model that predicts numbers."""
    if numbers:
        raise BadArgument(
            f"model {call.model!r} is {kind} and predicts numbers; ML.{call.function.upper()} is of classes"
        )


def need_one_label(call: ModelCall, labels: Sequence[Any] | None) -> None:
    """Raise BadArgument of models of several labels, None of others."""
    if labels is not None:
        raise BadArgument(
            f"{call.model!r} is a model for each of {len(labels)} labels, and ML.{call.function.upper()} is of one; "
            "ML.EVALUATE without a threshold measures them all"
        )


def two_probable(call: ModelCall, classes: Sequence[Any], *, probable: bool) -> None:
    """Raise BadArgument unless a model has probabilities of two classes."""
    if len(classes) != 2 or not probable:
        raise BadArgument(
            f"ML.{call.function.upper()} is of two classes and their probabilities, which a logistic model has; "
            f"model {call.model!r} has {len(classes)} classes and {'' if probable else 'no '}probabilities"
        )


def threshold_of(call: ModelCall, classes: Sequence[Any], *, probable: bool) -> float | None:
    """Return the threshold of a call, if it names one.

    Raises:
        BadArgument: It is no share, or the model is none of two classes with probabilities.
    """
    threshold: float | None = call.options.get("threshold")
    if threshold is not None and (not 0 <= threshold <= 1 or not probable or len(classes) != 2):
        raise BadArgument(
            f"threshold is {threshold!r}; a share of 0 to 1 is right, for a logistic model of two classes"
        )
    return threshold
