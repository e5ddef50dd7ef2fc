"""What a format is to those who open tables, and all that there are."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from corgipile.errors import BadArgument
from corgipile.plugins import FORMATS as GROUP
from corgipile.plugins import registered
from corgipile.tables.table import Table

__all__ = ["Format", "formats"]


class Format(NamedTuple):
    """Tells how a kind of file is known, and what opens it.

    Other packages add formats by an entry point of the group ``corgipile.formats`` that names a `Format`.

    Attributes:
        magic: First bytes of every such file; empty where there are none.
        suffixes: Endings of names by which files in a folder are found.
        open: Opens one file.
        options: Options of ``open`` that apply.
        knows: Says of a file's first 16 bytes whether it is one; for formats without magic.
        agree: Lets several tables that are to be one have the same columns.
        folder: Says whether a folder, in which files of these names may be tables, is itself one of this format.
        log: Whether a log in such a folder says which of its files count, so that none is a table by itself.
        index_file: Writes the index by which rows are found, of a path and options said of it; returns the index's
            path. None where none is needed.
    """

    magic: bytes
    suffixes: tuple[str, ...]
    open: Callable[..., Table]
    options: frozenset[str] = frozenset()
    knows: Callable[[bytes], bool] = lambda head: False  # noqa: ARG005 - the shape of such a function
    agree: Callable[[Sequence[Table]], list[Table]] = list
    folder: Callable[[Path, Sequence[str]], bool] = lambda path, files: False  # noqa: ARG005 - as above
    index_file: Callable[..., str] | None = None
    log: bool = False


@cache
def formats() -> Mapping[str, Format]:
    """Return all formats by name: ours, then those that other packages registered.

    Raises:
        BadArgument: A package registered something else, or under a name of ours.

    Example:
        >>> formats()["parquet"].suffixes
        ('.parquet', '.pq')
    """
    from corgipile.tables.formats import OURS  # noqa: PLC0415 - readers of all formats, which many programs never need

    others = registered(GROUP)
    for name, kind in others.items():
        if name in OURS or not isinstance(kind, Format):
            raise BadArgument(f"format {name!r} of another package must be a Format under a name of its own: {kind!r}")
    return {**OURS, **others}
