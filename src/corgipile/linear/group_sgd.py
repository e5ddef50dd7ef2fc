"""Many SGD kernels that learn side by side, each from the rows of its group."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.linear.row_names import RowName
from corgipile.linear.sgd import SGD, Figures, FloatArray, Locate, SlotArray
from corgipile.linear.sparse import Sparse
from corgipile.tables.table import type_code

__all__ = ["GroupSGD", "together"]

Numbers = npt.NDArray[np.integer[Any]]


def together(each: list[Figures]) -> Figures:
    """Return what groups amount to: means of their losses and scores, by what their rows count for.

    Example:
        >>> together([Figures(1, 1.0, 0.0, 1.0), Figures(3, 0.0, 1.0, 3.0), Figures(0, 0.0, 0.0, 0.0)])
        Figures(rows=4, loss=0.25, score=0.75, weight=4.0)
    """
    weight = loss = score = 0.0  # added up as PostgreSQL does: sum() corrects what it rounds in some versions of Python
    for one in each:
        weight += one.weight
        loss += one.loss * one.weight
        score += one.score * one.weight
    return Figures(sum(one.rows for one in each), loss / (weight or 1), score / (weight or 1), weight)


class GroupSGD(SGD):
    """One linear model a group, of the same features and classes.

    Args:
        groups: The rows of each.
        told: Says the name of a group by its number.
        *args: Of `SGD`, as are all others.
    """

    def __init__(self, groups: Sequence[int], told: Callable[[int], str], *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.each: list[Figures] = []
        self._told, self._rows = told, groups
        self._states = [self._made(rows=rows) for rows in groups]
        self._starts = np.zeros(len(groups) + 1, np.int64)
        self.learning = np.ones(len(groups), np.bool_)
        self.tried = np.zeros(len(groups), np.bool_)

    def begin(self, rate: float | Sequence[float]) -> None:
        """Begin an epoch of groups that are ``learning``; overflow ends that of one that is ``tried``."""
        self.skipped = 0
        rates = np.broadcast_to(rate, len(self._states)).tolist()
        for at in np.flatnonzero(self.learning).tolist():
            _kernel.sgd_begin(self._states[at], rates[at])

    def forget(self, group: int) -> None:
        """Let a group begin from nothing."""
        self._states[group] = self._made(rows=self._rows[group])

    def learn_groups(
        self,
        rows: FloatArray | Sparse,
        labels: FloatArray,
        visit: SlotArray,
        numbers: Numbers,
        locate: Locate,
        weights: FloatArray | None = None,
    ) -> None:
        """Let each group learn from its rows, in the order of ``visit``.

        Args:
            rows: Rows by slot.
            labels: Labels by slot.
            visit: Slots.
            numbers: The group of each visit.
            locate: Names a row by its place in ``visit``.
            weights: What rows count for, by slot.

        Raises:
            BadLabel: As of `SGD.learn`, with the group.
        """
        for piece in self._pieces(slice(0, len(visit))):
            groups = numbers[piece]
            places = np.argsort(groups, kind="stable")
            if not self.learning.all():
                places = places[self.learning[groups[places]]]
            counts = np.bincount(groups[places], minlength=len(self._states))
            np.cumsum(counts, out=self._starts[1:])

            def of_group(place: int, places: Numbers = places, piece: slice = piece) -> str:
                at = piece.start + int(places[place])
                name, of = locate(at), f", of {self._told(int(numbers[at]))},"
                return name.further(of) if isinstance(name, RowName) else f"{name}{of}"

            self.learn(rows, labels, np.ascontiguousarray(visit[piece][places]), of_group, weights)

    def _learn(
        self, rows: FloatArray | Sparse, labels: FloatArray, weights: FloatArray | None, visit: SlotArray
    ) -> tuple[int, int]:
        code, also = type_code(labels.dtype), 0 if weights is None else type_code(weights.dtype)
        given = (rows[0], rows[1], rows[2]) if isinstance(rows, Sparse) else rows
        first = int(self._starts[-1]) - len(visit)  # of the visits that are left
        begin = first
        while True:
            starts, left = np.maximum(self._starts - begin, 0), visit[begin - first :]
            status, done = _kernel.sgd_groups(self._states, starts, given, labels, code, left, weights, also)
            group = int(np.searchsorted(self._starts, begin + done, "right")) - 1
            if status != _kernel.DIVERGED or not self.tried[group]:
                return status, begin - first + done
            self.learning[group] = False
            begin = int(self._starts[group + 1])

    def decide_groups(
        self, rows: FloatArray | Sparse, visit: SlotArray, numbers: Numbers, locate: Locate
    ) -> FloatArray:
        """Score rows by slot, each by the model of its group: [rows, outputs]."""
        out, first = np.empty((len(visit), self.outputs), self.inputs.dtype), self._state
        places = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[places], return_index=True)
        try:
            for number, mine in zip(found.tolist(), np.split(places, starts[1:]), strict=True):
                self._state = self._states[number]
                out[mine] = self.decide(rows, np.ascontiguousarray(visit[mine]), _at(locate, mine))
        finally:
            self._state = first
        return out

    def flush(self) -> Figures:
        """End an epoch: return the figures of all groups together; those of each are in ``each``."""
        for state in self._states:
            _kernel.sgd_flush(state)
        self.each = [Figures(*_kernel.sgd_figures(state)) for state in self._states]
        return together(self.each)

    def weights(self) -> tuple[FloatArray, FloatArray]:
        """Return the weights that predict, [groups * outputs, features], and the intercepts, [groups * outputs]."""
        coef = np.empty((len(self._states) * self.outputs, self.inputs.width), self.inputs.dtype)
        bias = np.empty(len(coef), self.inputs.dtype)
        for state, mine in zip(self._states, self._parts(), strict=True):
            _kernel.sgd_predictor(state, coef[mine], bias[mine])
        return coef, bias

    def stands_still(self, group: int, losses: Sequence[float]) -> bool:
        """Say of a group what `rests` says of one model."""
        return _kernel.sgd_rests(self._states[group], np.array(losses))

    def assign(self, coef: FloatArray, bias: FloatArray, beside: npt.NDArray[np.float64] | None = None) -> None:
        """Set the weights and intercepts of all groups."""
        assert beside is None  # noqa: S101 - nothing else of groups is kept
        dtype = self.inputs.dtype
        for state, mine in zip(self._states, self._parts(), strict=True):
            _kernel.sgd_set(state, np.ascontiguousarray(coef[mine], dtype), np.ascontiguousarray(bias[mine], dtype))

    def _parts(self) -> Iterator[slice]:
        for number in range(len(self._states)):
            yield slice(number * self.outputs, (number + 1) * self.outputs)


def _at(locate: Locate, places: Numbers) -> Locate:
    return lambda place: locate(int(places[place]))
