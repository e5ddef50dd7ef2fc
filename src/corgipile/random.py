"""Random numbers of corgipile: pure functions of a key, from ``kernel/plan/permute.h``.

A key is a hash of numbers, never their sum: seed 7, epoch 1 and seed 8, epoch 0 are unrelated.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import BadArgument

__all__ = ["derive", "permute", "permute_at", "randoms", "shuffle", "unpermute"]

IntArray = npt.NDArray[np.int64]


def derive(*parts: int) -> int:
    """Hash up to 16 integers into a 64-bit key; order and count matter.

    Example:
        >>> derive(7, 1) == derive(7, 1), derive(7, 1) == derive(8, 0), derive(7, 1) == derive(1, 7)
        (True, False, False)
    """
    return _kernel.derive(*parts)


def shuffle(array: npt.NDArray[np.int32] | IntArray, key: int) -> None:
    """Shuffle a contiguous int32 or int64 array in place, Fisher-Yates with the numbers of ``key``.

    Example:
        >>> a = np.arange(5)
        >>> shuffle(a, derive(0))
        >>> sorted(a.tolist())
        [0, 1, 2, 3, 4]
    """
    _kernel.shuffle(array, key)


def permute(n: int, key: int, start: int, stop: int) -> IntArray:
    """Return positions ``start`` to ``stop`` of a keyed permutation of ``range(n)``, in O(1) additional memory.

    Args:
        n: Length of the permutation, at most 2^63.
        key: From `derive`.
        start: First position.
        stop: End position.

    Returns:
        int64[stop - start].

    Raises:
        BadArgument: The positions are outside the permutation.

    Example:
        >>> sorted(permute(6, derive(3), 0, 6).tolist())
        [0, 1, 2, 3, 4, 5]
    """
    if not 0 <= start <= stop <= n:
        raise BadArgument(f"positions must be from 0 to {n}, got {start} to {stop}")
    out = np.empty(stop - start, np.int64)
    _kernel.permute(n, key, start, out)
    return out


def permute_at(n: int, key: int, positions: IntArray) -> IntArray:
    """Return scattered positions of a keyed permutation of ``range(n)``, in the given order.

    Args:
        n: Length of the permutation, at most 2^63.
        key: From `derive`.
        positions: int64, any number.

    Raises:
        BadArgument: A position is outside the permutation.

    Example:
        >>> bool((permute_at(100, derive(3), np.array([42, 40])) == permute(100, derive(3), 40, 43)[[2, 0]]).all())
        True
    """
    return _apply(n, key, positions, _kernel.permute_at, "positions")


def unpermute(n: int, key: int, values: IntArray) -> IntArray:
    """Return the positions of values in a keyed permutation of ``range(n)``.

    Example:
        >>> unpermute(100, derive(3), permute(100, derive(3), 40, 43)).tolist()
        [40, 41, 42]
    """
    return _apply(n, key, values, _kernel.unpermute, "values")


def _apply(n: int, key: int, numbers: IntArray, move: Callable[[int, int, IntArray], None], what: str) -> IntArray:
    out = np.array(numbers, np.int64)
    if out.size and not 0 <= out.min() <= out.max() < n:
        raise BadArgument(f"{what} must be from 0 to {n - 1}, got {out.min()} to {out.max()}")
    move(n, key, out)
    return out


def randoms(key: int, start: int, count: int) -> npt.NDArray[np.uint64]:
    """Return numbers ``start`` to ``start + count`` of the stream of ``key``, uint64[count].

    Example:
        >>> bool((randoms(derive(1), 10, 5) == randoms(derive(1), 0, 15)[10:]).all())
        True
    """
    out = np.empty(count, np.uint64)
    _kernel.randoms(key, start, out)
    return out
