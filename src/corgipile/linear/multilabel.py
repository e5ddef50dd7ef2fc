"""Multilabel models: one binary model per label."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadValue
from corgipile.linear import passes
from corgipile.linear.classes import check_weight
from corgipile.linear.encoded import as_numbers, encode_table
from corgipile.linear.evaluation import Evaluation, figures_of
from corgipile.linear.features import Features
from corgipile.linear.label_sets import Label, LabelSets, find_label_sets
from corgipile.linear.model import Model, What
from corgipile.linear.multi_model import MultiModel
from corgipile.linear.nulls import NullsAsNaN
from corgipile.linear.sgd import SGD, Figures
from corgipile.linear.stack import learn_all
from corgipile.sizes import OnBad, choice
from corgipile.tables import open as open_table

__all__ = ["LabelModels"]

Counts = npt.NDArray[np.float64]


class ModelList:
    """Several models that score the same rows.

    Args:
        each: The models, with one output each.
    """

    def __init__(self, each: list[SGD]) -> None:
        self.each, self.inputs = each, each[0].inputs

    def decide(self, *rows: Any) -> npt.NDArray[Any]:
        """Score rows as `SGD.decide` does: [rows, models]."""
        return np.concatenate([model.decide(*rows) for model in self.each], axis=1)


@dataclass
class Tally:
    """Weights of correctly predicted labels.

    Attributes:
        hits: By label, the weight of rows that have it and are predicted to.
        predicted: By label, the weight of rows predicted to have it.
        actual: By label, the weight of rows that have it.
        exact: The weight of rows whose labels are all correct.
    """

    hits: Counts
    predicted: Counts
    actual: Counts
    exact: float = 0.0

    def add(self, actual: npt.NDArray[np.bool_], predicted: npt.NDArray[np.bool_], counts: Counts) -> None:
        """Add rows: their actual and predicted labels, [rows, labels], and their weights."""
        self.hits += counts @ (actual & predicted)
        self.predicted += counts @ predicted
        self.actual += counts @ actual
        self.exact += float(counts @ (actual == predicted).all(axis=1))

    def means(self) -> dict[str, float]:
        """Return precision, recall and F1 over all labels, and their means over labels; NaN counts as 0."""
        sums = [np.array([part.sum()]) for part in (self.hits, self.predicted, self.actual)]
        micro, macro = figures_of(*sums), figures_of(self.hits, self.predicted, self.actual)
        return {f"{name}_micro": float(np.nan_to_num(one[0])) for name, one in micro.items()} | {
            f"{name}_macro": float(np.nan_to_num(one).mean()) for name, one in macro.items()
        }


@dataclass
class LabelModels(MultiModel, named="labels"):
    """Linear models with the same features, one per label, from ``train(labels=...)``.

    ``coef`` is [labels, features]. Predictions are scikit-learn's indicator [rows, labels]: 1 if a row has the label.

    Example:
        >>> import corgipile as cp
        >>> rows = pa.table({"x": [-1.0, 1.0] * 100, "tags": [["low"], ["high", "odd"]] * 100})
        >>> models = cp.train(rows, labels="tags")
        >>> models.labels, models.predict(rows)[:2].tolist(), models.sets(rows)[:2]
        (['high', 'low', 'odd'], [[0, 1, 0], [1, 0, 1]], [['low'], ['high', 'odd']])
    """

    each, own, single = "labels", ("labels",), "a table that has the label's column"

    @property
    def labels(self) -> list[Label]:
        """Return the labels, in the order of the coefficients."""
        return self.values

    def of(self, label: Label) -> Model:
        """Return the model of one label, whose classes are 0 and 1.

        Raises:
            BadArgument: The label is unknown.
        """
        if label not in self.labels:
            raise BadArgument(f"label {label!r} has no model; labels are {self.labels[:10]!r}")
        return self.model(self.labels.index(label))

    def sets(self, rows: Any) -> list[list[Label]]:
        """Return the predicted labels of each row."""
        labels = self.labels
        return [[labels[at] for at in np.flatnonzero(one)] for one in self.predict(rows)]

    def sgd(self, inputs: Features, on_bad: OnBad = "raise") -> Any:
        """Return SGD kernels with these models' weights, for features of the given form."""
        return ModelList([self.of(label).sgd(inputs, on_bad) for label in self.labels])

    def judge(self, *rows: Any, **how: Any) -> Evaluation:
        """Raise: `measure` and `label_metrics` evaluate all labels.

        Raises:
            BadArgument: Always.
        """
        raise BadArgument(
            "judge needs one model: use of(...) with a table that has the label's column; for all labels use "
            "measure and label_metrics (`corgipile evaluate`)"
        )

    def check(self) -> None:
        """Raise ValueError unless the labels in a model file are as training writes them."""
        labels = self.params["labels"]
        fits = isinstance(labels, list) and labels and all(type(one) in (str, int) for one in labels)
        if not fits or len({*labels}) < len(labels):
            raise ValueError("its labels are damaged")
        super().check()

    def finish(self, scores: npt.NDArray[Any], what: What) -> npt.NDArray[Any]:
        """Return scores, [rows, labels], as themselves, probabilities by label, or predictions."""
        if what == "decision":
            return scores
        parts = [super(LabelModels, self).finish(scores[:, at : at + 1], what) for at in range(scores.shape[1])]
        return np.stack([part[:, 1] if part.ndim == 2 else part for part in parts], axis=1)

    def measure(
        self, table: Any, label: Any = None, weight: str | None = None, *, on_bad: OnBad = "raise"
    ) -> dict[str, float]:
        """Evaluate all labels on a table.

        Args:
            table: A path, a `Table`, a ``pyarrow.Table`` or a data frame.
            label: The column of lists, or the columns of 0 and 1 in the order of `labels`; None: those of training.
            weight: The weight column; None: every row has weight 1.
            on_bad: ``"raise"``; models of labels cannot skip rows.

        Returns:
            ``loss`` and ``accuracy``, means over labels; ``subset_accuracy``, the share of rows whose labels are all
            correct; ``precision``, ``recall`` and ``f1`` over all labels, ``_micro``, and their means over labels,
            ``_macro``, where 0 / 0 counts as 0.

        Raises:
            BadValue: The table has no rows, or a label or feature is not valid.
        """
        if choice(on_bad, "on_bad", OnBad) == "skip":
            raise BadArgument("on_bad='skip' needs one model: use of(...) for one label")
        return self.figures(table, label, weight)[0]

    evaluate = measure

    def label_metrics(self, table: Any, label: Any = None, weight: str | None = None) -> pa.Table:
        """Return ``precision``, ``recall``, ``f1`` and ``rows`` by label, NaN for 0 / 0; arguments as `measure`."""
        return self.figures(table, label, weight)[1]

    def figures(self, table: Any, label: Any = None, weight: str | None = None) -> tuple[dict[str, float], pa.Table]:
        """Return the results of `measure` and `label_metrics` from one pass; arguments as `measure`."""
        figures, tally = self._evaluate(table, label, weight)
        loss, score = (float(np.mean([one[at] for one in figures])) for at in (1, 2))
        means = {"loss": loss, "accuracy": score, "subset_accuracy": tally.exact / figures[0].weight, **tally.means()}
        each = figures_of(tally.hits, tally.predicted, tally.actual)
        return means, pa.table({"label": self.labels, **each, "rows": tally.actual})

    def _evaluate(self, table: Any, label: Any, weight: str | None) -> tuple[list[Figures], Tally]:
        """Return the figures of each model on a table, and the tally of labels."""
        opened = as_numbers(open_table(table), weight)
        label_sets = self._labels_of(opened, label)
        if weight is not None:
            check_weight(opened, weight, label_sets.name, repr(opened))
        source = encode_table(label_sets.table(opened), self.encoding, label_sets.name)
        models, sets = self.sgd(self.inputs(source, label_sets.name)), np.ascontiguousarray(label_sets.sets)
        each = models.each
        tally = Tally(*np.zeros((3, len(each))))
        for model in each:
            model.eval_mode()
            model.begin(0.0)
        rows = NullsAsNaN(source, each[0].inputs, label_sets.name)
        with passes.reader(each[0].inputs, rows, label_sets.name, weight) as feeder:
            for step in passes.steps(feeder, each[0].inputs, label_sets.name, weight):
                learn_all(each, step, sets)
                actual = sets[step.labels[step.visit].astype(np.intp)]
                tally.add(actual, passes.score(models, step) > 0, step.counts())
            figures = [passes.check_figures(model.flush(), model, feeder) for model in each]
        if skipped := max(model.skipped for model in each):
            raise BadValue(f"{skipped} rows of {opened!r} have scores outside the range of {self.coef.dtype}")
        return figures, tally

    def _labels_of(self, opened: Any, label: Any) -> LabelSets:
        column = self.params.get("label") if label is None else label
        if column is None:
            column = [str(name) for name in self.labels]
        if not isinstance(column, str) and len(column) != len(self.labels):
            raise BadArgument(f"label must name {len(self.labels)} columns, one per label, got {len(column)}")
        return find_label_sets(opened, column, self.labels)
