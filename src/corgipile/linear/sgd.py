"""The SGD kernel as an object: losses, updates, figures, and errors for rows that it refuses."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import BadLabel, BadSparseRow, BadValue, CorgiPileError, Diverged
from corgipile.linear.classes import codes_of
from corgipile.linear.features import Features
from corgipile.linear.row_errors import TRAINED, Locate, bad_value, picked
from corgipile.linear.scaling import Scaling
from corgipile.linear.sparse import Flaw, Sparse, flaw, gather, sparse_rows
from corgipile.loader.buffer import Buffer
from corgipile.losses import loss_of
from corgipile.sizes import OnBad, choice
from corgipile.steps import step_of
from corgipile.tables.table import type_code

__all__ = ["SGD", "Figures", "Step", "outputs_of", "plain", "rows_in"]

FloatArray = npt.NDArray[Any]
INDEX_FAULTS = (_kernel.BAD_INDEX, _kernel.BAD_ORDER)
# faults of a single row, which can be skipped
ROW_FAULTS = (_kernel.BAD_LABEL, _kernel.LABEL_VALUE, _kernel.BAD_VALUE, _kernel.BAD_WEIGHT, *INDEX_FAULTS)
MAX_SCALED_ROWS, MAX_SCALED_BYTES = 4096, 4 << 20  # rows standardised at a time: copies of narrow rows stay in a cache
SlotArray = npt.NDArray[np.int32]


def outputs_of(kind: str, classes: npt.NDArray[Any]) -> int:
    """Return the number of scores per row: one per class for softmax and for a multiclass svm, else one.

    Example:
        >>> outputs_of("svm", np.array([0, 1])), outputs_of("svm", np.array([0, 1, 2]))
        (1, 3)
    """
    return len(classes) if loss_of(kind, len(classes)).per_class else 1


def plain(numbers: FloatArray) -> FloatArray:
    """Return numbers in a type that the kernel takes: booleans as bytes."""
    return numbers.view(np.uint8) if numbers.dtype == np.bool_ else numbers


class Step(NamedTuple):
    """Rows in the buffer that a model visits in sequence.

    Attributes:
        rows: The features by slot.
        labels: The labels by slot.
        visit: The slots to visit.
        locate: Names a row by its place in ``visit``.
        weights: The weights by slot; None: all 1.
        numbers: A number of each visit, such as its model; None: there is one.
    """

    rows: FloatArray | Sparse
    labels: FloatArray
    visit: SlotArray
    locate: Locate
    weights: FloatArray | None = None
    numbers: npt.NDArray[np.integer[Any]] | None = None

    def part(self, places: Any) -> "Step":
        """Return the visits at some places: a slice, or an array of numbers."""
        numbers = None if self.numbers is None else self.numbers[places]
        locate = picked(self.locate, places)
        return Step(self.rows, self.labels, self.visit[places], locate, self.weights, numbers)

    def counts(self) -> npt.NDArray[np.float64]:
        """Return the weight of each visit."""
        return np.ones(len(self.visit)) if self.weights is None else self.weights[self.visit].astype(np.float64)

    def for_kernel(self) -> tuple[Any, tuple[FloatArray, int], tuple[FloatArray | None, int]]:
        """Return features, labels and weights as the kernel takes them."""
        weights = None if self.weights is None else plain(self.weights)
        labels = plain(self.labels)
        features = tuple(self.rows[:3]) if isinstance(self.rows, Sparse) else self.rows
        weight_code = 0 if weights is None else type_code(weights.dtype)
        return features, (labels, type_code(labels.dtype)), (weights, weight_code)


class Figures(NamedTuple):
    """Results of an epoch, each row evaluated before its own update: mean loss, and accuracy or R², by weight."""

    rows: int
    loss: float
    score: float
    weight: float = 1.0

    def record(self, kind: str) -> dict[str, float]:
        """Return the loss and the score by name.

        Example:
            >>> Figures(4, 0.5, 0.75).record("logistic")
            {'loss': 0.5, 'accuracy': 0.75}
        """
        return {"loss": self.loss, loss_of(kind).score: self.score}


class SGD:
    """A linear model in training or in use, with the settings of `corgipile.train`.

    With ``scaling`` weights are for scaled rows; ``rows`` of the training table, 0 if unknown, determine the steps of
    ``step="auto"``. ``skipped`` counts the rows that ``on_bad`` left out.
    """

    def __init__(
        self,
        kind: str,
        inputs: Features,
        classes: npt.NDArray[Any],
        *,
        batch_size: int = 1,
        l2: float = 0.0,
        intercept: bool = True,
        average: bool = False,
        step: str = "decay",
        l1: float = 0.0,
        max_norm: float | None = None,
        on_bad: OnBad = "raise",
        scaling: Scaling | None = None,
        class_weight: npt.NDArray[np.float64] | None = None,
        rows: int = 0,
        isa: int = -1,
    ) -> None:
        choice(on_bad, "on_bad", OnBad)
        self.kind, self.inputs, self.scaling = kind, inputs, scaling
        self.loss = loss_of(kind, len(classes))
        self.skipped, self._skip = 0, on_bad == "skip"
        self._left_out: list[int] | None = None  # slots skipped in the last visit of an evaluation
        self._skipped_for = ROW_FAULTS
        self.outputs = outputs_of(kind, classes)
        self._classes = classes
        self.hint = TRAINED  # the hint for missing values
        coded = np.ascontiguousarray(codes_of(classes))
        self._new_state = partial(
            _kernel.sgd_new,
            self.loss.code,
            self.loss.parameter,
            coded,
            number_bytes=inputs.dtype.itemsize,
            sparse=inputs.sparse,
            features=inputs.width,
            outputs=self.outputs,
            batch=batch_size,
            intercept=intercept,
            l2=l2,
            isa=isa,
            average=average,
            step=step_of(step).code,
            l1=l1,
            class_weight=class_weight,
            max_norm=max_norm or 0.0,
            rows=rows,
        )
        self._state = self._new_state()

    def begin(self, rate: float) -> None:
        """Begin an epoch."""
        self.skipped = 0
        _kernel.sgd_begin(self._state, rate)

    def learn(self, *parts: Any) -> None:
        """Learn from a `Step`, in the order of its visits; one model needs no ``numbers``.

        Raises:
            BadLabel: A label is none of the classes.
            BadValue: A feature or label is NaN or infinite, or a weight is so or negative.
            BadSparseRow: Sparse indices do not increase, or lie outside the features.
            Diverged: The weights grew without bound.
        """
        if self._left_out:
            self._left_out.clear()
        for piece in self.pieces(Step(*parts[:5])):
            self._learn_all(piece)

    def pieces(self, step: Step, rows: int = MAX_SCALED_ROWS) -> Iterator[Step]:
        """Cut a step into standardised copies of at most ``rows`` rows; without scaling yield it whole."""
        if self.scaling is None:
            yield step
            return
        for part in self.slices(len(step.visit), rows):
            one = step.part(part)
            places = np.arange(len(one.visit), dtype=np.int32)
            weights = None if step.weights is None else step.weights[one.visit]
            rows_ = self._scaled(step.rows, one.visit)
            yield Step(rows_, step.labels[one.visit], places, one.locate, weights, one.numbers)

    def slices(self, rows: int, most: int = MAX_SCALED_ROWS) -> Iterator[slice]:
        """Cut visits into the slices that `pieces` standardises; without scaling there is one."""
        if not self.inputs.sparse:
            most = max(1, min(most, MAX_SCALED_BYTES // (self.inputs.width * self.inputs.dtype.itemsize)))
        most = max(1, rows) if self.scaling is None else most
        for first in range(0, rows, most):
            yield slice(first, min(first + most, rows))

    def _scaled(self, rows: FloatArray | Sparse, visit: SlotArray) -> FloatArray | Sparse:
        """Return standardised copies of rows."""
        assert self.scaling is not None  # noqa: S101 - for the type checker: the caller checked it
        if not isinstance(rows, Sparse):
            return self.scaling.dense(rows, visit)
        indices, values, lengths = gather(rows, visit, self.inputs.dtype)
        self.scaling.sparse(indices, values)
        starts = np.cumsum(lengths) - lengths
        at = [(part.ctypes.data + starts * part.itemsize).astype(np.uint64) for part in (indices, values)]
        flaws = {place: rows.flaws[slot] for place, slot in enumerate(visit.tolist()) if slot in rows.flaws}
        return Sparse(at[0], at[1], lengths, flaws, (indices, values))

    def _learn_all(self, step: Step, known: tuple[int, int] | None = None) -> None:
        """Learn, skipping rows where allowed; ``known`` is the kernel's result for this step, if it has one."""
        visit, start = step.visit, 0
        while True:
            status, done = known or self._learn(step, visit[start:])
            known = None
            if not status:
                return
            start += done
            if not (self._skip and status in self._skipped_for):
                raise self._refused_in(step, status, start)
            if self._left_out is not None:
                self._left_out.append(int(visit[start]))
            self.skipped += 1
            start += 1

    def _learn(self, step: Step, visit: SlotArray) -> tuple[int, int]:
        features, labels, weights = step.for_kernel()
        return _kernel.sgd_learn(self._state, features, *labels, visit, *weights)

    def _refused_in(self, step: Step, status: int, place: int) -> CorgiPileError:
        """Return the error for a visit that the kernel refused."""
        slot = int(step.visit[place])
        of = step.weights if status == _kernel.BAD_WEIGHT and step.weights is not None else step.labels
        return self._refused(status, step.rows, slot, step.locate(place), of[slot])

    def _refused(
        self, status: int, rows: FloatArray | Sparse, slot: int, where: str, label: Any = None
    ) -> CorgiPileError:
        """Return the error for a row that the kernel refused."""
        width, dtype = self.inputs.width, self.inputs.dtype
        reasons: dict[int, Flaw] = {
            _kernel.BAD_LABEL: (BadLabel, f"has label {label}; {self._describe_labels()}"),
            _kernel.LABEL_VALUE: (BadValue, f"has label {label}; a finite number is needed"),
            _kernel.BAD_WEIGHT: (BadValue, f"has weight {label}; a finite number of 0 or more is needed"),
            _kernel.BAD_INDEX: (BadSparseRow, f"has an index outside the model's {width} features, which begin at 0"),
            _kernel.BAD_ORDER: (BadSparseRow, "has sparse indices that repeat or fall; they must increase"),
            _kernel.DIVERGED: (Diverged, f"made the model's weights overflow {dtype}"),
        }
        kind, what = reasons.get(status, (CorgiPileError, f"was refused by the kernel with status {status}"))
        if status in INDEX_FAULTS:
            kind, what = flaw(rows, slot, dtype) or (kind, what)
        elif status == _kernel.BAD_VALUE:
            kind, what = self._bad_value(rows, slot, where)
        return kind(f"{where} {what}")

    def _bad_value(self, rows: FloatArray | Sparse, slot: int, where: str) -> Flaw:
        """Return the fault of a row with a feature that is not finite."""
        if not isinstance(rows, Sparse):
            return bad_value(self.inputs, where, rows[slot].reshape(-1), hint=self.hint)
        indices, values, _ = gather(rows, np.array([slot], np.int32), self.inputs.dtype)
        return rows.flaws.get(slot) or bad_value(self.inputs, where, values, indices, self.hint)

    def _describe_labels(self) -> str:
        """Describe the labels that the model accepts."""
        if self.loss.numbers:
            return f"a {self.loss.name} model needs labels of 0 or more"
        return f"the model's classes are {self._classes.tolist()}"

    def eval_mode(self) -> None:
        """Stop learning: a score that overflows is now the fault of its row, which is skipped.

        The weights are finite and do not change.
        """
        self._left_out = [] if self._skip else None
        self._skip, self._skipped_for = True, (*(ROW_FAULTS if self._skip else ()), _kernel.DIVERGED)

    def counted(self, visit: SlotArray) -> npt.NDArray[np.bool_]:
        """Return which rows of the last evaluated visit were not skipped."""
        return np.isin(visit, self._left_out or (), invert=True)

    def flush(self) -> Figures:
        """End an epoch: apply the last, incomplete batch, and return the figures."""
        _kernel.sgd_flush(self._state)
        return Figures(*_kernel.sgd_figures(self._state))

    def has_plateaued(self, losses: Sequence[float]) -> bool:
        """Return whether a regression has plateaued because of its steps, by the losses of its epochs."""
        return _kernel.sgd_rests(self._state, np.array(losses))

    def weights(self) -> tuple[FloatArray, FloatArray]:
        """Return copies of the predicting weights, [outputs, features], and intercepts, [outputs]."""
        return self._copy(_kernel.sgd_predictor)

    def last(self) -> tuple[FloatArray, FloatArray]:
        """Return copies of the weights that learn."""
        return self._copy(_kernel.sgd_get)

    def _copy(self, copy: Callable[[Any, FloatArray, FloatArray], None]) -> tuple[FloatArray, FloatArray]:
        coef = np.empty((self.outputs, self.inputs.width), self.inputs.dtype)
        bias = np.empty(self.outputs, self.inputs.dtype)
        copy(self._state, coef, bias)
        return coef, bias

    @property
    def bytes(self) -> int:
        """Return the bytes of one model in training."""
        return _kernel.sgd_bytes(self._state)

    @property
    def state_rows(self) -> int:
        """Return the number of rows of the optimizer state; 0 for plain SGD."""
        return _kernel.sgd_lines(self._state)

    def optimizer_state(self) -> npt.NDArray[np.float64] | None:
        """Return the optimizer state, float64[state_rows, features + 1]; None if there is none."""
        if not self.state_rows:
            return None
        state_rows = np.empty((self.state_rows, self.inputs.width + 1))
        _kernel.sgd_keep(self._state, state_rows, 0)
        return state_rows

    def assign(self, coef: FloatArray, bias: FloatArray, state: npt.NDArray[np.float64] | None = None) -> None:
        """Set weights, intercepts and optimizer state."""
        dtype = self.inputs.dtype
        _kernel.sgd_set(self._state, np.ascontiguousarray(coef, dtype), np.ascontiguousarray(bias, dtype))
        if state is not None:
            _kernel.sgd_keep(self._state, np.ascontiguousarray(state), 1)

    def decide(
        self,
        rows: FloatArray | Sparse,
        visit: SlotArray,
        locate: Locate,
        numbers: npt.NDArray[np.integer[Any]] | None = None,
    ) -> FloatArray:
        """Score rows by slot: [rows, outputs]; one model needs no ``numbers``.

        Raises:
            BadValue: A feature is NaN or infinite, or so large that the score overflows.
            BadSparseRow: Sparse indices do not increase, or lie outside the features.
        """
        out = np.empty((len(visit), self.outputs), self.inputs.dtype)
        if self._decide(rows, visit, out) or not math.isfinite(float(out.sum())):
            for place in range(len(visit)):  # the error must name the row
                self._check_score(rows, visit[place : place + 1], partial(locate, place))
        return out

    def _decide(self, rows: FloatArray | Sparse, visit: SlotArray, out: FloatArray) -> int:
        return _kernel.sgd_decide(self._state, rows[:3] if isinstance(rows, Sparse) else rows, visit, out)

    def _check_score(self, rows: FloatArray | Sparse, one: SlotArray, locate: Callable[[], str]) -> None:
        """Raise the error of a row without a finite score: a bad feature, or overflow."""
        out = np.empty((1, self.outputs), self.inputs.dtype)
        status, dtype = self._decide(rows, one, out), self.inputs.dtype
        if status:
            raise self._refused(status, rows, int(one[0]), locate())
        if np.isfinite(out).all():
            return
        row = gather(rows, one, dtype)[1] if isinstance(rows, Sparse) else rows[one]
        if np.isfinite(row).all():
            raise BadValue(f"{locate()} has features so large that its score overflows {dtype}")
        raise self._refused(_kernel.BAD_VALUE, rows, int(one[0]), locate())


def rows_in(buffer: Buffer, inputs: Features, visit: SlotArray) -> FloatArray | Sparse:
    """Return the buffered features."""
    return sparse_rows(buffer, inputs.columns, inputs.dtype, visit) if inputs.sparse else buffer.dense(inputs.name)
