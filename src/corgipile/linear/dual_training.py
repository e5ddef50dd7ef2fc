"""Training by dual coordinate descent: pass by pass, until the duality gap says that it is at the optimum."""

import math
import time
from collections.abc import Callable
from reprlib import repr as short

from corgipile.errors import BadArgument
from corgipile.linear import passes
from corgipile.linear.dual import KINDS, Dual
from corgipile.linear.model import Model
from corgipile.linear.scaling import Learnt
from corgipile.linear.sgd import Figures, outputs_of, rows_in
from corgipile.linear.training import Record, Task
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.losses import loss_of, most_classes
from corgipile.settings import TrainArguments, declared
from corgipile.sizes import Size, format_bytes, parse_bytes

__all__ = ["ORDER", "DualTraining", "check_settings", "divided"]

OURS = {"model", "features", "label", "encode", "missing", "epochs", "l2", "memory", "seed", "intercept", "standardize"}
OURS |= {"order", "tolerance", "on_bad", "test", "validation", "group", "save", "overwrite", "solver", "inner"}
OURS |= {"callback", "on_rows", "text", "interactions", "hash_bits", "ngrams", "weight", "class_weight"}
ORDER = "corgipile"  # fills all of memory, and then visits it
SHARE, LEAST = 4, 4 << 20  # of the budget one part is for dual variables, or so many bytes where that is more
INNER, WHOLE = 10, 1000  # visits of rows in memory, and where these are all and it is known when to end
NUMBERED = 16  # bytes: the number of a row in the buffer, and of one that is visited; its variables come on top
SELDOM = 8  # epochs of which the gap is measured in vain once


def check_settings(given: TrainArguments) -> None:
    """Refuse what does not go with the solver.

    Raises:
        BadArgument: A setting is of the other solver, or the loss has no dual.
    """
    if given.solver != "dual":
        if given.inner is not None:
            raise BadArgument(f"inner is for solver='dual', got inner={given.inner}")
        return
    for name, one in declared(type(given)).items():
        if name not in OURS and getattr(given, name) != one.default:
            raise BadArgument(
                f"{name} is for solver='sgd', got {name}={short(getattr(given, name))} with solver='dual'"
            )
    if loss_of(given.model).name not in KINDS:
        raise BadArgument(f"solver='dual' is for models of kind {', '.join(KINDS)}, got {given.model!r}")


def divided(given: TrainArguments, task: Task) -> tuple[Size | None, int | None]:
    """Divide the memory: return what is for rows, and what for dual variables; None: as much as is needed.

    Raises:
        BadArgument: There is no penalty; says what the usual one is.
    """
    rows = len(task.source)
    if not given.l2 > 0:
        raise BadArgument(f"solver='dual' needs l2 above 0, got {given.l2}; l2={1 / rows:.3g} is C = 1")
    if given.memory is None:
        return None, None
    width = task.row_bytes
    memory = parse_bytes(given.memory, whole=rows * width)
    each = 1 if most_classes(task.kind) == 2 else outputs_of(task.kind, task.classes)
    each += task.weight is not None or task.weighs is not None
    size, share = rows * each * 8, memory // SHARE
    return max(1, int((memory - min(size, share)) * width / (width + NUMBERED + 8 * each))), max(share, LEAST)


