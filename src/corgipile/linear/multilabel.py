"""Models of several labels: one for each, which says whether a row has it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadValue
from corgipile.linear import passes
from corgipile.linear.classes import check_weight
from corgipile.linear.encoded import numeric, readable
from corgipile.linear.evaluation import Evaluation, figures_of
from corgipile.linear.features import Features
from corgipile.linear.label_sets import Label, LabelSets, find_label_sets
from corgipile.linear.model import Model, What
from corgipile.linear.multi_model import check_rates, learnt_of_one, of_one
from corgipile.linear.nulls import NullsAsNaN
from corgipile.linear.sgd import SGD, Figures, Locate, SlotArray, rows_in
from corgipile.linear.standard_errors import Summary
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.sizes import OnBad, choice
from corgipile.tables import open as open_table

__all__ = ["LabelModels", "check_labels"]

Counts = npt.NDArray[np.float64]


class SideBySide:
    """Several models that score the same rows.

    Args:
        each: The models, of one output each.
    """

    def __init__(self, each: list[SGD]) -> None:
        self.each, self.inputs = each, each[0].inputs

    def decide(self, *rows: Any) -> npt.NDArray[Any]:
        """Score rows by slot, see `SGD.decide`: [rows, models]."""
        return np.concatenate([one.decide(*rows) for one in self.each], axis=1)


@dataclass
class Tally:
    """How often labels were right.

    Attributes:
        hits: By label, what the rows count for that have it and are said to.
        said: That of all which are said to have it.
        there: That of all which have it.
        right: That of rows all of whose labels are right.
    """

    hits: Counts
    said: Counts
    there: Counts
    right: float = 0.0

    def add(self, truth: npt.NDArray[np.bool_], guess: npt.NDArray[np.bool_], counts: Counts) -> None:
        """Take in rows: whether they have labels, and are said to, [rows, labels], and what they count for."""
        self.hits += counts @ (truth & guess)
        self.said += counts @ guess
        self.there += counts @ truth
        self.right += float(counts @ (truth == guess).all(axis=1))

    def means(self) -> dict[str, float]:
        """Return precision, recall and F1 of all labels together, and their means over labels, to which NaN adds 0."""
        sums = [np.array([part.sum()]) for part in (self.hits, self.said, self.there)]
        micro, macro = figures_of(*sums), figures_of(self.hits, self.said, self.there)
        return {f"{name}_micro": float(np.nan_to_num(one[0])) for name, one in micro.items()} | {
            f"{name}_macro": float(np.nan_to_num(one).mean()) for name, one in macro.items()
        }


@dataclass
class LabelModels(Model):
    """Linear models of the same features, one for each label, as ``train(labels=...)`` makes them.

    ``coef`` is [labels, features]: a line says whether a row has the label. Predictions are [rows, labels], 1 where a
    row has the label, as scikit-learn has it of labels.

    Example:
        >>> import corgipile as cp
        >>> rows = pa.table({"x": [-1.0, 1.0] * 100, "tags": [["low"], ["high", "odd"]] * 100})
        >>> models = cp.train(rows, labels="tags")
        >>> models.labels, models.predict(rows)[:2].tolist(), models.sets(rows)[:2]
        (['high', 'low', 'odd'], [[0, 1, 0], [1, 0, 1]], [['low'], ['high', 'odd']])
    """

    @property
    def labels(self) -> list[Label]:
        """Return the labels, in the order of the lines of the coefficients."""
        return list(self.params["labels"])

    def of(self, label: Label) -> Model:
        """Return the model of one label, whose classes are 0 and 1.

        Raises:
            BadArgument: There is none.
        """
        if label not in self.labels:
            raise BadArgument(f"there is no model of label {label!r}; there are {self.labels[:10]!r}")
        at = self.labels.index(label)
        params = {name: value for name, value in of_one(self.params, at).items() if name != "labels"}
        mine = slice(at, at + 1)
        learnt = learnt_of_one(self.learnt, mine)
        return Model(self.kind, self.coef[mine], self.intercept[mine], self.classes, params, self.history, learnt)

    def sets(self, rows: Any) -> list[list[Label]]:
        """Return the labels that each row is said to have."""
        labels = self.labels
        return [[labels[at] for at in np.flatnonzero(one)] for one in self.predict(rows)]

    def sgd(self, inputs: Features, on_bad: OnBad = "raise") -> Any:
        """Return kernels that hold these models, for features of the given form."""
        return SideBySide([self.of(label).sgd(inputs, on_bad) for label in self.labels])

    def summary(self, table: Any, label: str | None = None, weight: str | None = None) -> Summary:
        """Refuse: standard errors are those of one model.

        Raises:
            BadArgument: Always.
        """
        raise BadArgument(
            "standard errors are of one model: of(...) gives that of one label, for a table with its column"
        )

    def judge(self, *rows: Any, **how: Any) -> Evaluation:
        """Refuse: `measure` and `label_metrics` say it of all labels.

        Raises:
            BadArgument: Always.
        """
        raise BadArgument(
            "judge is of one model: of(...) gives that of one label, for a table with its column; measure and "
            "label_metrics (`corgipile judge`) have those of all"
        )

    def finish(self, scores: npt.NDArray[Any], what: What) -> npt.NDArray[Any]:
        """Return what scores, [rows, labels], say: themselves, the probability of each label, or which there are."""
        if what == "decision":
            return scores
        parts = [super(LabelModels, self).finish(scores[:, at : at + 1], what) for at in range(scores.shape[1])]
        return np.stack([part[:, 1] if part.ndim == 2 else part for part in parts], axis=1)

    def measure(
        self, table: Any, label: Any = None, weight: str | None = None, *, on_bad: OnBad = "raise"
    ) -> dict[str, float]:
        """Return how well labels of a table are told.

        Args:
            table: A path, a `Table`, a ``pyarrow.Table`` or a data frame.
            label: The column of lists, or the columns of 0 and 1 in the order of `labels`; None: those of training.
            weight: A column of what rows count for; None: each for 1.
            on_bad: ``"raise"``; of several labels no rows are left out.

        Returns:
            ``loss`` and ``accuracy``, means over the labels; ``subset_accuracy``, the share of rows all of whose labels
            are right; ``precision``, ``recall`` and ``f1`` of all labels together, ``_micro``, and their means over the
            labels, ``_macro``, to which one of 0 / 0 contributes 0.

        Raises:
            BadValue: The table has no rows, or a row has a label or feature that is none.
        """
        if choice(on_bad, "on_bad", OnBad) == "skip":
            raise BadArgument("on_bad='skip' is of one model: of(...) gives that of one label")
        return self.figures(table, label, weight)[0]

    evaluate = measure

    def label_metrics(self, table: Any, label: Any = None, weight: str | None = None) -> pa.Table:
        """Return ``precision``, ``recall``, ``f1`` and ``rows`` of labels, NaN of 0 / 0; arguments as of `measure`."""
        return self.figures(table, label, weight)[1]

    def figures(self, table: Any, label: Any = None, weight: str | None = None) -> tuple[dict[str, float], pa.Table]:
        """Return what `measure` and `label_metrics` do, from one read; arguments as of `measure`."""
        figures, tally = self._judge(table, label, weight)
        loss, score = (float(np.mean([one[at] for one in figures])) for at in (1, 2))
        means = {"loss": loss, "accuracy": score, "subset_accuracy": tally.right / figures[0].weight, **tally.means()}
        each = figures_of(tally.hits, tally.said, tally.there)
        return means, pa.table({"label": self.labels, **each, "rows": tally.there})

    def _judge(self, table: Any, label: Any, weight: str | None) -> tuple[list[Figures], Tally]:
        """Return the figures of each model on a table, and how often labels were right."""
        opened = numeric(open_table(table), weight)
        found = self._labels_of(opened, label)
        if weight is not None:
            check_weight(opened, weight, found.name, repr(opened))
        source = readable(found.table(opened), self.encoding, found.name)
        each = self.sgd(self.inputs(source, found.name)).each
        tally = Tally(*np.zeros((3, len(each))))
        for one in each:
            one.eval_mode()
            one.begin(0.0)
        rows = NullsAsNaN(source, each[0].inputs, found.name)
        with passes.reader(each[0].inputs, rows, found.name, weight) as feeder:
            for step, visit in enumerate(feeder.epoch(0)):
                _judge_rows(each, tally, feeder, found, visit, passes.row_at(feeder, 0, step), weight)
            figures = [passes.checked(one.flush(), one, feeder) for one in each]
        if skipped := max(one.skipped for one in each):
            raise BadValue(f"{skipped} rows of {opened!r} have scores beyond what {self.coef.dtype} can hold")
        return figures, tally

    def _labels_of(self, opened: Any, label: Any) -> LabelSets:
        column = self.params.get("label") if label is None else label
        if column is None:
            column = [str(one) for one in self.labels]
        if not isinstance(column, str) and len(column) != len(self.labels):
            raise BadArgument(f"there are {len(self.labels)} labels, got {len(column)} columns")
        return find_label_sets(opened, column, self.labels)


def _judge_rows(
    each: list[SGD],
    tally: Tally,
    feeder: BufferedReader,
    found: LabelSets,
    visit: SlotArray,
    locate: Locate,
    weight: str | None,
) -> None:
    """Measure all models on the rows of a step."""
    slots, numbers = rows_in(feeder.buffer, each[0].inputs, visit), feeder.buffer.dense(found.name)
    weights = None if weight is None else feeder.buffer.dense(weight)
    truth = found.sets[numbers[visit].astype(np.intp)]
    guess = np.empty_like(truth)
    for at, one in enumerate(each):
        labels = np.zeros(len(numbers))
        labels[visit] = truth[:, at]
        one.learn(slots, labels, visit, locate, weights)
        guess[:, at] = one.decide(slots, visit, locate)[:, 0] > 0
    tally.add(truth, guess, np.ones(len(visit)) if weights is None else weights[visit].astype(np.float64))


def check_labels(params: dict[str, Any]) -> None:
    """Raise ValueError unless what a model file says of labels is as training writes it."""
    labels = params["labels"]
    fits = isinstance(labels, list) and labels and all(type(one) in (str, int) for one in labels)
    if not fits or len({*labels}) < len(labels):
        raise ValueError("its labels are damaged")
    check_rates(params, len(labels))
