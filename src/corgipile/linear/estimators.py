"""scikit-learn estimators; importing this module imports scikit-learn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Number
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadValue, MissingExtra
from corgipile.linear.classes import check_label
from corgipile.linear.labelled import Labelled
from corgipile.linear.schedule import choose_step, uses_average
from corgipile.linear.train import train
from corgipile.losses import loss_of, most_classes, quoted
from corgipile.settings import TrainSettings
from corgipile.sizes import yes_or_no
from corgipile.suggestions import listed
from corgipile.tables import MemoryTable, Table
from corgipile.tables import open as open_table
from corgipile.tables.columns import column

if TYPE_CHECKING:
    from corgipile.linear.model import Model

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data
except ImportError:
    raise MissingExtra("the estimators need scikit-learn 1.6 or later: pip install corgipile[sklearn]") from None

__all__ = ["CorgiClassifier", "CorgiRegressor"]

WEIGHT = "\x1fsample_weight"  # column that holds a sample_weight argument


def _is_rows(x: Any) -> bool:
    """Return whether x is an array, a matrix or a data frame, not a table or a path."""
    return not (isinstance(x, str | pa.Table | pa.RecordBatch) or hasattr(x, "__fspath__") or hasattr(x, "cuts"))


def _is_frame(x: Any) -> bool:
    """Return whether x is a data frame."""
    return _is_rows(x) and hasattr(x, "columns") and hasattr(x, "dtypes")


def _as_table(x: Any, y: npt.NDArray[Any]) -> Table:
    """Wrap checked arrays as a table, without a copy where Arrow can."""
    return open_table((x, y))


def _weighted(table: Table, weights: npt.NDArray[Any]) -> Table:
    """Return a table with a column of weights appended."""
    if WEIGHT in table.schema.names:
        raise BadArgument(f"the rows have a column {WEIGHT!r} and sample_weight was given; leave one out")
    if isinstance(table, MemoryTable):
        return MemoryTable(table.rows.append_column(WEIGHT, pa.array(weights)))
    return Labelled(table, WEIGHT, weights)


@dataclass(kw_only=True, eq=False, repr=False)
class _Settings(TrainSettings):
    """Constructor parameters; scikit-learn's convention is to check them in fit."""

    model: str | None = field(default=None, kw_only=False)  # type: ignore[assignment]  # None: the default of the class
    epochs: int = 20
    l2: float = 1e-4
    warm_start: bool = False
    solver: str = "auto"
    inner: int | None = None


