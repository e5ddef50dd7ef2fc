"""Trained linear models: coefficients, history, prediction, files."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import BadArgument, BadModelFile
from corgipile.features import Encoding
from corgipile.linear import passes
from corgipile.linear.arrays import rows_of_array
from corgipile.linear.encoded import encode_pass, encode_table
from corgipile.linear.evaluation import Evaluation, figures_on, judge
from corgipile.linear.features import Features, find_inputs, log_unknown
from corgipile.linear.imputation import filled
from corgipile.linear.nulls import NullsAsNaN
from corgipile.linear.row_errors import FILLED
from corgipile.linear.saving import (
    check_model,
    classes_of,
    from_bytes,
    learnt_of,
    read_tensors,
    tensors_of,
    to_bytes,
    write_tensors,
)
from corgipile.linear.scaling import Learnt
from corgipile.linear.sgd import SGD, Figures
from corgipile.linear.standard_errors import Summary, summary
from corgipile.losses import Loss, loss_of, quoted
from corgipile.sizes import OnBad, choice
from corgipile.tables import open as open_table
from corgipile.tables.table import Table

__all__ = ["Model", "load", "unpack"]

FORMAT = 1
What = Literal["predict", "predict_proba", "decision"]
OUTPUT_KINDS = ("predict", "predict_proba", "decision")


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
    kinds: ClassVar[dict[str, "type[Model]"]] = {}  # classes of several models, by a parameter that only they have

    def __init_subclass__(cls, named: str | None = None) -> None:
        """Register a class of several models by a parameter that only it has."""
        if named is not None:
            Model.kinds[named] = cls

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
    def models(self) -> int:
        """Return the number of models that the coefficients hold."""
        return 1

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
        sgd = self._new_sgd(inputs, on_bad)
        sgd.assign(self.coef, self.intercept)
        sgd.hint = FILLED
        return sgd

    def _new_sgd(self, inputs: Features, on_bad: OnBad) -> SGD:
        return SGD(self.kind, inputs, self.classes, on_bad=on_bad)

    def _route(self, source: Table) -> passes.Route | None:
        """Return a function that finds the models of rows; None for one model."""

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
        source = open_table(rows)
        route, table = self._route(source), encode_table(source, self.encoding, None)
        sgd = self.sgd(self.inputs(table))
        with passes.reader(sgd.inputs, NullsAsNaN(table, sgd.inputs, None)) as feeder:
            yield from passes.scores(sgd, feeder, route)

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
            scores = flat.astype(np.float64)
            shares = np.ascontiguousarray(scores if scores.ndim == 2 else np.stack([0 * scores, scores], axis=1))
            _kernel.sgd_probabilities(self.loss.code, shares, shares.shape[1])
            return shares
        if self.loss.exponential:
            predicted = np.array(flat, np.float64, order="C")
            _kernel.sgd_exp(predicted)
            return predicted
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
        route, skip = self._route(opened), choice(on_bad, "on_bad", OnBad) == "skip"
        table = encode_pass(opened, self.encoding, column, skip=skip)
        sgd = self.sgd(self.inputs(table, column), on_bad)
        rows = NullsAsNaN(table, sgd.inputs, column, weight, skip=skip)
        with passes.reader(sgd.inputs, rows, column, weight) as feeder:
            return passes.measure(sgd, feeder, column, weight, watch, route), sgd.skipped

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

    def check(self) -> None:
        """Raise ValueError or TypeError unless the parameters of several models are as training writes them."""

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
        cls = next((cls for named, cls in Model.kinds.items() if named in meta["params"]), Model)
        model = cls(meta["kind"], tensors["coef"], tensors["intercept"], classes, meta["params"], meta["history"])
        model.check()
        check_model(model)
        model.learnt = learnt_of(tensors, model.coef)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise BadModelFile(f"{name} is not a model saved by corgipile: {error}") from None
    return model
