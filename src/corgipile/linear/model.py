"""Trained linear models: coefficients, history, prediction, files."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, BadModelFile
from corgipile.features import Encoding
from corgipile.linear import passes
from corgipile.linear.arrays import rows_of_array
from corgipile.linear.bad_values import FILLED
from corgipile.linear.encoded import encode_pass, encode_table
from corgipile.linear.evaluation import Evaluation, figures_on, judge
from corgipile.linear.features import Features, find_inputs, log_unknown
from corgipile.linear.imputation import filled
from corgipile.linear.link import exponential, probabilities
from corgipile.linear.multi_model import class_of_models
from corgipile.linear.nulls import NullsAsNaN
from corgipile.linear.saving import classes_of, from_bytes, learnt_of, read_tensors, tensors_of, to_bytes, write_tensors
from corgipile.linear.scaling import Learnt
from corgipile.linear.sgd import SGD, Figures, outputs_of
from corgipile.linear.standard_errors import Summary, summary
from corgipile.losses import Loss, loss_of, most_classes, quoted
from corgipile.sizes import OnBad, choice
from corgipile.tables import open as open_table
from corgipile.tables.table import Table

__all__ = ["Model", "load", "unpack"]

FORMAT = 1
What = Literal["predict", "predict_proba", "decision"]
OUTPUT_KINDS = ("predict", "predict_proba", "decision")
NOTE_TYPES = {"left_out": dict, "notes": list, "others": list}


@dataclass
class Model:
    """A linear model, from `corgipile.train` or `corgipile.load`.

    Attributes:
        kind: The name of the loss, with an optional parameter after a colon.
        coef: [outputs, features]; one output, or one per class for softmax and for a multiclass svm.
        intercept: [outputs].
        classes: Class values, ascending; empty in regression.
        params: The settings and facts of training.
        history: One dictionary per epoch: epoch, loss, accuracy or r2, rows, seconds, and any test figures.
        learnt: The weights during training, if features were standardised or weights averaged; ``coef`` is for
            unscaled features and predicts.

    Example:
        >>> import numpy as np
        >>> model = Model("svm", np.array([[1.0, -1.0]]), np.zeros(1), np.array([0, 1]))
        >>> model.predict(np.array([[2.0, 1.0], [0.0, 3.0]])).tolist()
        [1, 0]
    """

    kind: str
    coef: npt.NDArray[Any]
    intercept: npt.NDArray[Any]
    classes: npt.NDArray[Any]
    params: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    learnt: Learnt | None = field(default=None, repr=False)

    @property
    def loss(self) -> Loss:
        """Return the training loss."""
        return loss_of(self.kind, len(self.classes))

    @property
    def width(self) -> int:
        """Return the number of features."""
        return int(self.coef.shape[1])

    @property
    def features(self) -> tuple[str, ...]:
        """Return the feature columns of training; scalar columns are in the order of the coefficients."""
        return tuple(self.params.get("features") or ())

    @property
    def outputs(self) -> int:
        """Return the number of scores per row."""
        return len(self.coef)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that prediction needs."""
        return self.features

    @property
    def names(self) -> tuple[str, ...]:
        """Return the name of each feature; empty if they have none, as in a list column."""
        if (encoding := self.encoding) is not None:
            return tuple(names) if len(names := encoding.names) == self.width else ()
        return () if self.params.get("lists", True) or len(self.features) != self.width else self.features

    @property
    def encoding(self) -> Encoding | None:
        """Return how columns became numbers; None if all were numbers."""
        state = self.params.get("encoding")
        return None if state is None else Encoding.of(state)

    @property
    def label(self) -> str | None:
        """Return the label column of training."""
        return self.params.get("label")

    def label_or(self, given: str | None = None) -> str:
        """Return the given label column, or that of training, or ``"label"``."""
        return next(name for name in (given, self.label, "label") if name is not None)

    @property
    def left_out(self) -> dict[str, str]:
        """Return the columns that were left out because no features were named, and why."""
        return dict(self.params.get("left_out", {}))

    @property
    def notes(self) -> list[str]:
        """Return the notes of training."""
        return list(self.params.get("notes", ()))

    def sgd(self, inputs: Features, on_bad: OnBad = "raise") -> SGD:
        """Return an SGD kernel with this model's weights, for features of the given form."""
        if not inputs.sparse:
            inputs = replace(inputs, dtype=np.promote_types(inputs.dtype, self.coef.dtype))
        if inputs.width != self.width:
            raise BadArgument(f"rows must have {self.width} features as in training, got {inputs.width}")
        sgd = SGD(self.kind, inputs, self.classes, on_bad=on_bad)
        sgd.assign(self.coef, self.intercept)
        sgd.hint = FILLED
        return sgd

    def decision(self, rows: Any) -> npt.NDArray[Any]:
        """Return scores: one per row, positive for the second class; for softmax one per row and class.

        Args:
            rows: An array [rows, features], a SciPy CSR matrix, a path, a `Table`, a ``pyarrow.Table`` or a data frame.
                Scalar features match by name, in any position; the log names new columns.
        """
        return np.concatenate(list(self.stream(rows, "decision")))

    def predict(self, rows: Any) -> npt.NDArray[Any]:
        """Return predicted classes, or predicted numbers."""
        return np.concatenate(list(self.stream(rows, "predict")))

    def predict_proba(self, rows: Any) -> npt.NDArray[Any]:
        """Return probabilities, [rows, classes].

        Raises:
            BadArgument: The loss has no probabilities, such as an SVM's or a regression's.
        """
        return np.concatenate(list(self.stream(rows, "predict_proba")))

    def stream(self, rows: Any, what: What = "predict") -> Iterator[npt.NDArray[Any]]:
        """Yield predictions in row order, a few thousand at a time: a table of any size works."""
        yield self.finish(np.empty((0, self.outputs), self.coef.dtype), what)
        for part in self.scores(rows):
            yield self.finish(part, what)

    def scores(self, rows: Any) -> Iterator[npt.NDArray[Any]]:
        """Yield scores, [rows, outputs], in row order."""
        array = rows_of_array(rows, self.coef.dtype)
        encoding = self.encoding
        if array is not None and encoding is not None:
            fills = encoding.fills(self.width)
            if fills is None:
                raise BadArgument("this model encodes named columns: give a table or a data frame")
            array = array.filled(fills)
        if array is not None:
            sgd = self.sgd(array.inputs)
            for visit in array.visits():
                yield sgd.decide(array.rows, visit, lambda place, visit=visit: f"row {visit[place]}")  # type: ignore[misc]
            return
        table = encode_table(open_table(rows), self.encoding, None)
        sgd = self.sgd(self.inputs(table))
        with passes.reader(sgd.inputs, NullsAsNaN(table, sgd.inputs, None)) as feeder:
            yield from passes.scores(sgd, feeder)

    def inputs(self, table: Table, label: str | None = None) -> Features:
        """Return the features of a table in this model's form."""
        log_unknown(table.schema, self.params, label := self.label if label is None else label)
        columns = self.features if (encoding := self.encoding) is None else encoding.read_as
        return find_inputs(table, columns or None, label, self.width, whose=repr(table))

    def finish(self, scores: npt.NDArray[Any], what: What) -> npt.NDArray[Any]:
        """Return scores, [rows, outputs], as themselves, probabilities or predictions.

        Raises:
            BadArgument: The loss has no probabilities.
        """
        if what not in OUTPUT_KINDS:
            raise BadArgument(f"what must be one of {', '.join(OUTPUT_KINDS)}, got {what!r}")
        if what == "predict_proba" and not self.loss.probability:
            losses = " or ".join(quoted(probability=True))
            raise BadArgument(f"a model of kind {self.kind!r} has no probabilities; train {losses}")
        flat = scores if self.loss.per_class else scores[:, 0]
        if what == "decision":
            return flat
        if what == "predict_proba":
            return probabilities(self.loss, flat.astype(np.float64))
        if self.loss.exponential:
            return exponential(flat)
        if self.loss.numbers:
            return flat
        return np.asarray(self.classes[flat.argmax(axis=1) if flat.ndim == 2 else (flat > 0).astype(np.intp)])

    def filled(self, missing: float) -> Self:
        """Return the model with a fill value for null and NaN where it has none yet.

        A null category counts as unseen, null text as text without words.
        """
        return filled(self, missing)

    def measure(
        self, table: Any, label: str | None = None, weight: str | None = None, *, on_bad: OnBad = "raise"
    ) -> dict[str, float]:
        """Return loss and accuracy, or R², on a table.

        Args:
            table: A path, a `Table`, a ``pyarrow.Table`` or a data frame.
            label: The label column; by default that of training.
            weight: The weight column; None: every row has weight 1, even if training used weights.
            on_bad: ``"skip"`` leaves out rows that cannot be evaluated; ``skipped`` counts them, if any.

        Raises:
            BadValue: The table has no rows, or a label or feature is not finite.
        """
        figures, skipped = figures_on(self, table, label, weight, on_bad=on_bad)
        return figures.record(self.kind) | ({"skipped": skipped} if skipped else {})

    evaluate = measure

    def judge(self, table: Any, label: str | None = None, weight: str | None = None, **how: Any) -> Evaluation:
        """Return metrics by class, rank and probability; see `corgipile.linear.evaluation.judge`."""
        return judge(self, table, label, weight, **how)

    def measure_table(
        self, opened: Table, column: str, weight: str | None, watch: passes.Watch | None, on_bad: OnBad = "raise"
    ) -> tuple[Figures, int]:
        """Return the figures of a table, and the number of rows left out, also when scores overflow."""
        skip = choice(on_bad, "on_bad", OnBad) == "skip"
        table = encode_pass(opened, self.encoding, column, skip=skip)
        sgd = self.sgd(self.inputs(table, column), on_bad)
        rows = NullsAsNaN(table, sgd.inputs, column, weight, skip=skip)
        with passes.reader(sgd.inputs, rows, column, weight) as feeder:
            return passes.measure(sgd, feeder, column, weight, watch), sgd.skipped

    def summary(self, table: Any, label: str | None = None, weight: str | None = None) -> Summary:
        """Return the coefficients with standard errors and p-values; see `corgipile.linear.standard_errors.summary`."""
        return summary(self, table, label, weight)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save as a safetensors file; an existing model is replaced atomically.

        Args:
            path: The file.
            overwrite: Also replace a file that corgipile did not write.

        Raises:
            WouldOverwrite: Such a file exists.
        """
        write_tensors(path, *self._content(), overwrite=overwrite)

    def pack(self) -> bytes:
        """Return the content of a model file, which `unpack` reads.

        Example:
            >>> unpack(Model("linear", np.ones((1, 2)), np.zeros(1), np.zeros(0)).pack()).width
            2
        """
        return to_bytes(*self._content())

    def _content(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Return the tensors and metadata of the model file."""
        meta = {
            "format": FORMAT,
            "kind": self.kind,
            "classes": self.classes.tolist(),
            "class_type": "str" if self.classes.dtype.kind == "U" else self.classes.dtype.name,
            "params": self.params,
            "history": self.history,
        }
        tensors = {"coef": self.coef, "intercept": self.intercept}
        return tensors | tensors_of(self.learnt, self.width), meta


