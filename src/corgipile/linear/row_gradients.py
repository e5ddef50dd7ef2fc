"""Gradients of the loss by the weights, row by row, each from one step of the kernel."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument
from corgipile.linear import passes
from corgipile.linear.classes import check_label
from corgipile.linear.encoded import as_numbers, encode_table
from corgipile.linear.model import Model
from corgipile.linear.nulls import NullsAsNaN
from corgipile.linear.sgd import SGD
from corgipile.tables import open as open_table

__all__ = ["gradients"]


def gradients(model: Model, rows: Any, label: str | None = None) -> npt.NDArray[np.float64]:
    """Return the gradient of each row's loss by the predicting weights, in the scale of training.

    Args:
        model: The model.
        rows: Any source for `corgipile.open`, with the features of training.
        label: The label column; None: that of training.

    Returns:
        float64[rows, outputs * features + outputs].

    Raises:
        BadValue: A label or feature is not finite.

    Example:
        >>> import corgipile as cp
        >>> rows = {"x": np.array([1.0, 3.0]), "label": np.array([2.0, 3.0])}
        >>> model = Model("linear", np.array([[1.0]]), np.zeros(1), np.zeros(0), {"features": ["x"], "label": "label"})
        >>> gradients(model, rows).tolist()
        [[-1.0, -1.0], [0.0, 0.0]]
    """
    if model.columns != model.features:
        raise BadArgument("gradients need one model; of(...) returns one group's model")
    column = model.label_or(label)
    table = encode_table(as_numbers(open_table(rows), column), model.encoding, column)
    check_label(table, column, repr(table))
    inputs = model.inputs(table, column)
    inputs = inputs if inputs.sparse else replace(inputs, dtype=np.dtype(np.float64))
    scaling = None if model.learnt is None else model.learnt.scaling
    coef, bias = model.coef, model.intercept
    if scaling is not None:
        coef, bias = scaling.unfold(coef, bias)
    sgd = SGD(model.kind, inputs, model.classes, scaling=scaling)
    gradients_ = []
    with passes.reader(inputs, NullsAsNaN(table, inputs, column), column) as feeder:
        for step in passes.steps(feeder, inputs, column):
            for place in range(len(step.visit)):
                sgd.assign(coef, bias)
                sgd.begin(1.0)
                sgd.learn(*step.part(slice(place, place + 1)))
                sgd.flush()
                moved, shifted = sgd.weights()
                gradients_.append(np.concatenate([(coef - moved).ravel(), bias - shifted]))
    return np.array(gradients_, np.float64).reshape(len(table), coef.size + bias.size)
