"""Standard errors and p-values of a model's coefficients, from one more pass over a table."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, BadValue
from corgipile.features.encoders import Categories
from corgipile.linear import passes
from corgipile.linear.classes import Labels, check_label, check_weight, codes_of, weights_of
from corgipile.linear.encoded import as_numbers, encode_pass
from corgipile.linear.features import Features
from corgipile.linear.nulls import NullsAsNaN
from corgipile.linear.scaling import Scaling
from corgipile.linear.sgd import SGD, Step
from corgipile.linear.sparse import Sparse, gather
from corgipile.suggestions import listed
from corgipile.tables import open as open_table
from corgipile.tables.io.remote import is_remote
from corgipile.tables.table import Table

if TYPE_CHECKING:
    from corgipile.linear.model import Model

__all__ = ["Summary", "summary"]

FloatArray = npt.NDArray[np.float64]
MAX_FEATURES = 4096  # the matrix of their products is in memory
CAST_NUMBERS = 1 << 20  # numbers cast to float64 at a time
SINGULAR = 1e-12  # smallest eigenvalue over the largest, with features scaled to unit size
NORMAL_95 = 1.959963984540054
HINT = "leave a column out (features=), or train with l2= above 0"
INTERCEPT = "(intercept)"
SUM_TOLERANCE = 1e-10  # relative difference of equal sums
SUPPORTED = ("logistic", "linear", "poisson")


@dataclass(frozen=True)
class Summary:
    """Coefficients with standard errors.

    Attributes:
        names: The features, with the intercept last.
        coef: float64[names], as in the model.
        standard_error: float64[names], by the sandwich estimator: valid even if the loss is not the true likelihood.
        z: Coefficients in standard errors.
        p: Two-sided p-values of a normal distribution: how often chance alone makes a coefficient as large.
        low: Lower ends of 95 % intervals.
        high: Upper ends.
        rows: The number of rows used.
        gaps: The distance of each coefficient from a Newton step on these rows, in standard errors.
        gap: The largest of these: above a few tenths training had not converged, and z and p mean little.
        references: The reference level of each category column, its last. Its coefficient is part of the other levels'
            and of the intercept's: with all levels there are no standard errors.

    Example:
        >>> import corgipile as cp
        >>> x = np.linspace(-1, 1, 1000)
        >>> rows = {"x": x, "label": 3 * x + np.random.default_rng(0).normal(size=1000)}
        >>> found = cp.train(rows, model="linear", epochs=20).summary(rows)
        >>> bool(0.05 < found.standard_error[0] < 0.06), bool(found.p[0] < 1e-9), found.gap < 0.5
        (True, True, True)
    """

    names: tuple[str, ...]
    coef: FloatArray
    standard_error: FloatArray
    rows: int
    gaps: FloatArray
    references: tuple[str, ...] = ()

    @property
    def gap(self) -> float:
        """Return the largest gap."""
        return float(np.max(self.gaps, initial=0.0))

    @property
    def z(self) -> FloatArray:
        """Return coefficients in standard errors."""
        return np.divide(self.coef, self.standard_error)

    @property
    def p(self) -> FloatArray:
        """Return the p-values."""
        return np.array([math.erfc(abs(z) / math.sqrt(2)) for z in self.z.tolist()])

    @property
    def low(self) -> FloatArray:
        """Return the lower ends of 95 % intervals."""
        return self.coef - NORMAL_95 * self.standard_error

    @property
    def high(self) -> FloatArray:
        """Return the upper ends."""
        return self.coef + NORMAL_95 * self.standard_error

    def __str__(self) -> str:
        """Return the summary as a text table."""
        width = max(len(name) for name in (*self.names, "feature"))
        lines = [f"{'feature':{width}}  {'coef':>11} {'std error':>11} {'z':>9} {'p':>9} {'2.5 %':>11} {'97.5 %':>11}"]
        columns = (self.coef, self.standard_error, self.z, self.p, self.low, self.high)
        for name, coef, error, z, p, low, high in zip(self.names, *(value.tolist() for value in columns), strict=True):
            lines.append(f"{name:{width}}  {coef:11.5g} {error:11.5g} {z:9.3f} {p:9.3g} {low:11.5g} {high:11.5g}")
        return "\n".join([*lines, self.notes])

    @property
    def notes(self) -> str:
        """Return the remarks below the table."""
        warning = "; training has not converged: use more epochs" if self.gap > 0.5 else ""
        levels = f"; reference levels: {listed(self.references)}" if self.references else ""
        return f"{self.rows:,} rows; at most {self.gap:.2g} standard errors from the optimum{warning}{levels}"


def summary(model: "Model", table: Any, label: str | None = None, weight: str | None = None) -> Summary:
    """Return a model's coefficients with standard errors and p-values.

    They are those of the sandwich H⁻¹ G H⁻¹: H is the sum over rows of the second derivatives of the loss by the
    coefficients, with that of the L2 penalty, G the sum of the products of the rows' gradients (Huber 1967; White
    1980, HC0). Rows should be those of training. For a penalised model the bias is not included.

    Args:
        model: A logistic, linear or poisson model.
        table: A path, a `Table`, a ``pyarrow.Table`` or a data frame.
        label: The label column; None: that of training.
        weight: The weight column; None: that of training.

    Raises:
        BadArgument: The model has no standard errors.
        BadValue: The matrix H is singular: features are constant or linearly dependent, or the classes are perfectly
            separated; or a value is not finite.
    """
    _check(model)
    column, weight = model.label_or(label), model.params.get("weight") if weight is None else weight
    width = model.width + bool(model.params.get("intercept", True))
    sums = np.zeros((2, width, width)), np.zeros(width), np.zeros(2)
    for x, y, w in _rows(model, table, column, weight):
        _add(model, sums, x[:, :width], y, w)
    (bread, meat), gradient, (rows, counted) = sums
    if not counted:
        why = f"the weights of the {rows:.0f} rows are all zero; one above 0 is needed" if rows else "there are no rows"
        raise BadValue(why)
    penalty = _penalty(model, width) * rows
    coef = np.append(model.coef[0], model.intercept)[:width].astype(np.float64)
    names, found = _names(model)[:width], _references(model, coef, bread)
    kept = tuple(names[at] for at in found.kept)
    inverse = _inverse(found.of(bread + penalty), kept)
    error = np.sqrt(np.diag(inverse @ found.of(meat) @ inverse))
    step = inverse @ (gradient + penalty @ coef)[found.kept]
    gaps = np.abs(step) / np.where(error > 0, error, np.inf)
    dropped = tuple(names[at] for at in found.left)
    return Summary(kept, found.coef[found.kept], error, int(rows), gaps, dropped)


def _penalty(model: "Model", width: int) -> FloatArray:
    """Return the second derivatives of the L2 penalty of a row, by the weights for unscaled features.

    Training penalised the weights of standardised features; the dual solver also penalises the intercept.
    """
    scaling = Scaling.none(model.width)
    if model.learnt is not None and model.learnt.scaling is not None:
        scaling = model.learnt.scaling
    matrix = np.diag(np.append(scaling.scale**2, 0)[:width])
    if model.params.get("solver") == "dual" and width > model.width:
        shift = np.append(scaling.center, 1)
        matrix += np.outer(shift, shift)
    return np.asarray(matrix * float(model.params.get("l2", 0.0)))


def _check(model: "Model") -> None:
    if model.loss.name not in SUPPORTED or model.loss.per_class:
        raise BadArgument(f"standard errors need a model of kind {', '.join(SUPPORTED)}, got {model.kind}")
    if model.params.get("l1"):
        raise BadArgument("weights under an L1 penalty have no standard errors; train with l1=0")
    if model.params.get("max_norm"):
        raise BadArgument("weights at their bound have no standard errors; train with max_norm=None")
    if model.width > MAX_FEATURES:
        raise BadArgument(f"standard errors need at most {MAX_FEATURES} features, got {model.width}")


def _names(model: "Model") -> list[str]:
    return [*(model.names or (f"{(model.features or ('x',))[0]}[{at}]" for at in range(model.width))), INTERCEPT]


def _rows(
    model: "Model", table: Any, label: str, weight: str | None
) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
    """Yield rows with a final 1, [rows, features + 1], labels and weights."""
    opened = open_table(table)
    opened = encode_pass(as_numbers(opened, label, weight, once=not is_remote(opened)), model.encoding, label)
    check_label(opened, label, repr(opened))
    if weight is not None:
        check_weight(opened, weight, label, repr(opened))
    class_weights = weights_of(model.params.get("class_weight"), _labels(model, opened, label), model.kind)
    inputs = model.inputs(opened, label)
    part_rows = max(1, CAST_NUMBERS // (inputs.width + 1))
    sgd = SGD(model.kind, inputs, model.classes)  # its weights stay 0: it only checks rows
    with passes.reader(inputs, NullsAsNaN(opened, inputs, label), label, weight) as feeder:
        for step in passes.steps(feeder, inputs, label, weight):
            sgd.begin(0.0)
            sgd.learn(*step)
            for start in range(0, len(step.visit), part_rows):
                part = step.part(slice(start, start + part_rows))
                x, y, w = _dense(part, inputs), part.labels[part.visit].astype(np.float64), part.counts()
                if class_weights is not None:
                    at = np.searchsorted(codes_of(model.classes), y)
                    w *= class_weights[np.minimum(at, len(class_weights) - 1)]
                yield x, y, w


def _labels(model: "Model", table: Table, label: str) -> Labels:
    return Labels(table, label, model.kind, classes=model.classes)


def _dense(step: Step, inputs: Features) -> FloatArray:
    rows, visit = step.rows, step.visit
    x = np.zeros((len(visit), inputs.width + 1))
    x[:, -1] = 1
    if not isinstance(rows, Sparse):
        x[:, :-1] = rows[visit].reshape(len(visit), -1)
        return x
    indices, values, lengths = gather(rows, visit, inputs.dtype)
    x[np.repeat(np.arange(len(visit)), lengths), indices] = values
    return x


def _add(model: "Model", sums: Any, x: FloatArray, y: FloatArray, w: FloatArray) -> None:
    """Add rows to the sums: second derivatives, products of gradients, gradients, rows and weights."""
    matrices, gradient, counts = sums
    margin = x[:, : model.width] @ model.coef[0].astype(np.float64) + float(model.intercept[0])
    if model.loss.name == "logistic":
        _, second = codes_of(model.classes)
        mean = 1 / (1 + np.exp(-np.clip(margin, -700, 700)))
        slope, curve = mean - (y == second), mean * (1 - mean)
    elif model.loss.name == "poisson":
        mean = np.exp(np.clip(margin, -700, 700))
        slope, curve = mean - y, mean
    else:
        slope, curve = margin - y, np.ones(len(y))
    matrices[0] += (x * (w * curve)[:, None]).T @ x
    matrices[1] += (x * ((w * slope) ** 2)[:, None]).T @ x
    gradient += x.T @ (w * slope)
    counts += len(y), w.sum()


def _inverse(matrix: FloatArray, names: Sequence[str]) -> FloatArray:
    """Return the inverse of second derivatives, with features scaled to unit size; raise BadValue if it is singular."""
    size = np.sqrt(np.diag(matrix))
    if not size.all() or not np.isfinite(size).all():
        none = [name for name, value in zip(names, size.tolist(), strict=True) if not (0 < value < math.inf)]
        raise BadValue(f"the information matrix is singular: rows do not determine {listed(none)}; {HINT}")
    values, vectors = np.linalg.eigh(matrix / np.outer(size, size))
    if values[0] <= SINGULAR * values[-1]:
        share = np.abs(vectors[:, 0])
        mixed = [name for name, value in zip(names, share.tolist(), strict=True) if value > share.max() / 10]
        raise BadValue(
            f"the information matrix is singular: {listed(mixed)} are linearly dependent, or constant; {HINT}"
        )
    return np.asarray((vectors / values) @ vectors.T / np.outer(size, size))


@dataclass(frozen=True)
class _References:
    """An equivalent model with fewer coefficients.

    Holds the places of those kept, all of them with those of removed levels 0, and the places of the removed levels.
    """

    kept: npt.NDArray[np.intp]
    coef: FloatArray
    left: tuple[int, ...] = ()

    def of(self, matrix: FloatArray) -> FloatArray:
        """Return the remaining rows and columns of a matrix."""
        return matrix[np.ix_(self.kept, self.kept)]


def _references(model: "Model", coef: FloatArray, curves: FloatArray) -> _References:
    """Remove the last level of each column with one level per row, and adjust the other coefficients.

    The dummies of such a column add up to the intercept's 1, or without an intercept to those of the first such
    column. Adding a constant to all levels and subtracting it from the intercept changes no score.
    """
    coef, left = coef.copy(), []
    base = [model.width] if len(coef) > model.width else []
    for levels in [] if model.params.get("l2") else _levels(model):
        if not base:
            base = levels
            continue
        both = float(curves[np.ix_(base, levels)].sum())
        sums = [float(curves[part, part].sum()) for part in (base, levels)]
        if both <= 0 or not np.allclose(sums, both, rtol=SUM_TOLERANCE, atol=0):
            continue
        last = max(at for at in levels if curves[at, at] > 0)
        coef[base] += coef[last]
        coef[levels] -= coef[last]
        left.append(last)
    return _References(np.setdiff1d(np.arange(len(coef)), left), coef, tuple(left))


def _levels(model: "Model") -> list[list[int]]:
    """Return the places of the levels of each categorical column."""
    encoding, levels, at = model.encoding, [], 0
    encoders: Sequence[Any] = encoding.features if encoding is not None and model.names else ()
    for encoder in encoders:
        stop = at + len(encoder.names)
        if isinstance(encoder, Categories) and encoder.way != "ordinal":
            levels.append(list(range(at, stop)))
        at = stop
    return levels