def load(path: str | os.PathLike[str]) -> Model:
    """Load a model that `Model.save` wrote.

    Raises:
        MissingFile: The file does not exist.
        BadModelFile: It is not such a file, or damaged.
        ReadFailed: It cannot be read.

    Example:
        >>> import numpy as np, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Model("linear", np.ones((1, 2)), np.zeros(1), np.zeros(0)).save(f"{folder}/m.safetensors")
        ...     load(f"{folder}/m.safetensors").predict(np.array([[1.0, 2.0]])).tolist()
        [3.0]
    """
    return _model_of(*read_tensors(path), os.fspath(path))


def unpack(content: bytes, name: str = "the content") -> Model:
    """Return the model in the content of a model file.

    Args:
        content: The bytes.
        name: The content's name in errors.

    Raises:
        BadModelFile: The content is damaged or not from corgipile.

    Example:
        >>> unpack(b"rows")
        Traceback (most recent call last):
        ...
        corgipile.errors.BadModelFile: the content is not a model saved by corgipile: ...
    """
    return _model_of(*from_bytes(content, name), name)


def _model_of(tensors: dict[str, npt.NDArray[Any]], meta: dict[str, Any], name: str) -> Model:
    """Return the model of a file's tensors and metadata."""
    try:
        if meta["format"] != FORMAT:
            raise BadModelFile(f"format must be {FORMAT}, got {meta['format']}")
        classes = classes_of(meta["classes"], meta["class_type"])
        cls = class_of_models(meta["params"]) or Model
        model = cls(meta["kind"], tensors["coef"], tensors["intercept"], classes, meta["params"], meta["history"])
        _check(model)
        _check_notes(model)
        model.learnt = learnt_of(tensors, model.coef)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise BadModelFile(f"{name} is not a model saved by corgipile: {error}") from None
    return model


