"""Resolution of paths, folders and globs to the files of one table."""

import glob
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from corgipile.errors import BadArgument, MissingFile, UnknownFormat
from corgipile.tables.formats.tfrecord.index import is_text_index
from corgipile.tables.io.files import PathLike, readable
from corgipile.tables.io.index_cache import INDEX_SUFFIX
from corgipile.tables.io.unpacking import PACKED_TEXT
from corgipile.tables.partitions import SourceFile, is_key, keys_of
from corgipile.tables.reach import links_to_parent
from corgipile.tables.registry import formats
from corgipile.tables.table_logs import refuse_logged

__all__ = ["expand_braces", "files_of", "format_named", "is_skipped", "kind_named", "refuse_others", "refuse_several"]

# Data files without a reader. In a folder with tables they raise an error, since skipping them would lose rows.
_OTHERS = (".dta", ".rec", ".sas7bdat", ".sav", ".xlsx")
_PACKED = (".bz2", ".gz", ".lz4", ".snappy", ".xz", ".zip", ".zst")
_HEAD = 16
_BRACES = re.compile(r"\{(?:(\d+)\.\.(\d+)|([^{},]*(?:,[^{},]*)+))\}")
_MAX_FILES = 1_000_000


def files_of(source: PathLike, format_name: str | None = None) -> list[SourceFile]:
    """Return the files of a path, a folder or a glob, sorted by name, with the partition keys of their folders.

    Files without rows are skipped: hidden files, names that begin with ``_`` such as ``_SUCCESS``, and indexes. Braces
    in the path expand in their order.

    Args:
        source: The path.
        format_name: The format of the files; None for any single format.

    Raises:
        MissingFile: No file matches.
        UnknownFormat: Files have several formats, or belong to a table with a log.
        BadArgument: Subfolders that are no partitions hold tables.
    """
    return [file for path in expand_braces(source) for file in _files_of(path, format_name)]


def expand_braces(path: PathLike) -> list[str]:
    """Expand the braces in a path as a shell does, unless the path exists.

    Raises:
        BadArgument: They expand to too many files.

    Example:
        >>> expand_braces("{train,val}-{08..10}.tar")[1:4]
        ['train-09.tar', 'train-10.tar', 'val-08.tar']
        >>> expand_braces("{a}.tar")
        ['{a}.tar']
    """
    text = os.fspath(path)
    match = None if Path(text).expanduser().exists() else _BRACES.search(text)
    if match is None:
        return [text]
    if match[1] is None:
        words = match[3].split(",")
    else:
        first, last = int(match[1]), int(match[2])
        if abs(last - first) >= _MAX_FILES:
            raise BadArgument(f"{text!r} must name at most {_MAX_FILES} files, got {abs(last - first) + 1}")
        width = max(map(len, match.group(1, 2))) if "0" in (match[1][0], match[2][0]) else 0
        step = 1 if first <= last else -1
        words = [f"{number:0{width}}" for number in range(first, last + step, step)]
    return [one for word in words for one in expand_braces(text[: match.start()] + word + text[match.end() :])]


def _files_of(source: str, format_name: str | None) -> list[SourceFile]:
    path = Path(source).expanduser().absolute()
    if path.is_dir():
        return _in_folder(path, format_name)
    if path.exists() or not glob.has_magic(os.fspath(source)):
        if format_name is None:
            refuse_logged([str(path)])
        return [SourceFile(str(path), keys_of(path, path.parent))]
    return _matching(path, format_name)


def format_named(path: PathLike) -> str | None:
    """Return the format of a file by its name, None if the name has no known suffix.

    Example:
        >>> format_named("train.tfrecord-00000-of-00100"), format_named("a.txt")
        ('tfrecord', None)
    """
    name = re.sub(r"-\d+-of-\d+$", "", Path(path).name).lower()
    return next((kind for kind, spec in formats().items() if name.endswith(spec.suffixes)), None)


def _in_folder(folder: Path, format_name: str | None) -> list[SourceFile]:
    kinds = formats() if format_name is None else {format_name: formats()[format_name]}
    if any(kind.log and kind.folder(folder, []) for kind in kinds.values()):
        return [SourceFile(str(folder), {})]
    refuse_logged([str(folder / "any")])
    entries = _entries(folder)
    known = {path: _kind(path) for path in entries if path.is_file()}
    direct = [str(path) for path, kind in known.items() if kind in kinds]
    if any(kind.folder(folder, direct) for kind in kinds.values()):
        return [SourceFile(str(folder), {})]
    below = [path for entry in entries for path in ([entry] if entry in known else _below(folder, [entry]))]
    files = _one_format(below, format_name, str(folder), known)
    if not files:
        suffixes = ", ".join(suffix for kind in kinds.values() for suffix in kind.suffixes)
        raise MissingFile(f"folder {folder} has no file ending in {suffixes}; give another folder")
    keys = cache(lambda parent: keys_of(parent / "any", folder))
    return [SourceFile(str(path), keys(path.parent)) for path in files]


