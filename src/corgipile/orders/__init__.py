"""Visit orders: every shuffle strategy is a short program of steps over row numbers.

Three published strategies are physical re-layouts: `corgipile.reshuffle` writes the table once, and an order of this
package reads it. They are Shuffle Once (``"two-pass"``, then `NoShuffle`), BMF (``"bmf"``, then `BlockOnly`) and
Corgi2 (``"corgi2"``, then `CorgiPile`).
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from corgipile.errors import BadArgument, StateMismatch
from corgipile.orders.block_only import BlockOnly
from corgipile.orders.corgipile import CorgiPile
from corgipile.orders.exchange import Exchange
from corgipile.orders.full import FullShuffle
from corgipile.orders.global_batches import GlobalBatches
from corgipile.orders.no_shuffle import NoShuffle
from corgipile.orders.order import Blocks, Key, Order, Shard, Step, seek, visited_rows
from corgipile.orders.partial import Partial
from corgipile.orders.reservoir import Reservoir
from corgipile.orders.riffle import Auto, Riffle
from corgipile.orders.sliding_window import SlidingWindow
from corgipile.orders.turns import turns_of
from corgipile.plugins import ORDERS, registered
from corgipile.suggestions import did_you_mean

__all__ = [
    "Auto",
    "BlockOnly",
    "Blocks",
    "CorgiPile",
    "Exchange",
    "FullShuffle",
    "GlobalBatches",
    "Key",
    "NoShuffle",
    "Order",
    "Partial",
    "Reservoir",
    "Riffle",
    "Shard",
    "SlidingWindow",
    "Step",
    "described",
    "instead",
    "named",
    "restored",
    "seek",
    "turns_of",
    "visited_rows",
]

NAMES: dict[str, Callable[[], Order]] = {
    "auto": Auto,
    "no_shuffle": NoShuffle,
    "block_only": BlockOnly,
    "corgipile": CorgiPile,
    "riffle": Riffle,
    "balanced": lambda: Riffle(balance="label"),
    "sliding_window": SlidingWindow,
    "reservoir": Reservoir,
    "full": FullShuffle,
    "partial": Partial,
}


def named(order: Order | str) -> Order:
    """Return an order by its name, or the order itself.

    Other packages add names by entry points of the group ``corgipile.orders``, which return an `Order` when called.

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
    make = NAMES.get(order) or registered(ORDERS).get(order)
    if make is None:
        names = [*NAMES, *registered(ORDERS)]
        raise BadArgument(f"no order is named {order!r}; the names are {', '.join(names)}{did_you_mean(order, names)}")
    return make()


def described(order: Order) -> dict[str, Any]:
    """Return the settings that determine an order's visits, for JSON.

    Example:
        >>> described(CorgiPile(block=10, buffer="1%"))
        {'name': 'corgipile', 'version': 2, 'block': 10, 'buffer': '1%'}
    """
    number = getattr(order, "version", None)
    version = {} if number is None else {"version": number}
    values = {spec.name: getattr(order, spec.name) for spec in fields(order)}  # type: ignore[arg-type]
    settings = {
        name: described(value) if hasattr(value, "steps") else value
        for name, value in values.items()
        if name not in ("row_bytes", "ahead", "spare", "parts", "batch")
    }
    return {"name": order.name} | version | settings


def restored(description: dict[str, Any]) -> Order:
    """Return the order that was `described`.

    Raises:
        StateMismatch: Another version of corgipile made it, whose order of this name visits rows differently.

    Example:
        >>> restored({"name": "corgipile", "version": 2, "block": 10, "buffer": 60})
        CorgiPile(block=10, buffer=60, ahead=1)
    """
    batches = description["name"] == GlobalBatches.name  # not a name that users may give
    order: Order = GlobalBatches() if batches else named(description["name"])
    sizes = {
        name: restored(value) if isinstance(value, dict) else value
        for name, value in description.items()
        if name not in ("name", "version")
    }
    order = replace(order, **sizes)  # type: ignore[type-var]
    version, own = description.get("version", 1), getattr(order, "version", None) or 1
    if version != own:
        title = getattr(order, "title", order.name)
        raise StateMismatch(
            f"state belongs to version {version!r} of order {title}, this is version {own}, which visits rows "
            "differently: finish the epoch with the corgipile that saved it, or begin the next epoch"
        )
    return order


def instead(stored: Any, own: dict[str, Any]) -> StateMismatch:
    """Make the error of a state with another order, both as `described`; it names the order to give.

    Example:
        >>> print(instead(described(CorgiPile(block=10)), described(NoShuffle())))
        state belongs to another order than no_shuffle: give order=CorgiPile(block=10, buffer=None, ahead=1)
    """
    try:
        order = restored(stored)
        if isinstance(order, GlobalBatches) and stored.get("rows") != own.get("rows"):
            return StateMismatch(
                f"state belongs to global batches of {order.rows} rows: "
                f'give global_batches="fixed", batch_size={order.rows}'
            )
        return StateMismatch(f"state belongs to another order than {own['name']}: give order={order!r}")
    except StateMismatch as error:
        return error
    except (BadArgument, KeyError, TypeError, AttributeError):
        return StateMismatch(f"state belongs to another order: it has {stored!r}, here it is {own!r}")