def _check(model: Model) -> None:
    """Raise unless the parts of a model are consistent."""
    outputs = outputs_of(model.kind, model.classes) * len(
        model.params.get("groups") or model.params.get("labels") or [None]
    )
    if model.coef.ndim != 2 or model.width < 1:
        raise ValueError(f"kind {model.kind!r} with coefficients of shape {model.coef.shape}")
    if (
        model.coef.shape[0] != outputs
        or model.intercept.shape != (outputs,)
        or model.intercept.dtype != model.coef.dtype
    ):
        raise ValueError(f"{outputs} outputs, but coefficients {model.coef.shape}, intercepts {model.intercept.shape}")
    if (
        model.classes.ndim != 1
        or model.classes.dtype.kind not in ("biufU" if model.params.get("encoding") else "biuf")
        or (np.unique(model.classes) != model.classes).any()
    ):
        raise ValueError("its classes must ascend")
    most = most_classes(model.kind)
    if not min(most, 2) <= len(model.classes) <= most:
        raise ValueError(f"{len(model.classes)} classes for a {model.kind} model")
    if not (np.isfinite(model.coef).all() and np.isfinite(model.intercept).all()):
        raise ValueError("a coefficient is NaN or infinite")
    if not isinstance(model.params, dict) or not isinstance(model.history, list):
        raise TypeError("parameters or history are missing")


