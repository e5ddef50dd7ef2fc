"""Multilabel scikit-learn estimator; importing this module imports scikit-learn."""

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

LABELS = "label_sets"  # the label column of the table to train on


class CorgiLabelClassifier(CorgiClassifier):
    """Multilabel classifier: one linear model per label, all trained by SGD in the same pass.

    ``y`` is scikit-learn's indicator [rows, labels] of 0 and 1, dense or sparse; predictions have the same form. For
    tables use `corgipile.train` with ``labels=``.

    Args:
        model: The name of a binary loss, as for `corgipile.train`; None: ``"logistic"``.
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
        """Train on arrays or a data frame; ``sample_weight`` holds a weight per row.

        Raises:
            BadArgument: The rows are a table, or a setting is not supported with labels.
            ValueError: ``y`` is not an indicator, or a label is in no row or in all.
        """
        if not _is_rows(X):
            raise BadArgument(f"fit needs an array or a data frame, got {X!r}; for tables use train(labels=...)")
        if self.warm_start:
            raise BadArgument("models of labels do not support warm_start; leave it out")
        self._arrays_only()
        x, has_label = validate_data(
            self, X, _indicator(y), accept_sparse="csr", dtype=[np.float64, np.float32], multi_output=True
        )
        table: Any = open_table((x, np.zeros(len(has_label), np.int8)))
        table = MemoryTable(table.rows.drop_columns(["label"]).append_column(LABELS, _lists(has_label)))
        args = {key: value for key, value in self.get_params(deep=False).items() if key not in ("model", "warm_start")}
        if (weights := self._weights(sample_weight, len(has_label))) is not None:
            table, args["weight"] = _weighted(table, weights), WEIGHT
        args["features"], self._by_table = "features", False
        self.model_ = train(table, model=self._kind(numbers=False), labels=LABELS, **args)
        self.classes_ = np.arange(has_label.shape[1])
        self._name_features()
        self.coef_, self.intercept_, self.n_iter_ = self.model_.coef, self.model_.intercept, len(self.model_.history)
        return self

    @available_if(lambda _: False)  # type: ignore[untyped-decorator]
    def partial_fit(self, *rows: Any, **more: Any) -> Self:
        """Raise: these models cannot be continued."""
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
    """Return labels as bool[rows, labels]; raise ValueError if they are missing, or a label is in no row or in all."""
    if y is None:
        raise ValueError("CorgiLabelClassifier requires y to be passed, but the target y is None")
    kind = type_of_target(y, input_name="y")
    if kind != "multilabel-indicator":
        raise ValueError(f"y must be an indicator [rows, labels] of 0 and 1 with at least two labels, got {kind}")
    checked = check_array(y, accept_sparse="csr", dtype=None, input_name="y")
    values = np.asarray(checked.toarray() if hasattr(checked, "toarray") else checked)
    has_label = values.astype(bool)
    if (values != has_label).any():
        raise ValueError(f"y must be an indicator [rows, labels] of 0 and 1, got {values[values != has_label][0]}")
    for at, share in enumerate(has_label.mean(axis=0).tolist()):
        if share in (0.0, 1.0):
            raise ValueError(
                f"{'all' if share else 'none'} of the rows have label {at}; it must be in some rows, not in all"
            )
    return has_label


def _lists(has_label: npt.NDArray[np.bool_]) -> pa.Array:
    """Return the labels of each row as a list of their numbers."""
    ends = np.concatenate([[0], has_label.sum(axis=1).cumsum()]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(np.nonzero(has_label)[1].astype(np.int32)))
