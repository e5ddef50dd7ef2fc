"""Link functions: probabilities and exponentials of scores."""

from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.losses import Loss

__all__ = ["exponential", "probabilities"]


def probabilities(loss: Loss, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the probabilities of the scores of one or several outputs, without overflow."""
    if scores.ndim == 1:
        scores = np.stack([np.zeros_like(scores), scores], axis=1)
    shares = np.array(scores, np.float64, order="C")
    _kernel.sgd_probabilities(loss.code, shares, shares.shape[1])
    return shares


def exponential(scores: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the exponentials of scores."""
    predicted = np.array(scores, np.float64, order="C")
    _kernel.sgd_exp(predicted)
    return predicted
