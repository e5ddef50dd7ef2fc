"""Block only: blocks in random order, their rows in storage order (CorgiPile, section 7.3)."""

from dataclasses import dataclass
from typing import ClassVar

from corgipile.orders.planned import Planned


@dataclass(frozen=True, kw_only=True)
class BlockOnly(Planned):
    """Visit blocks in random order, their rows in storage order.

    Example:
        >>> from corgipile.orders import Blocks, Key, visited_rows
        >>> order = BlockOnly(block=2).fit(6, 8, None)
        >>> visits = [rows.tolist() for rows in visited_rows(order, Blocks(6, even=2), Key(seed=0))]
        >>> sorted(visits)
        [[0, 1], [2, 3], [4, 5]]
    """

    name: ClassVar[str] = "block_only"
    kind: ClassVar[str] = "block_only"
    version: ClassVar[int] = 2  # version 1 drew most orders of blocks with one parity

    @property
    def shuffles_rows(self) -> bool:
        """Return False: the rows of a block are visited in storage order."""
        return False
