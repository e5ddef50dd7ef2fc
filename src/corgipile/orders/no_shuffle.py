"""No shuffle: rows in storage order, the baseline of all orders."""

from dataclasses import dataclass
from typing import ClassVar

from corgipile.orders.planned import Planned


@dataclass(frozen=True, kw_only=True)
class NoShuffle(Planned):
    """Visit rows in storage order.

    Example:
        >>> from corgipile.orders import Blocks, Key, visited_rows
        >>> order = NoShuffle(block=2).fit(5, 8, None)
        >>> [rows.tolist() for rows in visited_rows(order, Blocks(5, even=2), Key(seed=0))]
        [[0, 1], [2, 3], [4]]
    """

    name: ClassVar[str] = "no_shuffle"
    sequential: ClassVar[bool] = True
    kind: ClassVar[str] = "no_shuffle"
