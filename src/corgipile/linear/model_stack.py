"""Trains several models on the same rows, vectorised across similar models."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import Diverged
from corgipile.linear.sgd import SGD, FloatArray, Locate, SlotArray, plain
from corgipile.linear.sparse import Sparse
from corgipile.tables.table import type_code

__all__ = ["learn_labels", "learn_parts", "teams", "worth_a_thread"]


def worth_a_thread(model: SGD) -> int:
    """Return the number of similar models worth a thread: half of those that the kernel runs at once.

    Fewer take nearly as long.
    """
    return max(1, _kernel.sgd_at_once(model._state) // 2)  # noqa: SLF001 - a function of the class


def teams(models: Sequence[SGD], theirs: npt.NDArray[np.uint8], parts: npt.NDArray[np.uint8]) -> list[int]:
    """Return for each model how many models visit a row at once with it, outside its own part.

    Args:
        models: As in `learn_parts`.
        theirs: The part of each model.
        parts: The part of each row.
    """
    return _kernel.sgd_teams([model._state for model in models], theirs, parts)  # noqa: SLF001 - a function of the class


def learn_parts(
    models: Sequence[SGD],
    theirs: npt.NDArray[np.uint8],
    rows: FloatArray | Sparse,
    labels: FloatArray,
    visit: SlotArray,
    parts: npt.NDArray[np.uint8],
    locate: Locate,
    weights: FloatArray | None = None,
    *,
    own: bool,
    each: int,
) -> list[bool]:
    """Train models on the same rows, each without its part or only on it; return which diverged.

    Args:
        models: Models that do not standardise. Models that differ only in rates, penalties or means should be
            adjacent, and among them those of a part: the kernel vectorises across them.
        theirs: The part of each model.
        rows: Rows by slot.
        labels: Labels by slot.
        visit: Slots.
        parts: The part of each visit.
        locate: Names a row by its place in ``visit``.
        weights: Weights by slot.
        own: Whether models see their own part, or all others.
        each: Visits that all models make before the next ones.

    Raises:
        CorgiPileError: As in `SGD.learn`, except Diverged.
    """
    labels, weights = plain(labels), None if weights is None else plain(weights)
    code, weight_code = type_code(labels.dtype), 0 if weights is None else type_code(weights.dtype)
    features = (rows[0], rows[1], rows[2]) if isinstance(rows, Sparse) else rows
    states = [model._state for model in models]  # noqa: SLF001 - a function of the class
    results = _kernel.sgd_parts(states, theirs, own, features, labels, code, visit, weights, weight_code, parts, each)
    diverged = np.zeros(len(models), np.bool_)
    for at in [at for at, (status, _) in enumerate(results) if status]:
        places = np.flatnonzero((parts == theirs[at]) == own)
        of_model = partial(_locate_in, locate, places)
        try:
            models[at]._learn_all(rows, labels, weights, visit[places], of_model, results[at])  # noqa: SLF001
        except Diverged:
            diverged[at] = True
    return diverged.tolist()


def learn_labels(
    models: Sequence[SGD],
    rows: FloatArray | Sparse,
    numbers: npt.NDArray[np.integer[Any]],
    sets: npt.NDArray[np.bool_],
    visit: SlotArray,
    locate: Locate,
    weights: FloatArray | None = None,
    *,
    first: int = 0,
) -> dict[int, Diverged]:
    """Train models on the same rows, each on its own label; return divergences by model number.

    Args:
        models: Models that do not standardise; the kernel vectorises across models that differ only in weights.
        rows: Rows by slot.
        numbers: The set number of each row, by slot.
        sets: Whether a set has a label: [sets, labels].
        visit: Slots.
        locate: Names a row by its place in ``visit``.
        weights: Weights by slot.
        first: The label of the first model; others follow.

    Raises:
        CorgiPileError: As in `SGD.learn`, except Diverged.
    """
    diverged: dict[int, Diverged] = {}
    weights = None if weights is None else plain(weights)
    code, weight_code = type_code(numbers.dtype), 0 if weights is None else type_code(weights.dtype)
    features = (rows[0], rows[1], rows[2]) if isinstance(rows, Sparse) else rows
    states = [model._state for model in models]  # noqa: SLF001 - a function of the class
    results = _kernel.sgd_each(states, features, numbers, code, visit, weights, weight_code, sets, sets.shape[1], first)
    for at in [at for at, (status, _) in enumerate(results) if status]:
        # slots outside the visit may hold anything
        set_numbers = np.fmax(np.fmin(numbers, len(sets) - 1), 0).astype(np.intp)
        labels = sets[:, first + at].take(set_numbers).astype(np.float64)
        try:
            models[at]._learn_all(rows, labels, weights, visit, locate, results[at])  # noqa: SLF001
        except Diverged as error:
            diverged[first + at] = error
    return diverged


def _locate_in(locate: Locate, places: npt.NDArray[np.intp], place: int) -> str:
    return locate(int(places[place]))
