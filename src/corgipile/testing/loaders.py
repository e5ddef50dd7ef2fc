"""The laws of iterables of batches that can be stopped and resumed."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from corgipile.testing.laws import holds

__all__ = ["check_loader"]


def check_loader(make: Callable[[], Any], stops: Iterable[int] = (0, 1, 2, 5)) -> None:
    """Check that a loader repeats its epoch, and resumes from any batch as if it had not been stopped.

    States pass through JSON, since that is how they are stored.

    Args:
        make: Creates a loader; two of them must be equal.
        stops: Numbers of batches after which an epoch is stopped.

    Raises:
        LawBroken: Batches differ from those of an epoch without a stop.

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
        _compare(map(_copied, again), whole[stop:], f"a loader resumed after {stop} batches")


def _copied(batch: Any) -> Any:
    """Copy a batch, since loaders may reuse arrays."""
    return {name: np.array(column) for name, column in batch.items()} if isinstance(batch, dict) else batch


def _compare(found: Iterable[Any], expected: list[Any], who: str) -> None:
    batches = list(found)
    holds(len(batches) == len(expected), otherwise=f"{who} must yield {len(expected)} batches, got {len(batches)}")
    for number, (one, other) in enumerate(zip(batches, expected, strict=True)):
        holds(_equal(one, other), otherwise=f"{who} must repeat batch {number}, got other rows")


def _equal(one: Any, other: Any) -> bool:
    if not isinstance(one, dict):
        return bool(one == other)
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