def _check_notes(model: Model) -> None:
    """Raise unless parameters and history are as training writes them."""
    features, label, lists = (model.params.get(name) for name in ("features", "label", "lists"))
    if features is not None and not (isinstance(features, list) and all(isinstance(name, str) for name in features)):
        raise ValueError(f"its features must be a list of names, got {features!r}")
    encoding = model.encoding
    if encoding is not None and not encoding.fits(features, model.width):
        raise ValueError(f"its features are {features!r} ({model.width}), and those encoded {list(encoding.columns)}")
    named = len(features or ())  # among several some may be lists
    if encoding is None and lists is False and named != model.width and not 1 < named < model.width:
        raise ValueError(f"{named} names for {model.width} features")
    if not (isinstance(label, str | None) and isinstance(lists, bool | None)):
        raise TypeError(f"its label is {label!r} and lists is {lists!r}")
    best = model.params.get("best_epoch")
    if best is not None and (type(best) is not int or not 0 <= best < len(model.history)):
        raise ValueError(f"its best epoch is {best!r} of {len(model.history)}")
    if best is not None and not isinstance(model.history[best].get("test_loss"), int | float):
        raise TypeError("its best epoch has no test_loss")
    if not all(isinstance(model.params.get(name, kind()), kind) for name, kind in NOTE_TYPES.items()):
        raise TypeError("its notes are damaged")
    for record in model.history:
        loss = record["loss"]
        if isinstance(loss, bool) or not isinstance(loss, int | float):
            raise TypeError(f"its history has the loss {loss!r}")
