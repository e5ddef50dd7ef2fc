"""CorgiPile: fill a buffer with random blocks, shuffle its rows, drain it (SIGMOD 2022, Algorithm 1)."""

from dataclasses import dataclass
from typing import ClassVar

from corgipile.orders.planned import Planned


@dataclass(frozen=True, kw_only=True)
class CorgiPile(Planned):
    """Load n random blocks, visit all their rows in random order, and repeat over all blocks.

    With ``ahead=1`` the next n blocks are loaded meanwhile, so memory holds 2n blocks and mixes n. As in the paper's
    implementations, a pass visits all rows: blocks are drawn without replacement across buffers.

    Example:
        >>> from corgipile.orders import Blocks, Key, visited_rows
        >>> order = CorgiPile(block=2, buffer=4).fit(8, 8, None)
        >>> first, second = visited_rows(order, Blocks(8, even=2), Key(seed=0))
        >>> sorted([*first.tolist(), *second.tolist()])
        [0, 1, 2, 3, 4, 5, 6, 7]
    """

    name: ClassVar[str] = "corgipile"
    kind: ClassVar[str] = "corgipile"
    version: ClassVar[int] = 2  # version 1 drew most orders of blocks with one parity
