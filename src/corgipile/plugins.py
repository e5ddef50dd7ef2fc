"""Formats and orders of other packages, found by their entry points."""

import warnings
from functools import cache
from typing import Any

__all__ = ["FORMATS", "ORDERS", "registered"]

FORMATS, ORDERS = "corgipile.formats", "corgipile.orders"  # groups of entry points


@cache
def registered(group: str) -> dict[str, Any]:
    """Load what other packages registered in a group, by name; what cannot be loaded is left out with a warning.

    Example:
        >>> isinstance(registered(ORDERS), dict)
        True
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - not before a name is asked for

    found = {}
    for entry in entry_points(group=group):
        try:
            found[entry.name] = entry.load()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the other package's
            warnings.warn(f"{group} {entry.name!r} ({entry.value}) cannot be loaded: {error!r}", stacklevel=2)
    return found
