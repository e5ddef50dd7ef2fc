"""How gradients move weights: the table of kernel/sgd/steps.h, and how users name its lines."""

from dataclasses import dataclass
from typing import Any

from corgipile import _kernel
from corgipile.errors import BadArgument
from corgipile.suggestions import did_you_mean

__all__ = ["STEPS", "Step", "step_of"]


@dataclass(frozen=True)
class Step:
    """A step.

    Attributes:
        name: What users call it.
        usual: The learning rate of the first epoch, if nobody says another.
        decays: Whether the rate is multiplied by ``decay`` after each epoch.
        same: Whether all weights have one rate.
        fixed: Whether the rate is not to be chosen.
        code: Its number in the kernel.
    """

    name: str
    usual: float
    decays: bool
    same: bool
    fixed: bool
    code: int


STEPS = {line[0]: Step(*line, code) for code, line in enumerate(_kernel.STEPS)}


def step_of(name: Any) -> Step:
    """Return the step of a name.

    Raises:
        BadArgument: There is none.

    Example:
        >>> step_of("adagrad").same
        False
    """
    if isinstance(name, str) and name in STEPS:
        return STEPS[name]
    raise BadArgument(f"step must be one of {', '.join(STEPS)}, got {name!r}{did_you_mean(name, STEPS)}")
