"""Description of a table format: how its files are recognised and opened."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from corgipile.tables.table import Table

__all__ = ["Format"]


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
