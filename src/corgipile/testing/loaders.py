"""The laws of whatever yields batches and can be stopped."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from corgipile.testing.laws import holds

__all__ = ["check_loader"]


def check_loader(make: Callable[[], Any], stops: Iterable[int] = (0, 1, 2, 5)) -> None:
    """Check that a loader repeats its epoch, and goes on from any batch as if it had not been stopped.

    States are written as JSON in between, since that is how they are kept.

    Args:
        make: Makes a loader; two of them must be alike.
        stops: Batches after which an epoch is left.

    Raises:
        LawBroken: Another batch comes than in an epoch that was not stopped.

    Example:
        >>> import corgipile as cp, pyarrow as pa
        >>> rows = cp.open(pa.table({"x": list(range(100))}))
        >>> check_loader(lambda: cp.Loader(rows, batch_size=8, order="riffle", seed=3))
    """
    whole = list(map(_copied, make()))
    _compare(map(_copied, make()), whole, "a second loader")
    for stop in stops:
        loader = make()
        batches = iter(loader)
        for _ in range(min(stop, len(whole))):
            next(batches)
        state = json.loads(json.dumps(loader.state_dict()))
        again = make()
        again.load_state_dict(state)
        _compare(map(_copied, again), whole[stop:], f"a loader that goes on after {stop} batches")


def _copied(batch: Any) -> Any:
    """Copy a batch: arrays may be used again for the next."""
    return {name: np.array(column) for name, column in batch.items()} if isinstance(batch, dict) else batch


def _compare(found: Iterable[Any], expected: list[Any], who: str) -> None:
    batches = list(found)
    holds(len(batches) == len(expected), otherwise=f"{who} gives {len(batches)} batches, not {len(expected)}")
    for number, (one, other) in enumerate(zip(batches, expected, strict=True)):
        holds(_equal(one, other), otherwise=f"{who} gives another batch {number}")


def _equal(one: Any, other: Any) -> bool:
    if not isinstance(one, dict):
        return bool(one == other)
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
