"""A trained linear model: coefficients, history, prediction, files."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import BadArgument, BadModelFile
from corgipile.linear import passes
from corgipile.linear.arrays import rows_of_array
from corgipile.linear.inputs import Inputs, find_inputs
from corgipile.linear.machine import LOSSES, Machine
from corgipile.linear.saving import read_tensors, write_tensors
from corgipile.tables import open as open_table
from corgipile.tables.base import Table

__all__ = ["Model", "load"]

FORMAT = 1
What = Literal["predict", "predict_proba", "decision"]


@dataclass
class Model:
    """A linear model, made by `corgipile.train` or `corgipile.load`.

    Attributes:
        kind: ``"logistic"``, ``"svm"``, ``"linear"`` or ``"softmax"``.
        coef: [outputs, features]; one output but for softmax.
        intercept: [outputs].
        classes: Class values, ascending; empty for ``"linear"``.
        params: What it was trained with.
        history: One dictionary an epoch: epoch, loss, accuracy or r2, rows, seconds, and test figures if asked for.

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

    @property
    def width(self) -> int:
        """Return the number of features."""
        return int(self.coef.shape[1])

    def machine(self, inputs: Inputs) -> Machine:
        """Return a machine that holds this model, for features of the given form."""
        if inputs.width != self.width:
            raise BadArgument(f"rows have {inputs.width} features; the model was trained with {self.width}")
        machine = Machine(self.kind, inputs, self.classes)
        machine.assign(self.coef, self.intercept)
        return machine

    def decision(self, rows: Any) -> npt.NDArray[Any]:
        """Return scores: one a row, positive for the second class; for softmax one a row and class.

        Args:
            rows: An array [rows, features], a SciPy CSR matrix, a path, a `Table` or a ``pyarrow.Table``.
        """
        return np.concatenate(list(self.stream(rows, "decision")))

    def predict(self, rows: Any) -> npt.NDArray[Any]:
        """Return classes, or values for ``"linear"``."""
        return np.concatenate(list(self.stream(rows, "predict")))

    def predict_proba(self, rows: Any) -> npt.NDArray[Any]:
        """Return probabilities, [rows, classes].

        Raises:
            BadArgument: The model is an SVM or a regression.
        """
        return np.concatenate(list(self.stream(rows, "predict_proba")))

    def stream(self, rows: Any, what: What = "predict") -> Iterator[npt.NDArray[Any]]:
        """Yield predictions in the order of the rows, a few thousand at a time, so that no table is too large."""
        if what == "predict_proba" and self.kind not in ("logistic", "softmax"):
            raise BadArgument(f'a model of kind {self.kind!r} has no probabilities; train "logistic" or "softmax"')
        yield self._finish(np.empty((0, len(self.coef)), self.coef.dtype), what)
        for part in self._scores(rows):
            yield self._finish(part, what)

    def _scores(self, rows: Any) -> Iterator[npt.NDArray[Any]]:
        array = rows_of_array(rows, self.coef.dtype)
        if array is not None:
            machine = self.machine(array.inputs)
            for visit in array.visits():
                yield machine.decide(array.rows, visit, lambda place, visit=visit: f"row {visit[place]}")  # type: ignore[misc]
            return
        table = open_table(rows)
        inputs = self._inputs(table)
        machine = self.machine(inputs)
        with passes.reader(inputs, table) as feeder:
            yield from passes.scores(machine, feeder)

    def _inputs(self, table: Table) -> Inputs:
        columns = self.params.get("features")
        return find_inputs(table, columns, self.params.get("label"), self.width)

    def _finish(self, scores: npt.NDArray[Any], what: What) -> npt.NDArray[Any]:
        flat = scores if self.kind == "softmax" else scores[:, 0]
        if what == "decision":
            return flat
        if what == "predict_proba":
            return _probabilities(flat.astype(np.float64))
        if self.kind == "linear":
            return flat
        return np.asarray(self.classes[flat.argmax(axis=1) if flat.ndim == 2 else (flat > 0).astype(np.intp)])

    def measure(self, table: Any, label: str | None = None) -> dict[str, float]:
        """Return loss and accuracy, or R², on a table.

        Args:
            table: A path, a `Table` or a ``pyarrow.Table``.
            label: The label column; by default that of training.
        """
        opened = open_table(table)
        inputs = self._inputs(opened)
        column = label or self.params.get("label", "label")
        with passes.reader(inputs, opened, column) as feeder:
            return passes.measure(self.machine(inputs), feeder, column).record(self.kind)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save as a safetensors file; an earlier model that is there is replaced when the new one is whole.

        Args:
            path: The file.
            overwrite: Replace a file that is no model of ours too.

        Raises:
            WouldOverwrite: Such a file is there.
        """
        meta = {
            "format": FORMAT,
            "kind": self.kind,
            "classes": self.classes.tolist(),
            "class_type": self.classes.dtype.name,
            "params": self.params,
            "history": self.history,
        }
        write_tensors(path, {"coef": self.coef, "intercept": self.intercept}, meta, overwrite=overwrite)


def _probabilities(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Turn scores of one or several outputs into probabilities, without overflow."""
    if scores.ndim == 1:
        scores = np.stack([np.zeros_like(scores), scores], axis=1)
    shares = np.array(scores, np.float64, order="C")
    _kernel.sgd_probabilities(shares, shares.shape[1])
    return shares


def load(path: str | os.PathLike[str]) -> Model:
    """Load a model that `Model.save` wrote.

    Raises:
        MissingFile: No file lies there.
        BadModelFile: It is no such file, or it is damaged.

    Example:
        >>> import numpy as np, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Model("linear", np.ones((1, 2)), np.zeros(1), np.zeros(0)).save(f"{folder}/m.safetensors")
        ...     load(f"{folder}/m.safetensors").predict(np.array([[1.0, 2.0]])).tolist()
        [3.0]
    """
    tensors, meta = read_tensors(path)
    try:
        if meta["format"] != FORMAT:
            raise BadModelFile(f"format {meta['format']} is not known; this version reads format {FORMAT}")
        classes = np.array(meta["classes"], np.dtype(meta["class_type"]))
        model = Model(meta["kind"], tensors["coef"], tensors["intercept"], classes, meta["params"], meta["history"])
        _check(model)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadModelFile(f"{os.fspath(path)} is not a model saved by corgipile: {error}") from None
    return model


def _check(model: Model) -> None:
    """Raise unless the parts of a model fit together."""
    outputs = len(model.classes) if model.kind == "softmax" else 1
    if model.kind not in LOSSES or model.coef.ndim != 2 or model.width < 1:
        raise ValueError(f"kind {model.kind!r} with coefficients of shape {model.coef.shape}")
    if (
        model.coef.shape[0] != outputs
        or model.intercept.shape != (outputs,)
        or model.intercept.dtype != model.coef.dtype
    ):
        raise ValueError(f"{outputs} outputs, but coefficients {model.coef.shape}, intercepts {model.intercept.shape}")
    if (
        model.classes.ndim != 1
        or model.classes.dtype.kind not in "biuf"
        or (np.unique(model.classes) != model.classes).any()
    ):
        raise ValueError("its classes are not ascending numbers")
    if model.kind in ("logistic", "svm") and len(model.classes) != 2:
        raise ValueError(f"{len(model.classes)} classes for a model of two")
    if not (np.isfinite(model.coef).all() and np.isfinite(model.intercept).all()):
        raise ValueError("a coefficient is NaN or infinite")
    if not isinstance(model.params, dict) or not isinstance(model.history, list):
        raise TypeError("parameters or history are missing")
