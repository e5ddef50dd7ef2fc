"""Models that learn from the same rows: those that are alike visit each of them at once."""

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
    """Return how many models that are like one are enough for a thread: half of those that visit a row at once.

    Fewer would take it nearly as long.
    """
    return max(1, _kernel.sgd_at_once(model._state) // 2)  # noqa: SLF001 - a function of the class


def teams(models: Sequence[SGD], theirs: npt.NDArray[np.uint8], parts: npt.NDArray[np.uint8]) -> list[int]:
    """Return for each model the number of those with whom it visits rows at once, of all parts but its own.

    Args:
        models: As of `learn_parts`.
        theirs: The part of each.
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
    """Let models all learn from the same rows, but for some; say which of them diverged.

    Args:
        models: They standardise nothing themselves. Those that differ in rates, penalties or means only should stand
            side by side, and among them those of a part: they can visit a row at once.
        theirs: The part of each.
        rows: Rows by slot.
        labels: Labels by slot.
        visit: Slots.
        parts: The part of each visit.
        locate: Names a row by its place in ``visit``.
        weights: What rows count for, by slot.
        own: Whether models see their own part, or all others.
        each: Visits that all make before the next ones come.

    Raises:
        CorgiPileError: As of `SGD.learn`, but for Diverged.
    """
    labels, weights = plain(labels), None if weights is None else plain(weights)
    code, also = type_code(labels.dtype), 0 if weights is None else type_code(weights.dtype)
    given = (rows[0], rows[1], rows[2]) if isinstance(rows, Sparse) else rows
    states = [model._state for model in models]  # noqa: SLF001 - a function of the class
    found = _kernel.sgd_parts(states, theirs, own, given, labels, code, visit, weights, also, parts, each)
    diverged = np.zeros(len(models), np.bool_)
    for at in [at for at, (status, _) in enumerate(found) if status]:
        places = np.flatnonzero((parts == theirs[at]) == own)
        of_model = partial(_located, locate, places)
        try:
            models[at]._learn_all(rows, labels, weights, visit[places], of_model, found[at])  # noqa: SLF001
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
    """Let models all learn from the same rows, each a label of its own; say what diverged, by the place of the model.

    Args:
        models: They standardise nothing themselves. Those that are alike but for their weights can visit a row at once.
        rows: Rows by slot.
        numbers: The set of labels of each, by slot.
        sets: Which labels are in a set: [sets, labels].
        visit: Slots.
        locate: Names a row by its place in ``visit``.
        weights: What rows count for, by slot.
        first: The label of the first model; those of the others follow it.

    Raises:
        CorgiPileError: As of `SGD.learn`, but for Diverged.
    """
    diverged: dict[int, Diverged] = {}
    weights = None if weights is None else plain(weights)
    code, also = type_code(numbers.dtype), 0 if weights is None else type_code(weights.dtype)
    given = (rows[0], rows[1], rows[2]) if isinstance(rows, Sparse) else rows
    states = [model._state for model in models]  # noqa: SLF001 - a function of the class
    known = _kernel.sgd_each(states, given, numbers, code, visit, weights, also, sets, sets.shape[1], first)
    for at in [at for at, (status, _) in enumerate(known) if status]:
        # slots that are not visited may hold anything
        known_sets = np.fmax(np.fmin(numbers, len(sets) - 1), 0).astype(np.intp)
        labels = sets[:, first + at].take(known_sets).astype(np.float64)
        try:
            models[at]._learn_all(rows, labels, weights, visit, locate, known[at])  # noqa: SLF001
        except Diverged as error:
            diverged[first + at] = error
    return diverged


def _located(locate: Locate, places: npt.NDArray[np.intp], place: int) -> str:
    return locate(int(places[place]))