class _Corgi(BaseEstimator, _Settings):  # type: ignore[misc]
    """Base of both estimators; the arguments are those of `corgipile.train`."""

    _usual: str  # the default model
    feature_names_in_: npt.NDArray[Any]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing != "error"  # in data frames
        return tags

    def _kind(self, *, numbers: bool) -> str:
        """Return the kind of model to train; ``numbers``: regression."""
        kind = self.model or self._usual
        if loss_of(kind).numbers != numbers:
            raise BadArgument(
                f"{type(self).__name__} needs one of {', '.join(quoted(numbers=numbers))} as model, got {kind!r}"
            )
        return kind

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803  # scikit-learn's name
        """Train on arrays or a data frame, or on a table (path, `Table` or ``pyarrow.Table``).

        A table's labels are its column ``label``, or ``y``. With ``encode``, ``text``, ``interactions`` or
        ``missing`` a data frame is a table too: its columns match by name. ``sample_weight`` holds a weight per row.
        """
        if not self._by_name(X):
            return self._fit_arrays(X, y, sample_weight)
        table, labels = self._open(X, y)
        weights = self._weights(sample_weight, len(table))
        if labels is None:
            return self._fit_column(table, by_table=True, weights=weights)
        return self._fit_labels(partial(Labelled, table, self.label), labels, by_table=True, weights=weights)

    def _fit_arrays(self, x: Any, y: Any, sample_weight: Any, *, more: bool = False) -> Self:
        self._arrays_only()
        x, y = self._checked(x, y, reset=not (more and hasattr(self, "model_")))
        weights = self._weights(sample_weight, len(y))
        return self._fit_labels(partial(_as_table, x), y, more=more, weights=weights)

    def _fit_column(self, table: Table, **options: Any) -> Self:
        """Train on a table's label column."""
        raise NotImplementedError

    def _fit_labels(self, table: Callable[[Any], Any], y: npt.NDArray[Any], **options: Any) -> Self:
        """Train on the table that ``table`` returns for labels."""
        raise NotImplementedError

    def _train(
        self,
        table: Any,
        model: str,
        classes: Sequence[Any] | None = None,
        *,
        more: bool = False,
        by_table: bool = False,
        weights: npt.NDArray[Any] | None = None,
    ) -> Self:
        """Train on a table: ``more`` trains one more epoch on the current model, at the first epoch's learning rate.

        With ``by_table`` columns match by name; otherwise scikit-learn's rules apply.
        """
        args = {key: value for key, value in self.get_params(deep=False).items() if key not in ("model", "warm_start")}
        past = self.model_ if (more or yes_or_no(self.warm_start, "warm_start")) and hasattr(self, "model_") else None
        self._by_table = by_table
        if self.solver == "auto" and self.epochs != _Settings.epochs:
            args["solver"] = "sgd"
        if not by_table:
            args["features"] = "features"  # the column of _as_table, whatever a data frame's columns are
        elif self._columns is not None and self.features is None and not (self.text or self.interactions):
            args["features"] = self._columns
        if more:
            args |= {"epochs": 1, "tolerance": None, "solver": "sgd", "average": uses_average(self, model, past)} | (
                {"decay": 1.0} if choose_step(self, model, past).decays else {}
            )
        if weights is not None:
            table, args["weight"] = _weighted(open_table(table), weights), WEIGHT
        if classes is not None:
            args["class_weight"] = self._class_places(args["class_weight"])
        self.model_: Model = train(table, model=model, classes=classes, warm_start=past, **args)
        self.n_features_in_ = self.model_.width
        self._name_features()
        self.n_iter_ = len(self.model_.history)
        self.coef_ = self.model_.coef if isinstance(self, ClassifierMixin) else self.model_.coef[0]
        self.intercept_ = self.model_.intercept
        return self

    def _class_places(self, class_weight: Any) -> Any:
        """Return class weights keyed by the places of the classes."""
        if not isinstance(class_weight, Mapping):
            return class_weight
        known = {value: place for place, value in enumerate(self.classes_.tolist())}
        if unknown := [value for value in class_weight if value not in known]:
            raise BadArgument(f"class_weight names {unknown[0]!r}, which is none of the classes {listed(known)}")
        return {known[value]: weight for value, weight in class_weight.items()}

    def _weights(self, sample_weight: Any, rows: int) -> npt.NDArray[Any] | None:
        """Return checked row weights: one per row, or a number for all."""
        if sample_weight is None:
            return None
        if self.weight is not None:
            raise BadArgument(f"sample_weight was given, but column {self.weight!r} is the weight; give one of them")
        if isinstance(sample_weight, Number):
            sample_weight = np.full(rows, sample_weight)
        checked = check_array(sample_weight, dtype=np.float64, ensure_2d=False, input_name="sample_weight")
        if checked.shape != (rows,):
            raise ValueError(f"sample_weight.shape == {checked.shape}, expected {(rows,)}!")
        return np.asarray(checked)

    def _name_features(self) -> None:
        """Share feature names between estimator and model: a data frame's, or a table's scalar columns."""
        if hasattr(self, "feature_names_in_"):
            self.model_.params |= {"features": self.feature_names_in_.tolist(), "lists": False}
        elif self.model_.names:
            self.feature_names_in_ = np.array(self.model_.features, object)
            self.n_features_in_ = len(self.feature_names_in_)  # encoding may widen them

    def _by_name(self, x: Any) -> bool:
        """Return whether to train on x as a table, by column name; data frames to encode are tables too."""
        return not _is_rows(x) or (_is_frame(x) and self._encodes())

    def _encodes(self) -> bool:
        return bool(self.encode or self.text or self.interactions or self.missing != "error")

    def _open(self, x: Any, y: Any) -> tuple[Table, npt.NDArray[Any] | None]:
        """Open a table to fit, and check the labels passed with it."""
        table = open_table(x)
        names = [name for name in table.schema.names if name not in (self.label, self.weight)]
        self._columns = names if _is_frame(x) else None  # in scikit-learn every column is a feature
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        if y is None:
            return table, None
        labels = column_or_1d(y, warn=True)
        if len(labels) != len(table):
            raise BadArgument(f"y has {len(labels)} labels for {len(table)} rows of {table!r}; give one per row")
        return table, labels

    def _checked(self, x: Any, y: Any, *, reset: bool) -> tuple[Any, npt.NDArray[Any]]:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        kinds = [np.float64, np.float32]
        x, y = validate_data(self, x, y, accept_sparse="csr", dtype=kinds, reset=reset, multi_output=True)
        return x, column_or_1d(y, warn=True)

    def _labels(self, x: Any, y: Any) -> Any:
        """Return the labels to score against: y, or the table's label column."""
        if y is not None:
            return y
        if _is_rows(x):
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        table = open_table(x)
        check_label(table, self.label, repr(table))
        if not len(table):
            raise BadValue(f"{table!r} has no rows to score")
        return column(table, self.label)

    def _rows_only(self, x: Any) -> None:
        if (self.validation, self.patience) != (None, None) or self.solver not in ("sgd", "auto"):
            raise BadArgument("partial_fit trains on all rows by SGD; use fit for validation, patience and solver")
        if not _is_rows(x):
            raise BadArgument(f"partial_fit needs an array or a data frame, got {x!r}; use fit for a table")
        self._arrays_only()

    def _arrays_only(self) -> None:
        if self.features is not None or self.label != "label" or self.weight is not None:
            raise BadArgument("features, label and weight name columns of a table; with arrays leave their defaults")
        if self._encodes():
            raise BadArgument(
                "encode, text, interactions and missing need named columns: fit a data frame or a table, not an array"
            )

    def _rows(self, x: Any) -> Any:
        check_is_fitted(self)
        if not _is_rows(x) or (_is_frame(x) and self.model_.encoding is not None):
            return open_table(x)
        known = getattr(self, "feature_names_in_", None)
        if known is not None and self._by_table and hasattr(x, "columns") and set(x.columns) == set(known):
            x = x[known.tolist()]
        return validate_data(self, x, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)


