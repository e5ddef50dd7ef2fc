"""Losses of models: the table of kernel/sgd/losses.h, and their names."""

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
        name: Its public name; two losses may share one, for two classes and for more.
        labels: ``TWO_CLASSES``, ``CLASSES`` or ``NUMBERS`` of the kernel.
        probability: Whether scores become probabilities.
        exponential: Whether it predicts the exponential of a score instead of the score.
        not_negative: Whether labels below 0 are refused.
        of_mean: Whether the best constant is the mean of the labels.
        rest: Whether it is one-vs-rest: the sum of a binary loss over all classes.
        score: Name of the score of an epoch: ``"accuracy"`` or ``"r2"``.
        takes: Name of its parameter, if it has one.
        below: Upper bound of the parameter, which is above 0.
        code: Its number in the kernel.
        parameter: Value of its parameter; 0 without one.
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
        """Return whether it predicts numbers."""
        return self.labels == _kernel.NUMBERS

    @property
    def per_class(self) -> bool:
        """Return whether it has one score per class; else it has a single one."""
        return self.labels == _kernel.CLASSES


LOSSES = tuple(Loss(*line, code) for code, line in enumerate(_kernel.LOSSES))
NAMES = tuple(dict.fromkeys(loss.name for loss in LOSSES))


def loss_of(kind: Any, classes: int = 2) -> Loss:
    """Return the loss of a kind of model: a name, with a colon and a value if the loss has a parameter.

    Raises:
        BadArgument: It is not a kind of model.

    Example:
        >>> loss_of("svm").per_class, loss_of("svm", 3).per_class
        (False, True)
    """
    if not isinstance(kind, str) or "\0" in kind:
        raise BadArgument(f"model must be one of {', '.join(NAMES)}, got {kind!r}")
    return _loss_of(kind, classes)


@lru_cache(64)  # called every few thousand rows of a prediction
def _loss_of(kind: str, classes: int) -> Loss:
    how, code, parameter = _kernel.sgd_loss(kind, classes)
    if how == _kernel.LOSS_UNKNOWN:
        raise BadArgument(f"model must be one of {', '.join(NAMES)}, got {kind!r}{did_you_mean(kind, NAMES)}")
    loss = LOSSES[code]
    if how == _kernel.LOSS_TAKES_NONE:
        raise BadArgument(f"a {loss.name} model has no parameter, got {kind!r}")
    if how == _kernel.LOSS_BAD_PARAMETER:
        raise BadArgument(f"{loss.takes} of a {loss.name} model must be {_bounds(loss)}, got {kind!r}")
    return Loss(*_kernel.LOSSES[code], code, parameter)


def _bounds(loss: Loss) -> str:
    return f"above 0 and below {loss.below:g}" if math.isfinite(loss.below) else "a finite number above 0"


def check_kind(model: Any) -> None:
    """Raise BadArgument unless ``model`` is a kind of model."""
    loss_of(model)


def most_classes(kind: str) -> int:
    """Return the largest number of classes that models of a kind can distinguish.

    Example:
        >>> most_classes("logistic"), most_classes("svm"), most_classes("linear")
        (2, 65536, 0)
    """
    name = loss_of(kind).name
    most = {_kernel.TWO_CLASSES: 2, _kernel.CLASSES: _kernel.MOST_CLASSES, _kernel.NUMBERS: 0}
    return max(most[loss.labels] for loss in LOSSES if loss.name == name)


def quoted(**facts: Any) -> list[str]:
    """Return the quoted names of the losses with these properties.

    Example:
        >>> quoted(probability=True)
        ['"logistic"', '"softmax"', '"ovr_logistic"']
    """
    holds = [loss for loss in LOSSES if all(getattr(loss, fact) == value for fact, value in facts.items())]
    return [f'"{name}"' for name in dict.fromkeys(loss.name for loss in holds)]
