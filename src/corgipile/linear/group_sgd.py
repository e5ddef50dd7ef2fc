"""SGD for one model per group, each trained on the rows of its group."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.linear.row_errors import Locate, RowName, picked
from corgipile.linear.sgd import SGD, Figures, FloatArray, SlotArray, Step
from corgipile.linear.sparse import Sparse

__all__ = ["GroupSGD", "total_figures"]

Numbers = npt.NDArray[np.integer[Any]]


def total_figures(each: list[Figures]) -> Figures:
    """Return the total of groups: losses and scores averaged by weight.

    Example:
        >>> total_figures([Figures(1, 1.0, 0.0, 1.0), Figures(3, 0.0, 1.0, 3.0), Figures(0, 0.0, 0.0, 0.0)])
        Figures(rows=4, loss=0.25, score=0.75, weight=4.0)
    """
    weight = loss = score = 0.0  # not sum(): Python 3.12's corrects rounding, PostgreSQL does not
    for figures in each:
        weight += figures.weight
        loss += figures.loss * figures.weight
        score += figures.score * figures.weight
    return Figures(sum(figures.rows for figures in each), loss / (weight or 1), score / (weight or 1), weight)


class GroupSGD(SGD):
    """One linear model per group, with the same features and classes; ``groups`` holds the number of rows of each."""

    def __init__(self, groups: Sequence[int], describe: Callable[[int], str], *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.each: list[Figures] = []
        self._describe, self._rows = describe, groups
        self._states = [self._new_state(rows=rows) for rows in groups]
        self._starts = np.zeros(len(groups) + 1, np.int64)
        self.learning = np.ones(len(groups), np.bool_)
        self.tried = np.zeros(len(groups), np.bool_)

    def begin(self, rate: float | Sequence[float]) -> None:
        """Begin an epoch of the ``learning`` groups; a ``tried`` group that overflows stops learning."""
        self.skipped = 0
        rates = np.broadcast_to(rate, len(self._states)).tolist()
        for at in np.flatnonzero(self.learning).tolist():
            _kernel.sgd_begin(self._states[at], rates[at])

    def forget(self, group: int) -> None:
        """Reset a group's model."""
        self._states[group] = self._new_state(rows=self._rows[group])

    def learn(self, *parts: Any) -> None:
        """Train each group on its rows, in the order of ``visit``.

        ``numbers`` is the group of each visit, named in errors.
        """
        step = Step(*parts)
        numbers = step.numbers
        assert numbers is not None  # noqa: S101 - for the type checker
        step = step._replace(locate=self._namer(step.locate, numbers))
        for part in self.slices(len(step.visit)):
            groups = numbers[part]
            places = np.argsort(groups, kind="stable")
            if not self.learning.all():
                places = places[self.learning[groups[places]]]
            counts = np.bincount(groups[places], minlength=len(self._states))
            np.cumsum(counts, out=self._starts[1:])
            super().learn(*step.part(part.start + places)[:5])

    def _namer(self, locate: Locate, numbers: Numbers) -> Locate:
        """Return a function that names a row with its group."""

        def name(place: int) -> str:
            row, of = locate(place), f", of {self._describe(int(numbers[place]))},"
            return row.further(of) if isinstance(row, RowName) else f"{row}{of}"

        return name

    def _learn(self, step: Step, visit: SlotArray) -> tuple[int, int]:
        features, labels, weights = step.for_kernel()
        first = int(self._starts[-1]) - len(visit)  # of the remaining visits
        begin = first
        while True:
            starts, left = np.maximum(self._starts - begin, 0), visit[begin - first :]
            status, done = _kernel.sgd_groups(self._states, starts, features, *labels, left, *weights)
            group = int(np.searchsorted(self._starts, begin + done, "right")) - 1
            if status != _kernel.DIVERGED or not self.tried[group]:
                return status, begin - first + done
            self.learning[group] = False
            begin = int(self._starts[group + 1])

    def decide(
        self, rows: FloatArray | Sparse, visit: SlotArray, locate: Locate, numbers: Numbers | None = None
    ) -> FloatArray:
        """Score rows by slot, each with the model of its group: [rows, outputs]."""
        assert numbers is not None  # noqa: S101 - for the type checker
        out, first = np.empty((len(visit), self.outputs), self.inputs.dtype), self._state
        places = np.argsort(numbers, kind="stable")
        present, starts = np.unique(numbers[places], return_index=True)
        try:
            for number, part in zip(present.tolist(), np.split(places, starts[1:]), strict=True):
                self._state = self._states[number]
                out[part] = super().decide(rows, np.ascontiguousarray(visit[part]), picked(locate, part))
        finally:
            self._state = first
        return out

    def flush(self) -> Figures:
        """End an epoch and return the figures of all groups; ``each`` holds those of each."""
        for state in self._states:
            _kernel.sgd_flush(state)
        self.each = [Figures(*_kernel.sgd_figures(state)) for state in self._states]
        return total_figures(self.each)

    def weights(self) -> tuple[FloatArray, FloatArray]:
        """Return the weights for prediction, [groups * outputs, features], and intercepts, [groups * outputs]."""
        coef = np.empty((len(self._states) * self.outputs, self.inputs.width), self.inputs.dtype)
        bias = np.empty(len(coef), self.inputs.dtype)
        for state, part in zip(self._states, self._parts(), strict=True):
            _kernel.sgd_predictor(state, coef[part], bias[part])
        return coef, bias

    def group_has_plateaued(self, group: int, losses: Sequence[float]) -> bool:
        """Return whether a group's losses have plateaued."""
        return _kernel.sgd_rests(self._states[group], np.array(losses))

    def assign(self, coef: FloatArray, bias: FloatArray, optimizer_state: FloatArray | None = None) -> None:
        """Set the weights and intercepts of all groups."""
        assert optimizer_state is None  # noqa: S101 - models by group have no optimizer state
        dtype = self.inputs.dtype
        for state, part in zip(self._states, self._parts(), strict=True):
            _kernel.sgd_set(state, np.ascontiguousarray(coef[part], dtype), np.ascontiguousarray(bias[part], dtype))

    def _parts(self) -> Iterator[slice]:
        for number in range(len(self._states)):
            yield slice(number * self.outputs, (number + 1) * self.outputs)
