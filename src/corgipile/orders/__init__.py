"""Which rows next: every shuffle strategy is a short program of steps over row numbers.

Three strategies of the field are physical re-layouts instead, written once by `corgipile.reshuffle` and then read by an
order of this package: Shuffle Once (``"two-pass"``, then `NoShuffle`), BMF (``"bmf"``, then `BlockOnly`) and Corgi2
(``"corgi2"``, then `CorgiPile`).
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from corgipile.errors import BadArgument
from corgipile.orders.base import Blocks, Key, Order, Step, seek, visited_rows
from corgipile.orders.blockonly import BlockOnly
from corgipile.orders.corgi import CorgiPile
from corgipile.orders.full import FullShuffle
from corgipile.orders.noshuffle import NoShuffle
from corgipile.orders.riffle import Riffle
from corgipile.orders.streaming import Reservoir, SlidingWindow

__all__ = [
    "BlockOnly",
    "Blocks",
    "CorgiPile",
    "FullShuffle",
    "Key",
    "NoShuffle",
    "Order",
    "Reservoir",
    "Riffle",
    "SlidingWindow",
    "Step",
    "described",
    "named",
    "restored",
    "seek",
    "visited_rows",
]

NAMES: dict[str, Callable[[], Order]] = {
    "no_shuffle": NoShuffle,
    "block_only": BlockOnly,
    "corgipile": CorgiPile,
    "riffle": Riffle,
    "balanced": lambda: Riffle(balance="label"),
    "sliding_window": SlidingWindow,
    "reservoir": Reservoir,
    "full": FullShuffle,
}


def named(order: Order | str) -> Order:
    """Return an order by its name, or the order itself.

    Raises:
        BadArgument: No order has this name.

    Example:
        >>> named("balanced").balance
        'label'
    """
    if not isinstance(order, str):
        if isinstance(order, type) or not hasattr(order, "steps"):
            raise BadArgument(f"order must be a name or an order such as Riffle(), got {order!r}")
        return order
    if order not in NAMES:
        raise BadArgument(f"no order is named {order!r}; the names are {', '.join(NAMES)}")
    return NAMES[order]()


def described(order: Order) -> dict[str, Any]:
    """Return what decides which rows an order visits when, for JSON.

    Example:
        >>> described(CorgiPile(block=10, buffer="1%"))
        {'name': 'corgipile', 'block': 10, 'buffer': '1%'}
    """
    fields = asdict(order)  # type: ignore[call-overload]
    return {"name": order.name} | {name: value for name, value in fields.items() if name not in ("row_bytes", "ahead")}


def restored(description: dict[str, Any]) -> Order:
    """Return the order that was `described`.

    Example:
        >>> restored({"name": "corgipile", "block": 10, "buffer": 60})
        CorgiPile(block=10, buffer=60, ahead=1)
    """
    fields = {name: value for name, value in description.items() if name != "name"}
    return replace(named(description["name"]), **fields)  # type: ignore[type-var]
