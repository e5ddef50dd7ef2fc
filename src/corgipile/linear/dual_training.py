"""Training by dual coordinate descent until the duality gap is within the tolerance."""

import math

import numpy as np

from corgipile.errors import BadArgument
from corgipile.linear import passes
from corgipile.linear.dual import KINDS, Dual
from corgipile.linear.fit import Meter, Trainer
from corgipile.linear.model import Model
from corgipile.linear.problem import Record, Task
from corgipile.linear.scaling import Learnt
from corgipile.linear.sgd import Figures, outputs_of
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.losses import loss_of, most_classes
from corgipile.settings import TrainArguments, changed, declared
from corgipile.sizes import Size, format_bytes, parse_bytes

__all__ = ["ORDER", "DualTraining", "check_settings", "divide_memory"]

DUAL_SETTINGS = {
    "model", "features", "label", "encode", "missing", "epochs", "l2", "memory", "seed", "intercept", "standardize",
}  # fmt: skip
DUAL_SETTINGS |= {"order", "tolerance", "on_bad", "test", "validation", "group", "save", "overwrite", "solver", "inner"}
DUAL_SETTINGS |= {"callback", "on_rows", "text", "interactions", "hash_bits", "ngrams", "weight", "class_weight"}
ORDER = "corgipile"  # fills all of memory, then visits it
MEMORY_DIVISOR, MIN_BYTES = 4, 4 << 20  # dual variables get this part of the budget, at least so many bytes
INNER, WHOLE_INNER = 10, 1000  # visits per buffered row; the second where all rows are buffered and a tolerance is set
ROW_BYTES = 16  # per row: its number in the buffer and in the visit; dual variables come on top
GAP_BACKOFF = 8  # after n epochs a failed gap measurement pauses the next for n / 8 epochs


def check_settings(given: TrainArguments) -> None:
    """Raise BadArgument for a setting of the other solver, or a loss without a dual."""
    if given.solver != "dual":
        if given.inner is not None:
            raise BadArgument(f"inner needs solver='dual', got inner={given.inner}")
        return
    for name, got in changed(given, [name for name in declared(type(given)) if name not in DUAL_SETTINGS]):
        raise BadArgument(f"{name} needs solver='sgd', got {got} with solver='dual'")
    if loss_of(given.model).name not in KINDS:
        raise BadArgument(f"with solver='dual' model must be one of {', '.join(KINDS)}, got {given.model!r}")


def divide_memory(given: TrainArguments, task: Task) -> tuple[Size | None, int | None]:
    """Divide the memory: return the bytes for rows and for dual variables; None: unlimited."""
    rows = len(task.source)
    if not given.l2 > 0:
        raise BadArgument(f"solver='dual' needs l2 above 0, got {given.l2}; for C = 1 use l2={1 / rows:.3g}")
    if given.memory is None:
        return None, None
    width = task.row_bytes
    memory = parse_bytes(given.memory, whole=rows * width)
    each = 1 if most_classes(task.kind) == 2 else outputs_of(task.kind, task.classes)
    each += task.weight is not None or task.class_weight_setting is not None
    size, share = rows * each * 8, memory // MEMORY_DIVISOR
    return max(1, int((memory - min(size, share)) * width / (width + ROW_BYTES + 8 * each))), max(share, MIN_BYTES)


