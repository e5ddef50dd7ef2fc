"""Formats and orders of other packages, registered by entry points."""

import warnings
from functools import cache
from typing import Any

from corgipile.lazy import lazy

__all__ = ["FORMATS", "ORDERS", "registered"]

FORMATS, ORDERS = "corgipile.formats", "corgipile.orders"  # groups of entry points
metadata = lazy("importlib.metadata")  # needed for unknown names only


@cache
def registered(group: str) -> dict[str, Any]:
    """Load the objects that other packages registered in a group, by name; failing ones are skipped with a warning.

    Example:
        >>> isinstance(registered(ORDERS), dict)
        True
    """
    objects = {}
    for entry in metadata.entry_points(group=group):
        try:
            objects[entry.name] = entry.load()
        except Exception as error:  # noqa: BLE001 - other packages may raise anything
            warnings.warn(f"{group} {entry.name!r} ({entry.value}) cannot be loaded: {error!r}", stacklevel=2)
    return objects
