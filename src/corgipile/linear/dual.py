"""Dual coordinate descent: the kernel's solver, and the dual variables of all rows in memory or in a file."""

import math
import mmap
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile import _kernel, random
from corgipile.errors import BadArgument, BadValue
from corgipile.linear.classes import codes_of
from corgipile.linear.features import Features
from corgipile.linear.row_errors import Locate
from corgipile.linear.sgd import ROW_FAULTS, SGD, Figures, FloatArray, Step
from corgipile.tables.io.spill import check_room, nameless, spill_folder, writing
from corgipile.tables.table import IntArray

__all__ = ["KINDS", "Dual", "DualVariables"]

REVISIT_KEY = 0xD0A1  # distinguishes the random keys of repeated visits
KINDS = ("logistic", "svm", "squared_hinge", "ovr_logistic")
MAPPED_BYTES = 64 << 10  # bytes that the system maps around a touched page
SUMMED_ROWS = 1 << 20  # dual variables summed at a time
# A dual variable is at most C times its row's weight, and the model is a sum of rows times their variables.
# Such a sum has 53 binary digits: beside a row of weight 2^40 a row of weight 1 has 13 left, as many as a duality
# gap of 1e-4 needs.
MAX_WEIGHT_RATIO = 2.0**40
# The variable of a row of margin m is near C exp(-m): 1e-308 is the end of normal numbers, and squares end at 1e308.
MIN_C, MAX_C = 2.0**-512, 2.0**512
RATIO_LIMIT = (
    f"solver='dual' supports a ratio up to {MAX_WEIGHT_RATIO:.2g}: give weights nearer to each other, or 0 to rows "
    "to leave out"
)