class DualTraining(Trainer):
    """A training run by dual coordinate descent; ``share`` is the bytes of dual variables in memory."""

    def __init__(
        self, task: Task, feeder: BufferedReader, given: TrainArguments, params: Record, share: int | None
    ) -> None:
        params = params | {"solver": given.solver, "inner": given.inner or INNER}
        super().__init__(task, feeder, params, on_rows=given.on_rows)
        self._given, self._done = given, False
        self._next = 0  # first epoch in which the gap may be measured again
        self._whole = False  # whether the last pass buffered all rows at once
        self.dual = Dual(
            task.kind,
            task.inputs,
            task.classes,
            rows=len(feeder.table),
            l2=given.l2,
            limit=share,
            intercept=task.intercept,
            on_bad=task.on_bad,
            scaling=task.scaling,
            passes=given.inner or INNER,
            seed=given.seed,
            weighted=task.weight is not None,
            class_weight=task.class_weight,
        )
        if self.dual.variables.in_file:
            task.note(f"dual variables are in a file of {format_bytes(self.dual.variables.values.nbytes)}")

    def _epoch(self, epoch: int, *, last: bool) -> Record:
        meter = Meter(self._feeder)
        self.dual.still = math.ldexp(math.sqrt(self._given.tolerance or 0.0), -epoch)
        figures, (loss, bound) = self._pass(self._feeder, epoch, learn=True)
        gap = _gap(loss, bound)
        more = {"objective": loss, "gap": abs(gap)} if self._whole else {"running_gap": gap}
        record = meter.record(epoch, self.task.kind, figures, self.dual.skipped, bound=bound, **more)
        self._done = self._converged(record, last=last)
        return record

    def _note_outcome(self) -> None:
        tolerance = self._given.tolerance
        if tolerance is not None and self.history and self.history[-1]["gap"] > tolerance:
            self.task.note(f"the final duality gap is {self.history[-1]['gap']:.3g}, above tolerance={tolerance:g}")

    def _stops(self, record: Record) -> bool:
        return self._done

    def _converged(self, record: Record, *, last: bool) -> bool:
        """Measure the gap if the running gap is small enough or the epoch is the last; return whether it converged.

        The running gap is of weights that change during the pass, so it may be too small as well.
        """
        tolerance, epoch = self._given.tolerance, record["epoch"]
        if self._whole:
            return tolerance is not None and record["gap"] <= tolerance
        if not last and (tolerance is None or record["running_gap"] > tolerance or epoch < self._next):
            return False
        self._next = epoch + 1 + epoch // GAP_BACKOFF
        with passes.reader(self.task.inputs, self.task.table(), self.task.label, self.task.weight) as feeder:
            _, (objective, bound) = self._pass(feeder, 0, learn=False)
        record |= {"objective": objective, "gap": abs(_gap(objective, bound))}  # rounding can make it negative
        return tolerance is not None and record["gap"] <= tolerance

    def _pass(self, feeder: BufferedReader, epoch: int, *, learn: bool) -> tuple[Figures, tuple[float, float]]:
        """Return the figures of a pass, and its primal and dual objective; weights may change during the pass.

        If all rows are buffered at once, they are evaluated again after learning.
        """
        dual, task, evaluated = self.dual, self.task, None
        self._whole = False  # the steps of an order may differ by epoch
        dual.begin()
        for step in passes.steps(feeder, dual.inputs, task.label, task.weight, epoch, np.asarray if learn else None):
            whole = learn and len(step.visit) == len(feeder.table)
            if whole and self._given.inner is None and self._given.tolerance:
                dual.passes = WHOLE_INNER
            dual.learn(*step)
            if whole:
                self._whole, evaluated = True, dual.flush()
                dual.begin()
                dual.learn(*step[:5])
            if learn:
                self._on_rows(len(step.visit))
        return passes.check_figures(evaluated or dual.flush(), dual, feeder), dual.objective()

    def _current_model(self) -> Model:
        coef, bias = self.dual.weights()
        learnt, scaling = None, self.task.scaling
        if scaling is not None:
            learnt = Learnt(scaling, coef, bias)
            coef, bias = scaling.fold(coef, bias)
        return Model(self.task.kind, coef, bias, self.task.classes, self._params, self.history, learnt)


def _gap(objective: float, bound: float) -> float:
    """Return how far an objective can be above the optimum, relative to it; negative only by rounding.

    Example:
        >>> _gap(1.5, 1.0), _gap(1.0, 0.0)
        (0.5, inf)
    """
    return (objective - bound) / bound if bound > 0 else float("inf")
