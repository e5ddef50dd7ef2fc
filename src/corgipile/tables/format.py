"""Description of a table format."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from corgipile.tables.table import Table

__all__ = ["Format", "folder_format"]


class Format(NamedTuple):
    """Defines how files of a format are recognised and opened.

    Other packages add formats by an entry point of the group ``corgipile.formats`` that names a `Format`.

    Attributes:
        magic: First bytes of every file; empty for formats without magic bytes.
        suffixes: Name suffixes of its files in a folder.
        open: Opens one file.
        options: Options of ``open`` that apply.
        knows: Recognises a file by its first 16 bytes, for formats without magic bytes.
        agree: Gives several tables of one source the same columns.
        folder: Recognises a folder that is a table of this format; takes the names of its possible table files.
        log: Whether a log in the folder lists the live files, so that no file is a table alone.
        index_file: Writes the row index of a path with the given options and returns its path; None if the format
            needs no index.
        local: Whether files must be local, since a library reads them by their path.
    """

    magic: bytes
    suffixes: tuple[str, ...]
    open: Callable[..., Table]
    options: frozenset[str] = frozenset()
    knows: Callable[[bytes], bool] = lambda head: False  # noqa: ARG005 - the signature is fixed
    agree: Callable[[Sequence[Table]], list[Table]] = list
    folder: Callable[[Path, Sequence[str]], bool] = lambda path, files: False  # noqa: ARG005 - as above
    index_file: Callable[..., str] | None = None
    log: bool = False
    local: bool = False


def folder_format(
    table: Callable[..., Table],
    knows: Callable[[Path], bool],
    *options: str,
    suffixes: tuple[str, ...] = (),
    log: bool = False,
) -> Format:
    """Return the format of tables that are folders, recognised by ``knows``."""
    return Format(b"", suffixes, table, frozenset(options), folder=lambda path, _files: knows(path), log=log)
