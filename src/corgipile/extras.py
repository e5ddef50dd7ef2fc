"""Imports of optional packages."""

from importlib import import_module
from typing import Any

from corgipile.errors import MissingExtra

__all__ = ["extra"]


def extra(module: str, use: str, name: str, package: str | None = None) -> Any:
    """Import a module of an optional package.

    Args:
        module: The module.
        use: What needs it, such as ``"reading Avro"``.
        name: The extra of corgipile that installs it.
        package: The package's name, if it is not the module's.

    Raises:
        MissingExtra: It is not installed.

    Example:
        >>> extra("json", "reading JSON", "json").loads("[1]")
        [1]
    """
    try:
        return import_module(module)
    except ImportError:
        package = package or module.partition(".")[0]
        raise MissingExtra(f"{use} needs {package}: pip install 'corgipile[{name}]'") from None
