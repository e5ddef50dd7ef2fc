"""Models of several labels as a scikit-learn estimator; importing this module imports scikit-learn."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_array, validate_data

from corgipile.errors import BadArgument
from corgipile.linear.estimators import WEIGHT, CorgiClassifier, _is_rows, _weighted
from corgipile.linear.train import train
from corgipile.tables import MemoryTable
from corgipile.tables import open as open_table

__all__ = ["CorgiLabelClassifier"]

LABELS = "label_sets"  # the column of labels beside the features


class CorgiLabelClassifier(CorgiClassifier):
    """Tells which of several labels rows have, by a linear model for each, all trained by SGD from one read.

    ``y`` is an indicator [rows, labels] of 0 and 1, dense or sparse, as scikit-learn has it; so are predictions. From
    tables `corgipile.train` learns labels by ``labels=``.

    Args:
        model: A loss of two classes by its name, as `corgipile.train` takes it; None: ``"logistic"``.
        **settings: See `corgipile.train`.

    Example:
        >>> x = np.array([[-1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [-1.0, 1.0]] * 50)
        >>> y = (x > 0.5).astype(int)
        >>> CorgiLabelClassifier().fit(x, y).predict(x[:3]).tolist()
        [[0, 0], [1, 0], [1, 1]]
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output, tags.target_tags.single_output = True, False
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803  # scikit-learn's name
        """Learn from arrays or a data frame; ``sample_weight`` is what each row counts for.

        Raises:
            BadArgument: The rows are a table, or a setting is for one model.
            ValueError: ``y`` is no indicator, or none or all of the rows have a label.
        """
        if not _is_rows(X):
            raise BadArgument(
                f"fit learns labels from arrays and data frames, got {X!r}; train(labels=...) from tables"
            )
        if self.warm_start:
            raise BadArgument("warm_start goes on from one model; models of labels begin anew")
        self._arrays_only()
        x, there = validate_data(
            self, X, _indicator(y), accept_sparse="csr", dtype=[np.float64, np.float32], multi_output=True
        )
        table: Any = open_table((x, np.zeros(len(there), np.int8)))
        table = MemoryTable(table.rows.drop_columns(["label"]).append_column(LABELS, _lists(there)))
        own = {name: one for name, one in self.get_params(deep=False).items() if name not in ("model", "warm_start")}
        if (weights := self._weights(sample_weight, len(there))) is not None:
            table, own["weight"] = _weighted(table, weights), WEIGHT
        own["features"], self._by_table = "features", False
        self.model_ = train(table, model=self._kind(numbers=False), labels=LABELS, **own)
        self.classes_ = np.arange(there.shape[1])
        self._name_features()
        self.coef_, self.intercept_, self.n_iter_ = self.model_.coef, self.model_.intercept, len(self.model_.history)
        return self

    @available_if(lambda _: False)  # type: ignore[untyped-decorator]
    def partial_fit(self, *rows: Any, **more: Any) -> Self:
        """Go on, which these models do not."""
        raise NotImplementedError

    def predict(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803  # scikit-learn's name
        """Return 0 or 1 for each row and label."""
        rows = self._rows(X)
        return self.model_.predict(rows)

    def decision_function(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803  # scikit-learn's name
        """Return the score of each row and label, above 0 where the row has the label."""
        rows = self._rows(X)
        return self.model_.decision(rows)


def _indicator(y: Any) -> npt.NDArray[np.bool_]:
    """Return labels as bool[rows, labels].

    Raises:
        ValueError: They are none, or none or all of the rows have a label.
    """
    if y is None:
        raise ValueError("CorgiLabelClassifier requires y to be passed, but the target y is None")
    kind = type_of_target(y, input_name="y")
    if kind != "multilabel-indicator":
        raise ValueError(f"y must be an indicator [rows, labels] of 0 and 1 with two labels at least, got {kind}")
    found = check_array(y, accept_sparse="csr", dtype=None, input_name="y")
    values = np.asarray(found.toarray() if hasattr(found, "toarray") else found)
    there = values.astype(bool)
    if (values != there).any():
        raise ValueError(f"y must be an indicator [rows, labels] of 0 and 1, got {values[values != there][0]}")
    for at, share in enumerate(there.mean(axis=0).tolist()):
        if share in (0.0, 1.0):
            raise ValueError(
                f"{'all' if share else 'none'} of the rows have label {at}; one that some have can be learnt"
            )
    return there


def _lists(there: npt.NDArray[np.bool_]) -> pa.Array:
    """Return the labels of each row as a list of their numbers."""
    ends = np.concatenate([[0], there.sum(axis=1).cumsum()]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(np.nonzero(there)[1].astype(np.int32)))
