"""Learning-rate schedule: the step, the learning rate of each epoch, and when training stops."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from corgipile import _kernel
from corgipile.errors import BadArgument, Diverged
from corgipile.linear.divergence import Untrained
from corgipile.losses import loss_of
from corgipile.settings import Settings, declared
from corgipile.steps import STEPS, Step, step_of

if TYPE_CHECKING:
    from corgipile.linear.model import Model

__all__ = ["Schedule", "choose_step", "recent_losses", "schedule_of", "uses_average"]


@dataclass(frozen=True)
class Schedule:
    """Learning rates by epoch, and the stopping rule.

    Attributes:
        learning_rate: Learning rate of the first epoch.
        decay: Factor from epoch to epoch.
        l2: Strength of the L2 penalty.
        tolerance: Relative improvement of the loss below which training stops; None: never.
        step: The name of a step.
        l1: Strength of the L1 penalty.
        max_norm: Maximum norm of the weights; None: unlimited.
    """

    learning_rate: float
    decay: float
    l2: float
    tolerance: float | None
    step: str = "decay"
    l1: float = 0.0
    max_norm: float | None = None

    def __post_init__(self) -> None:
        if step_of(self.step).same and not self.l2 * self.learning_rate < 1:
            raise BadArgument(f"l2 must be 0 or more, and below 1 / learning_rate, got {self.l2}")

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch.

        Example:
            >>> Schedule(0.5, 0.5, 0.0, None).rate(2)
            0.125
        """
        return _kernel.sgd_rate(step_of(self.step).code, self.learning_rate, self.decay, epoch)

    def lowered(self) -> Self | None:
        """Return the schedule for continuing a diverging default rate; None if no lower rate is tried.

        Example:
            >>> Schedule(0.5, 0.5, 0.0, None).lowered().learning_rate
            0.1
        """
        rate = _kernel.sgd_lowered(self.learning_rate)
        return replace(self, learning_rate=rate) if rate else None

    def restarted(self, untrained: Untrained, model: int, loss: float) -> Self | None:
        """Return the schedule with which a model restarts after an epoch; None if it does not.

        ``loss`` is the loss of the epoch, NaN if weights overflowed.
        """
        zero, distance = untrained.untrained(model), untrained.label_distance(model)
        rate = _kernel.sgd_again(step_of(self.step).code, self.learning_rate, loss, zero, distance)
        return replace(self, learning_rate=rate) if rate else None

    def describe_restart(self, before: Self, of: str = "") -> str:
        """Describe the restart of a model, or of some ``of`` several."""
        rate, larger = before.learning_rate, self.learning_rate > before.learning_rate
        why = f"is small for labels this far from 0{of}" if larger else f"diverges{of}"
        return f"learning rate {rate:g} {why}; restarting at {self.learning_rate:g}"

    def enough(self, losses: Sequence[float], epoch: int) -> bool:
        """Return whether the loss improved too little for two epochs in a row.

        Raise Diverged if it grows or is not finite.

        Example:
            >>> Schedule(0.1, 1.0, 0.0, 0.01).enough([1.0, 0.5, 0.499, 0.499], 3)
            True
        """
        verdict = _kernel.sgd_verdict(np.array(losses), -1.0 if self.tolerance is None else self.tolerance)
        if verdict == _kernel.LOSS_GROWS:
            raise self.diverged(epoch, f"the loss is {losses[-1]:.6g}, after {losses[0]:.6g} in the first epoch")
        return verdict == _kernel.ENOUGH

    def diverged(self, epoch: int, why: str, *, standardized: bool = True) -> Diverged:
        """Return the error of a divergence, with a smaller rate as hint."""
        return Diverged(f"training diverged in epoch {epoch}: {why}; {self.hint(standardized=standardized)}")

    def hint(self, *, standardized: bool) -> str:
        """Return the hint against divergence."""
        more = "" if standardized else ", or standardize=True"
        rate = STEPS["decay"].usual if step_of(self.step).fixed else self.learning_rate
        return f"try learning_rate={rate / 10:g}{more}"


def recent_losses(history: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the losses that decide whether training stops: the first epoch's and the last three.

    Example:
        >>> recent_losses([{"loss": 5 - epoch} for epoch in range(5)])
        [5.0, 3.0, 2.0, 1.0]
    """
    return [float(record["loss"]) for record in (*history[: len(history) > 3], *history[-3:])]


def uses_average(given: Settings, kind: str, past: "Model | None" = None) -> bool:
    """Return whether the mean of the weights predicts: as set, else the default without a chosen step or rate."""
    if given.average is not None:
        return given.average
    if given.step is not None or _has_rates(given):
        return False
    return loss_of(kind).numbers if past is None else bool(past.params.get("average"))


def _has_rates(given: Settings) -> bool:
    return given.learning_rate is not None or given.decay != declared(Settings)["decay"].default


def choose_step(given: Settings, kind: str, past: "Model | None" = None) -> Step:
    """Return the step: the named one, that of a warm start, or the default."""
    if given.step is not None:
        return step_of(given.step)
    if past is not None:
        past_step = step_of(past.params.get("step", "decay"))
        return step_of("decay") if _has_rates(given) and past_step.fixed else past_step
    if _has_rates(given) or loss_of(kind).numbers:  # "auto" steps are too short for labels far from 0
        return step_of("decay")
    text_only = given.text is not None and given.features is None and given.interactions is None
    return step_of("adagrad" if text_only and given.ngrams > 1 else "auto")  # "auto" overfits rare n-grams


def schedule_of(given: Settings, tolerance: float | None = None, past: "Model | None" = None) -> Schedule:
    """Return the learning-rate schedule of a training run; raise BadArgument if settings conflict."""
    step = choose_step(given, given.model, past)
    if not step.decays and given.decay != declared(Settings)["decay"].default:
        raise BadArgument(f"decay needs step='decay', got decay={given.decay} with step={step.name!r}")
    if step.fixed and given.learning_rate not in (None, step.usual):  # a trained model's parameters hold step.usual
        raise BadArgument(f"step={step.name!r} sets the rate, got learning_rate={given.learning_rate}; leave it out")
    return Schedule(
        given.learning_rate or step.usual, given.decay, given.l2, tolerance, step.name, given.l1, given.max_norm
    )
