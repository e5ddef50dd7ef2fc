"""Step rules: the table of kernel/sgd/steps.h, and their names."""

from dataclasses import dataclass
from typing import Any

from corgipile import _kernel
from corgipile.errors import BadArgument
from corgipile.suggestions import did_you_mean

__all__ = ["STEPS", "Step", "step_of"]


@dataclass(frozen=True)
class Step:
    """A rule for the step from gradient to weights.

    Attributes:
        name: Its public name.
        usual: Default learning rate of the first epoch.
        decays: Whether the learning rate is multiplied by ``decay`` after each epoch.
        same: Whether all weights share one learning rate.
        fixed: Whether the learning rate cannot be chosen.
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
    """Return the step with a name.

    Raises:
        BadArgument: No step has this name.

    Example:
        >>> step_of("adagrad").same
        False
    """
    if isinstance(name, str) and name in STEPS:
        return STEPS[name]
    raise BadArgument(f"step must be one of {', '.join(STEPS)}, got {name!r}{did_you_mean(name, STEPS)}")
