"""Output files that never replace an input: `corgipile.outputs` for writers that read tables."""

import contextlib
import fnmatch
import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from corgipile import outputs
from corgipile.errors import WouldOverwrite
from corgipile.outputs import Kind, PathLike
from corgipile.tables.formats.images.folder import IMAGES
from corgipile.tables.formats.tfrecord.index import TEXT_SUFFIXES
from corgipile.tables.io.index_cache import INDEX_SUFFIX
from corgipile.tables.io.sources import files_read
from corgipile.tables.registry import formats
from corgipile.urls import is_url

__all__ = ["check_apart", "check_target", "replacing"]


@contextlib.contextmanager
def replacing(path: PathLike, kind: Kind, *, inputs: Iterable[Any] = (), overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary path as `corgipile.outputs.replacing` does, unless the file is an input.

    Args:
        path: File to write, or a link to it.
        kind: Kind of the new file.
        inputs: Sources read meanwhile: tables, paths, globs, folders, lists of these.
        overwrite: Replace a file of any kind, except inputs.

    Raises:
        WouldOverwrite: The path holds an input, or a file of another kind.
    """
    check_apart(path, inputs, follow=kind.follow)
    with outputs.replacing(path, kind, overwrite=overwrite) as temporary:
        yield temporary


def check_target(path: PathLike, kind: Kind, *, inputs: Iterable[Any] = (), overwrite: bool = False) -> Path:
    """Return the resolved path of an output, or raise an error before any work; arguments as for `replacing`."""
    outputs.refuse_url(path)
    check_apart(path, inputs, follow=kind.follow)
    return outputs.check_target(path, kind, overwrite=overwrite)


def check_apart(path: PathLike, inputs: Iterable[Any], *, follow: bool = True) -> None:
    """Raise WouldOverwrite if an output file, or with ``follow`` the target of its link, is one of the inputs.

    Example:
        >>> check_apart("/tmp/a.arrow", ["/tmp/b.arrow"])
    """
    if not is_url(path):
        with outputs.writing(path):
            _check_inputs(outputs.resolved(Path(path).expanduser(), follow=follow), inputs)


def _check_inputs(goal: Path, inputs: Iterable[Any]) -> None:
    for source in inputs:
        if _reads(source, goal):
            raise WouldOverwrite(f"{goal} is, or would become, one of the input files: give another path")


def _reads(source: Any, goal: Path) -> bool:
    """Return whether a source reads rows from a file."""
    if is_url(source):
        return False
    if isinstance(source, str | os.PathLike):
        return _path_reads(Path(source).expanduser().absolute(), goal)
    if isinstance(source, list | tuple):
        return any(_reads(part, goal) for part in source)
    return any(_path_reads(Path(path), goal) for path in _paths_of(source))


def _path_reads(path: Path, goal: Path) -> bool:
    if path.is_dir():
        return _folder_reads(path, goal)
    if path.exists():
        return any(_same(name, goal) for name in (path, *_indices_of(path)))
    return glob.has_magic(str(path)) and _glob_reads(path, goal)


def _folder_reads(path: Path, goal: Path) -> bool:
    """Return whether a file is in a table's folder under the name of a part, or hard-linked to a file there."""
    if goal.resolve().is_relative_to(path.resolve()) and _is_table_name(goal.name):
        return True
    if not goal.exists() or goal.stat().st_nlink == 1:
        return False  # no hard links
    names = (Path(root, name) for root, _, files in os.walk(path) for name in files)
    return any(_same(name, goal) for name in names)


def _glob_reads(pattern: Path, goal: Path) -> bool:
    if not glob.has_magic(str(pattern.parent)):
        pattern = pattern.parent.resolve() / pattern.name
    names_found = glob.glob(str(pattern), recursive=True)  # noqa: PTH207 - takes absolute patterns
    if any(_path_reads(Path(name), goal) for name in names_found):
        return True
    deep = "**" in pattern.parts
    return (deep or len(pattern.parts) == len(goal.parts)) and fnmatch.fnmatchcase(str(goal), str(pattern))


def _indices_of(path: Path) -> list[Path]:
    """Return the possible paths of a file's index."""
    return [path.with_name(stem + end) for stem in {path.name, path.stem} for end in (INDEX_SUFFIX, *TEXT_SUFFIXES)]


def _is_table_name(name: str) -> bool:
    return name.lower().endswith((*IMAGES, *(end for kind in formats().values() for end in kind.suffixes)))


def _same(path: Path, goal: Path) -> bool:
    try:
        return path.samefile(goal)
    except OSError:
        return path == goal


def _paths_of(table: Any) -> Iterator[str]:
    """Yield the paths of files and image folders that a table reads."""
    return (part.path for part in files_read(table))