class DualTraining:
    """One training by dual coordinate descent.

    Args:
        task: What is learnt.
        feeder: The rows.
        given: What was asked for.
        params: What the model is to say of how it was trained.
        share: Bytes of dual variables in memory.
    """

    def __init__(
        self, task: Task, feeder: BufferedReader, given: TrainArguments, params: Record, share: int | None
    ) -> None:
        self.task, self.history = task, list[Record]()
        self._feeder, self._given = feeder, given
        self._params = params | {"solver": given.solver, "inner": given.inner or INNER}
        self._next = 0  # epoch in which the gap may be measured
        self._whole = False  # whether all rows were in memory at a time in the last pass
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

    def run(
        self,
        epochs: int,
        measure: Callable[[Model], Record] | None,
        callback: Callable[[Record], object],
        save: Callable[[Model], object] | None,
    ) -> Model:
        """Run so many epochs, or as many as the tolerance asks for, and return the model."""
        for epoch in range(epochs):
            record = self._epoch(epoch)
            done = self._near(record, last=epoch + 1 == epochs)
            if measure is not None:
                record |= measure(self.model())
            self.history.append(record)
            callback(record)
            if save is not None:
                save(self.model())
            if done:
                break
        tolerance = self._given.tolerance
        if tolerance is not None and self.history and self.history[-1]["gap"] > tolerance:
            self.task.note(f"the duality gap is {self.history[-1]['gap']:.3g} after the last epoch, not {tolerance:g}")
        model = self.model()
        if save is not None:
            save(model)
        return model

    def _epoch(self, epoch: int) -> Record:
        start, read = time.perf_counter(), self._feeder.bytes_read
        self.dual.still = math.ldexp(math.sqrt(self._given.tolerance or 0.0), -epoch)
        figures, (loss, bound) = self._pass(self._feeder, epoch, learn=True)
        gap = _gap(loss, bound)
        return {
            "epoch": epoch,
            **figures.record(self.task.kind),
            "rows": figures.rows,
            "seconds": time.perf_counter() - start,
            "bytes_read": self._feeder.bytes_read - read,
            "bound": bound,
            **({"objective": loss, "gap": abs(gap)} if self._whole else {"running_gap": gap}),
            **({"skipped": self.dual.skipped} if self.dual.skipped else {}),
        }

    def _near(self, record: Record, *, last: bool) -> bool:
        """Measure the gap where the losses of the pass say that it may be near enough, or it is the last time.

        Those are of the weights on their way, so they may say too little as well.
        """
        tolerance, epoch = self._given.tolerance, record["epoch"]
        if self._whole:
            return tolerance is not None and record["gap"] <= tolerance
        if not last and (tolerance is None or record["running_gap"] > tolerance or epoch < self._next):
            return False
        self._next = epoch + 1 + epoch // SELDOM
        with passes.reader(self.task.inputs, self.task.table(), self.task.label, self.task.weight) as feeder:
            _, (objective, bound) = self._pass(feeder, 0, learn=False)
        record |= {"objective": objective, "gap": abs(_gap(objective, bound))}  # below 0 it is not known better
        return tolerance is not None and record["gap"] <= tolerance

    def _pass(self, feeder: BufferedReader, epoch: int, *, learn: bool) -> tuple[Figures, tuple[float, float]]:
        """Return the figures of a pass, and the objective and the bound: of weights on their way, where they learn.

        Where all rows are in memory at a time, they are judged once more there.
        """
        dual, task, judged = self.dual, self.task, None
        self._whole = False  # orders may cut epochs in different ways
        dual.begin()
        for step, (visit, numbers) in enumerate(zip(feeder.epoch(epoch), feeder.rows(epoch), strict=True)):
            rows, labels = rows_in(feeder.buffer, dual.inputs, visit), feeder.buffer.dense(task.label)
            weights = None if task.weight is None else feeder.buffer.dense(task.weight)
            where, whole = passes.row_at(feeder, epoch, step), learn and len(visit) == len(feeder.table)
            if whole and self._given.inner is None and self._given.tolerance:
                dual.passes = WHOLE
            dual.learn(rows, labels, visit, where, weights, numbers if learn else None)
            if whole:
                self._whole, judged = True, dual.flush()
                dual.begin()
                dual.learn(rows, labels, visit, where, weights)
            if learn and self._given.on_rows is not None:
                self._given.on_rows(len(visit))
        return passes.checked(judged or dual.flush(), dual, feeder), dual.objective()

    def model(self) -> Model:
        """Return what was learnt so far, for features as they are."""
        coef, bias = self.dual.weights()
        learnt, scaling = None, self.task.scaling
        if scaling is not None:
            learnt = Learnt(scaling, coef, bias)
            coef, bias = scaling.fold(coef, bias)
        return Model(self.task.kind, coef, bias, self.task.classes, self._params, self.history, learnt)


def _gap(objective: float, bound: float) -> float:
    """Return how far an objective can be above the optimum, as a share of it; below 0 by no more than rounding.

    Example:
        >>> _gap(1.5, 1.0), _gap(1.0, 0.0)
        (0.5, inf)
    """
    return (objective - bound) / bound if bound > 0 else float("inf")
