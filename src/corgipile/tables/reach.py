"""Checks that files named in data lie in the table's own folder, unless the caller trusts the paths."""

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlparse

from corgipile.errors import BadArgument, UnknownFormat, UntrustedPath

__all__ = ["Trust", "links_to_parent", "local", "outside", "trusting", "trusts_paths", "within"]

Trust = Literal["paths"] | None
_trusted: ContextVar[bool] = ContextVar("_trusted", default=False)


@contextlib.contextmanager
def trusting(trust: Trust) -> Iterator[None]:
    """Make `within` accept any path in this context.

    Args:
        trust: ``"paths"``, or None to leave the rule as it is.

    Raises:
        BadArgument: ``trust`` has another value.
    """
    if trust not in ("paths", None):
        raise BadArgument(f"trust must be 'paths' or None, got {trust!r}")
    token = _trusted.set(trust == "paths" or _trusted.get())
    try:
        yield
    finally:
        _trusted.reset(token)


def trusts_paths() -> bool:
    """Return whether the caller trusts the paths in the data."""
    return _trusted.get()


def within(folder: Path, name: object, source: object) -> Path:
    """Return the path of a file that data refer to.

    The file may be a link to anywhere, since the user created it. The data cannot leave the folder through a link to
    another folder.

    Args:
        folder: The folder of the table.
        name: The name, relative to the folder or absolute.
        source: The file that names it, for errors.

    Raises:
        UntrustedPath: The name leads out of the folder.

    Example:
        >>> within(Path("/data"), "a/b.bin", "index.json").as_posix()
        '/data/a/b.bin'
        >>> within(Path("/data"), "../b.bin", "index.json")
        Traceback (most recent call last):
        ...
        corgipile.errors.UntrustedPath: index.json: a file must lie in the folder of the table, got '../b.bin'; ...
    """
    path = folder / name if isinstance(name, str) and name and "\0" not in name else None
    if path is not None and (_trusted.get() or _lies_in(folder, path)):
        return path
    raise outside(name, source)


def local(folder: Path, address: str, source: object) -> Path:
    """Return the path of a file that data refer to by path or ``file:`` URL; see `within`.

    Raises:
        UnknownFormat: The address is another kind of URL.
        UntrustedPath: The address leads out of the folder.
    """
    parts = urlparse(address)
    if parts.scheme not in ("", "file"):
        raise UnknownFormat(f"{folder} must have only local files, got {address}")
    return within(folder, unquote(parts.path) if parts.scheme else address, source)


def outside(name: object, source: object) -> UntrustedPath:
    """Return the error for a file name that leads out of a table's folder."""
    return UntrustedPath(
        f"{source}: a file must lie in the folder of the table, got {name!r}; "
        'pass trust="paths" (--open trust=paths) to allow any file'
    )


def links_to_parent(path: str) -> bool:
    """Return whether a path links to a folder that contains it, which would recurse forever."""
    target = os.path.realpath(path) if os.path.islink(path) else None  # noqa: PTH114 - much faster than Path
    return target is not None and any(os.path.realpath(above) == target for above in Path(path).parents)


def _lies_in(folder: Path, path: Path) -> bool:
    if path.name in ("", ".."):
        return False
    try:
        return path.parent.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # links that lead to themselves
        return False