def _has_probabilities(estimator: Any) -> bool:
    return loss_of(estimator.model or estimator._usual).probability  # noqa: SLF001


class CorgiClassifier(ClassifierMixin, _Corgi):  # type: ignore[misc]
    """Classifies by a linear model, trained by SGD from a table on disk or from arrays.

    Args:
        model: The name of a classification loss, as for `corgipile.train`; None: ``"logistic"``, with more than two
            classes softmax or, by the dual solver, ovr_logistic. Not all have ``predict_proba``.
        **settings: See `corgipile.train`.

    Example:
        >>> import numpy as np
        >>> x = np.array([[-2.0], [-1.0], [1.0], [2.0]] * 20)
        >>> CorgiClassifier(learning_rate=0.1).fit(x, ["no", "no", "yes", "yes"] * 20).predict(x[:4]).tolist()
        ['no', 'no', 'yes', 'yes']
    """

    _usual = "logistic"

    def _fit_column(self, table: Table, **options: Any) -> Self:
        self._train(table, self._kind(numbers=False), **options)
        self.classes_ = self.model_.classes
        return self

    def _fit_labels(self, table: Callable[[Any], Any], y: npt.NDArray[Any], **options: Any) -> Self:
        check_classification_targets(y)
        return self._fit_coded(table, y, np.unique(y), **options)

    def partial_fit(
        self,
        X: Any,  # noqa: N803  # scikit-learn's name
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Train one more epoch on arrays; the first call needs all classes."""
        self._rows_only(X)
        first = not hasattr(self, "model_")
        x, y = self._checked(X, y, reset=first)
        check_classification_targets(y)
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        known = np.unique(classes) if first else self.classes_
        if not first and classes is not None and not np.array_equal(np.unique(classes), known):
            raise ValueError(f"classes={classes!r} is not the same as on the first call to partial_fit, {known!r}")
        if not np.isin(y, known).all():
            raise ValueError(f"y has the labels {np.setdiff1d(y, known)!r}, which are not among the classes {known!r}")
        weights = self._weights(sample_weight, len(y))
        return self._fit_coded(partial(_as_table, x), y, known, more=True, weights=weights)

    def _fit_coded(
        self, table: Callable[[npt.NDArray[Any]], Any], y: npt.NDArray[Any], classes: npt.NDArray[Any], **options: Any
    ) -> Self:
        """Train on the table that ``table`` returns for the class numbers of ``y``."""
        if len(classes) < 2:
            raise ValueError(f"the data has one class only, {classes.tolist()}; at least two are needed")
        model = self._kind(numbers=False)
        if loss_of(model).probability and len(classes) > most_classes(model):
            model = "ovr_logistic" if self.solver == "dual" else "softmax"
        if self.warm_start and not np.array_equal(getattr(self, "classes_", classes), classes):
            known, checked = listed(self.classes_.tolist()), listed(classes.tolist())
            raise BadArgument(f"y must have the classes of warm_start, {known}, got {checked}")
        coded = np.searchsorted(classes, y).astype(np.int32)
        self.classes_ = classes
        return self._train(table(coded), model, list(range(len(classes))), **options)

    def predict(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803  # scikit-learn's name
        """Return the class of each row."""
        rows = self._rows(X)
        checked = np.searchsorted(self.model_.classes, self.model_.predict(rows))
        return np.asarray(self.classes_[checked])

    def decision_function(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803  # scikit-learn's name
        """Return the score of each row, or, with more than two classes, of each row and class."""
        rows = self._rows(X)
        scores = self.model_.decision(rows)
        return scores[:, 1] - scores[:, 0] if scores.ndim == 2 and scores.shape[1] == 2 else scores

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: N803  # scikit-learn's name
        """Return the accuracy; without ``y`` on a table's label column."""
        return float(super().score(X, self._labels(X, y), sample_weight))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803  # scikit-learn's name
        """Return the probability of each row and class."""
        rows = self._rows(X)
        return self.model_.predict_proba(rows)


class CorgiRegressor(RegressorMixin, _Corgi):  # type: ignore[misc]
    """Predicts numbers by a linear model, trained to its optimum or by SGD from a table on disk or from arrays.

    Args:
        model: The name of a regression loss, as for `corgipile.train`; None: ``"linear"``.
        **settings: See `corgipile.train`.

    Example:
        >>> import numpy as np
        >>> x = np.array([[-1.0], [0.0], [1.0]] * 40)
        >>> (CorgiRegressor(learning_rate=0.1).fit(x, 2 * x[:, 0]).predict(x[:3]).round(1) + 0.0).tolist()
        [-2.0, 0.0, 2.0]
    """

    _usual = "linear"

    def _fit_column(self, table: Table, **options: Any) -> Self:
        return self._train(table, self._kind(numbers=True), **options)

    def _fit_labels(self, table: Callable[[Any], Any], y: npt.NDArray[Any], **options: Any) -> Self:
        return self._fit_column(table(y.astype(np.float64)), **options)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803  # scikit-learn's name
        """Train one more epoch on arrays."""
        self._rows_only(X)
        return self._fit_arrays(X, y, sample_weight, more=True)

    def predict(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803  # scikit-learn's name
        """Return the value of each row."""
        rows = self._rows(X)
        return self.model_.predict(rows)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: N803  # scikit-learn's name
        """Return R²; without ``y`` on a table's label column."""
        return float(super().score(X, self._labels(X, y), sample_weight))
