"""The losses that models are trained by: the table of kernel/sgd/losses.h, and how users name them."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from corgipile import _kernel
from corgipile.errors import BadArgument
from corgipile.suggestions import did_you_mean

__all__ = ["LOSSES", "NAMES", "Loss", "check_kind", "loss_of", "most_classes", "quoted"]


@dataclass(frozen=True)
class Loss:
    """A loss.

    Attributes:
        name: What users call it; two losses may have one, where one of them takes two classes and the other more.
        labels: ``TWO_CLASSES``, ``CLASSES`` or ``NUMBERS`` of the kernel.
        probability: Whether its scores make probabilities.
        exponential: Whether it predicts the exponential of a score, not the score.
        not_negative: Whether labels below 0 are refused.
        of_mean: Whether the best constant is the mean of the labels.
        rest: Whether it tells each class from the rest: the sum of a loss of two classes over all.
        score: Name of the score of an epoch: ``"accuracy"`` or ``"r2"``.
        takes: The name of its parameter, if it has one.
        below: What the parameter lies below, and above 0.
        code: Its number in the kernel.
        parameter: The value of its parameter; 0 where it has none.
    """

    name: str
    labels: int
    probability: bool
    exponential: bool
    not_negative: bool
    of_mean: bool
    rest: bool
    score: str
    takes: str | None
    below: float
    code: int
    parameter: float = 0.0

    @property
    def numbers(self) -> bool:
        """Say whether it predicts numbers."""
        return self.labels == _kernel.NUMBERS

    @property
    def per_class(self) -> bool:
        """Say whether it has a score a class; else it has one."""
        return self.labels == _kernel.CLASSES


LOSSES = tuple(Loss(*line, code) for code, line in enumerate(_kernel.LOSSES))
NAMES = tuple(dict.fromkeys(loss.name for loss in LOSSES))


def loss_of(kind: Any, classes: int = 2) -> Loss:
    """Return the loss of a kind of model, for so many classes.

    Args:
        kind: A name; where the loss has a parameter, perhaps with a colon and its value.
        classes: How many classes there are.

    Raises:
        BadArgument: It is no kind of model.

    Example:
        >>> loss_of("svm").per_class, loss_of("svm", 3).per_class
        (False, True)
    """
    if not isinstance(kind, str) or "\0" in kind:
        raise BadArgument(f"model must be one of {', '.join(NAMES)}, got {kind!r}")
    return _loss_of(kind, classes)


@lru_cache(64)  # asked for every few thousand rows that are predicted
def _loss_of(kind: str, classes: int) -> Loss:
    how, code, parameter = _kernel.sgd_loss(kind, classes)
    if how == _kernel.LOSS_UNKNOWN:
        raise BadArgument(f"model must be one of {', '.join(NAMES)}, got {kind!r}{did_you_mean(kind, NAMES)}")
    found = LOSSES[code]
    if how == _kernel.LOSS_TAKES_NONE:
        raise BadArgument(f"a {found.name} model has no parameter, got {kind!r}")
    if how == _kernel.LOSS_BAD_PARAMETER:
        raise BadArgument(f"{found.takes} of a {found.name} model must be {_bounds(found)}, got {kind!r}")
    return Loss(*_kernel.LOSSES[code], code, parameter)


def _bounds(loss: Loss) -> str:
    return f"above 0 and below {loss.below:g}" if math.isfinite(loss.below) else "a finite number above 0"


def check_kind(model: Any) -> None:
    """Raise BadArgument for what is no kind of model."""
    loss_of(model)


def most_classes(kind: str) -> int:
    """Return how many classes the models of a kind can tell apart.

    Example:
        >>> most_classes("logistic"), most_classes("svm"), most_classes("linear")
        (2, 65536, 0)
    """
    name = loss_of(kind).name
    most = {_kernel.TWO_CLASSES: 2, _kernel.CLASSES: _kernel.MOST_CLASSES, _kernel.NUMBERS: 0}
    return max(most[loss.labels] for loss in LOSSES if loss.name == name)


def quoted(**facts: Any) -> list[str]:
    """Return the names of losses of which some facts hold, in quotes.

    Example:
        >>> quoted(probability=True)
        ['"logistic"', '"softmax"', '"ovr_logistic"']
    """
    holds = [loss for loss in LOSSES if all(getattr(loss, fact) == value for fact, value in facts.items())]
    return [f'"{name}"' for name in dict.fromkeys(loss.name for loss in holds)]
