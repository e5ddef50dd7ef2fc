"""Modules imported on first use, so that ``import corgipile`` and each command load only what they need.

Declare one at the top of a module; type checkers see the import itself::

    if TYPE_CHECKING:
        from corgipile.stores import files
    else:
        files = lazy("corgipile.stores.files")
"""

from importlib import import_module
from typing import Any

__all__ = ["lazy"]


def lazy(name: str) -> Any:
    """Return a stand-in for a module that imports it when an attribute is read.

    Example:
        >>> lazy("fractions").Fraction(1, 2)
        Fraction(1, 2)
    """
    return _Lazy(name)


class _Lazy:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"lazy({self._name!r})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # tools that inspect modules look for these
            raise AttributeError(name)
        return getattr(import_module(self._name), name)