def _matching(pattern: Path, format_name: str | None) -> list[SourceFile]:
    """Return the files that match a glob, or else the files of matching folders."""
    fixed = next(folder for folder in pattern.parents if not glob.has_magic(str(folder)))
    named = [part[0] for part in pattern.parts if part.startswith((".", "_"))]  # named in the pattern
    matches = sorted(Path(name) for name in glob.glob(str(pattern), recursive=True))  # noqa: PTH207 - may be absolute
    seen = [path for path in matches if named or not any(map(is_skipped, path.relative_to(fixed).parts))]
    files = [path for path in seen if path.is_file()]
    if not files and (folders := [path for path in seen if path.is_dir()]):
        return [file for folder in folders for file in _in_folder(folder, format_name)]
    files = [path for path in files if not _is_index(path)]
    refuse_logged(map(str, files))
    kinds = {path: _kind(path) for path in files} if format_name is None else {}
    if len({*kinds.values()} & formats().keys()) > 1:
        refuse_several(kinds, f"{pattern} matches")
    if not files:
        raise MissingFile(f"no file matches {str(pattern)!r}")
    return [SourceFile(str(path), keys_of(path, fixed)) for path in files]


def _entries(folder: Path) -> list[Path]:
    with readable(str(folder)):
        names = sorted(name for name in os.listdir(folder) if not is_skipped(name))  # noqa: PTH208 - paths sort slowly
    return [path for name in names if not _is_index(path := folder / name)]


def is_skipped(name: str) -> bool:
    """Return whether files and folders of this name are skipped, as Spark does."""
    return name.startswith(".") or (name.startswith("_") and not is_key(name)) or name.endswith(".crc")


def _is_index(path: Path) -> bool:
    return path.name.endswith(INDEX_SUFFIX) or is_text_index(str(path))


def _below(folder: Path, entries: Iterable[Path]) -> Iterator[Path]:
    """Yield the files among the entries of a folder and of its partitions."""
    for path in entries:
        if not path.is_dir():
            yield path
        elif is_key(path.name):
            refuse_logged([str(path / "any")])
            yield from () if links_to_parent(str(path)) else _below(path, _entries(path))
        elif not links_to_parent(str(path)) and (inner := _first_table(path)) is not None:
            raise BadArgument(
                f"{folder} has tables in subfolders that are no partitions, such as {inner}: "
                f"give '{folder}/*' to exclude them, '{folder}/**/*{inner.suffix}' to include them, or one folder"
            )


def _first_table(folder: Path) -> Path | None:
    """Return the first table in a folder that is no partition, None if there is none."""
    if any(kind.log and kind.folder(folder, []) for kind in formats().values()):
        return folder
    for path in _entries(folder):
        if path.is_dir():
            inner = None if links_to_parent(str(path)) else _first_table(path)
            if inner is not None:
                return inner
        elif _kind(path) in formats():
            return path
    return None


def _kind(path: Path) -> str | None:
    """Return the format of a file in a folder, the suffix of an unsupported data format, or None."""
    # Hive and Presto write files without suffixes.
    if "." not in path.name and format_named(path) is None and path.is_file():
        with readable(str(path)), path.open("rb") as file:
            head = file.read(_HEAD)
        named = (name for name, kind in formats().items() if (kind.magic and head.startswith(kind.magic)))
        return next(named, None) or next((name for name, kind in formats().items() if kind.knows(head)), None)
    return kind_named(path.name)


def kind_named(name: str) -> str | None:
    """Return the format of a file name, the suffix of an unsupported data format, or None.

    Example:
        >>> kind_named("a.csv"), kind_named("a.csv.gz"), kind_named("a.orc.gz"), kind_named("README.md")
        ('csv', 'csv', '.orc.gz', None)
    """
    path = PurePosixPath(name)
    end = path.suffix.lower()
    if name.lower().endswith(PACKED_TEXT):
        return format_named(path.stem)
    packed = end in _PACKED and (format_named(path.stem) or Path(path.stem).suffix.lower() in _OTHERS)
    return format_named(name) or (f"{path.suffixes[-2]}{end}" if packed else end if end in _OTHERS else None)


def _one_format(
    paths: Sequence[Path], format_name: str | None, where: str, known: Mapping[Path, str | None]
) -> list[Path]:
    """Return the files that are tables, all of one format; ``known`` has the formats of some."""
    kinds = {path: known[path] if path in known else _kind(path) for path in paths}
    if format_name is not None:
        return [path for path in paths if kinds[path] == format_name]
    tables = [path for path in paths if kinds[path] in formats()]
    if tables and len({kind for kind in kinds.values() if kind}) > 1:
        refuse_several(kinds, f"{where} has")
    return tables


def refuse_others(folder: Path, text: Iterable[Path]) -> None:
    """Raise UnknownFormat if a folder has tables of other formats besides these CSV files."""
    kinds = {path: _kind(path) for path in _entries(folder) if path.is_file()} | dict.fromkeys(text, "csv")
    if len({kind for kind in kinds.values() if kind}) > 1:
        refuse_several(kinds, f"{folder} has")


def refuse_several(kinds: Mapping[Any, str | None], where: str) -> None:
    """Raise UnknownFormat with the files of each format."""
    named: dict[str, list[str]] = defaultdict(list)
    for path, kind in kinds.items():
        if kind is not None:
            named[kind].append(PurePosixPath(path).name)
    listed = ", ".join(
        f"{names[0]}{f' and {len(names) - 1} others' if names[1:] else ''} ({kind})" for kind, names in named.items()
    )
    raise UnknownFormat(
        f"{where} files of several formats: {listed}; select the table by format=, a glob such as '*.arrow', or a list"
    )