class DualVariables:
    """One dual variable per row and output, and one more with weights.

    Above ``limit`` bytes they lie in an unnamed file that is mapped in parts.

    Example:
        >>> variables = DualVariables(1000, 1, limit=4096)
        >>> variables.in_file, len(variables.values)
        (True, 1000)
    """

    def __init__(self, rows: int, each: int, limit: int | None) -> None:
        size = rows * each * 8
        self._each, self._limit = each, limit
        self._map: mmap.mmap | None = None
        if limit is None or size <= limit:
            self.values = np.zeros(rows * each)
            self._rows = self.values.reshape(rows, each)
            return
        folder = spill_folder(None)
        if folder is None:
            raise BadArgument(
                f"dual variables of {rows} rows take {size} bytes, memory has room for {limit}, and spill files "
                "are turned off: give more memory"
            )
        check_room(folder, size)
        with writing(folder):
            descriptor = nameless(folder)
            try:
                os.posix_fallocate(descriptor, 0, size)  # a full disk must raise now: later it would send SIGBUS
                self._map = mmap.mmap(descriptor, size)
            finally:
                os.close(descriptor)
        self.values = np.frombuffer(self._map)
        self._rows = self.values.reshape(rows, each)

    @property
    def in_file(self) -> bool:
        """Return whether the variables lie in a file."""
        return self._map is not None

    def take(self, numbers: IntArray) -> tuple[FloatArray, IntArray]:
        """Return variables and each row's place among them; variables in a file are copied."""
        if self._map is None:
            return self.values, numbers
        distinct, places = np.unique(numbers, return_inverse=True)
        copies = np.empty((len(distinct), self._each))
        for part in self._parts(distinct):
            copies[part] = self._rows[distinct[part]]
        return copies.reshape(-1), places

    def put(self, numbers: IntArray, copies: FloatArray) -> None:
        """Write back the copies that `take` made of the same rows."""
        if self._map is None:
            return
        distinct = np.unique(numbers)
        for part in self._parts(distinct):
            self._rows[distinct[part]] = copies.reshape(-1, self._each)[part]

    def _parts(self, rows: IntArray) -> Iterator[slice]:
        """Yield slices of ascending rows whose mapped pages fit the limit; earlier pages are dropped."""
        assert self._map is not None  # noqa: S101 - for the type checker: callers checked it
        most = max(1, (self._limit or 0) // MAPPED_BYTES - 1)
        windows, start = rows * (self._each * 8) // MAPPED_BYTES, 0
        while start < len(rows):
            stop = int(np.searchsorted(windows, windows[start] + most))
            yield slice(start, stop)
            self._map.madvise(mmap.MADV_DONTNEED)  # what was written stays in the file
            start = stop

    def total(self, state: object) -> float:
        """Return the variables' term of the dual objective."""
        total, part = 0.0, max(1, SUMMED_ROWS // self._each)
        for start in range(0, len(self._rows), part):
            total += _kernel.dual_value(state, self._rows[start : start + part])
            if self._map is not None:
                self._map.madvise(mmap.MADV_DONTNEED)
        return total


class Spread:
    """Tracks the smallest and the largest weight, and refuses ratios that float64 cannot hold.

    ``bound`` is C, 1 / (l2 rows).

    Example:
        >>> Spread(1e300, 1e-303, np.array([0, 1]))
        Traceback (most recent call last):
        ...
        corgipile.errors.BadArgument: l2=1e-303 gives C = 1 / (l2 rows) = 1e+300; C must be 7.5e-155 to 1.3e+154
    """

    def __init__(
        self, bound: float, l2: float, classes: npt.NDArray[Any], class_weight: FloatArray | None = None
    ) -> None:
        if not MIN_C <= bound <= MAX_C:
            raise BadArgument(f"l2={l2:g} gives C = 1 / (l2 rows) = {bound:.3g}; C must be {MIN_C:.2g} to {MAX_C:.2g}")
        self._bound, self._classes, self._class_weight = bound, codes_of(classes), class_weight
        self._least, self._most = np.inf, 0.0
        if class_weight is not None and (class_weight > 0).any():
            self._check_classes(classes, class_weight)

    def _check_classes(self, classes: FloatArray, weights: FloatArray) -> None:
        heavy, light = int(np.argmax(weights)), int(np.argmin(np.where(weights > 0, weights, np.inf)))
        described = {at: f"rows of class {classes[at].item()!r} have weight {weights[at]:g}" for at in (light, heavy)}
        if weights[heavy] / MAX_WEIGHT_RATIO > weights[light]:
            raise BadArgument(f"class_weight: {described[heavy]}, {described[light]}; {RATIO_LIMIT}")
        for at, description in described.items():
            if self._out_of_range(weights[at]):
                raise BadArgument(f"class_weight: {description}; {self._range()}")

    def _out_of_range(self, count: float) -> bool:
        return not MIN_C <= self._bound * count <= MAX_C

    def _range(self) -> str:
        low, high = MIN_C / self._bound, min(MAX_C / self._bound, float(np.finfo(np.float64).max))
        return f"with this l2 solver='dual' needs 0, or {low:.2g} to {high:.2g}"

    def add(self, labels: npt.NDArray[Any], weights: npt.NDArray[Any], locate: Locate) -> None:
        """Take in row weights; rows that cannot be trained on are ignored.

        Raise BadValue if two differ too much for float64.
        """
        counts = weights.astype(np.float64)
        if self._class_weight is not None:
            at = np.minimum(np.searchsorted(self._classes, labels), len(self._classes) - 1)
            counts = counts * self._class_weight[at]
        good = np.isfinite(counts) & (counts > 0)
        if not good.any():
            return
        light, heavy = int(np.argmin(np.where(good, counts, np.inf))), int(np.argmax(np.where(good, counts, 0.0)))
        for row in (light, heavy):
            if self._out_of_range(counts[row]):
                raise BadValue(f"{locate(row)} has weight {counts[row]:g}; {self._range()}")
        if max(self._most, counts[heavy]) / MAX_WEIGHT_RATIO > min(self._least, counts[light]):
            row, other = (light, self._most) if counts[light] < self._most / MAX_WEIGHT_RATIO else (heavy, self._least)
            other = counts[light] if row == heavy and counts[light] < other else other
            raise BadValue(f"{locate(row)} has weight {counts[row]:g}, another row {other:g}; {RATIO_LIMIT}")
        self._least, self._most = min(self._least, counts[light]), max(self._most, counts[heavy])


class Dual(SGD):
    """A linear model trained by dual coordinate descent.

    ``rows`` is the number of the table's rows, ``limit`` the bytes of dual variables in memory. Each buffered row has
    ``passes`` visits; ``seed`` orders all but the first.
    """

    def __init__(
        self,
        kind: str,
        inputs: Features,
        classes: npt.NDArray[Any],
        *,
        rows: int,
        l2: float,
        limit: int | None = None,
        passes: int = 1,
        seed: int = 0,
        isa: int = -1,
        weighted: bool = False,
        class_weight: npt.NDArray[np.float64] | None = None,
        intercept: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(kind, inputs, classes, intercept=intercept, **settings)
        self.rows, self.l2, self.passes, self._seed = rows, l2, passes, seed
        bound = 1 / (l2 * rows) if l2 * rows > 0 else math.inf
        self._spread = Spread(bound, l2, classes, class_weight)
        self._dual = _kernel.dual_new(
            self.loss.code,
            np.ascontiguousarray(codes_of(classes)),
            number_bytes=inputs.dtype.itemsize,
            sparse=inputs.sparse,
            features=inputs.width,
            outputs=self.outputs,
            intercept=intercept,
            bound=bound,
            isa=isa,
            weighted=weighted,
            class_weight=class_weight,
        )
        self.variables = DualVariables(rows, self.outputs + (weighted or class_weight is not None), limit)
        self._calls, self.still = 0, 0.0

    def begin(self, rate: float = 0.0) -> None:
        """Begin a pass; the solver ignores the rate."""
        self.skipped = 0
        _kernel.dual_begin(self._dual)

    def learn(self, *parts: Any) -> None:
        """Learn from a `Step`; without its numbers only evaluate them.

        Raise as `SGD.learn`.
        """
        step = Step(*parts)
        numbers, visit = step.numbers, step.visit
        if step.weights is not None:
            self._spread.add(step.labels[visit], step.weights[visit], step.locate)
        values, places = (None, None) if numbers is None else self.variables.take(np.asarray(numbers, np.int64))
        for piece in self.pieces(step._replace(numbers=places)):
            self._train(piece, values)
        if numbers is not None and values is not None:
            self.variables.put(np.asarray(numbers, np.int64), values)

    def _train(self, step: Step, values: FloatArray | None) -> None:
        features, labels, weights = step.for_kernel()
        numbers = None if step.numbers is None else np.ascontiguousarray(step.numbers)
        good, visit, start = np.ones(len(step.visit), bool), step.visit, 0
        while True:
            left = None if numbers is None else numbers[start:]
            status, done = _kernel.dual_learn(self._dual, features, *labels, *weights, visit[start:], left, values)
            if not status:
                break
            start += done
            if not (self._skip and status in ROW_FAULTS):
                raise self._refused_in(step, status, start)
            good[start] = False
            self.skipped += 1
            start += 1
        if numbers is None or values is None or self.passes == 1:
            return
        if not good.all():
            visit, numbers = visit[good], numbers[good]
        self._calls += 1
        passes, key = self.passes - 1, random.derive(self._seed, self._calls, REVISIT_KEY)
        _kernel.dual_again(self._dual, features, *labels, *weights, visit, numbers, values, passes, self.still, key)

    def flush(self) -> Figures:
        """End a pass and return its figures."""
        rows, total, correct, weight, _ = _kernel.dual_figures(self._dual)
        return Figures(rows, total / (weight or 1), correct / (weight or 1), weight)

    def objective(self) -> tuple[float, float]:
        """Return the primal and dual objective of the last evaluated pass; the dual bounds all models from below."""
        _, total, _, _, square = _kernel.dual_figures(self._dual)
        penalty = self.l2 * square / 2
        return total / self.rows + penalty, self.l2 * self.variables.total(self._dual) - penalty

    def weights(self) -> tuple[FloatArray, FloatArray]:
        """Return copies of the weights, [outputs, features], and intercepts, [outputs], in the model's dtype."""
        coef, bias = np.empty((self.outputs, self.inputs.width)), np.empty(self.outputs)
        _kernel.dual_get(self._dual, coef, bias)
        return coef.astype(self.inputs.dtype), bias.astype(self.inputs.dtype)

    last = weights
