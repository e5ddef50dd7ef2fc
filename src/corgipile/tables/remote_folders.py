"""Resolution of URLs, bucket folders and globs to the objects of one table."""

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from corgipile.errors import BadArgument, MissingFile
from corgipile.stores.opening import list_objects
from corgipile.tables.folders import expand_braces, files_of, format_named, is_skipped, kind_named, refuse_several
from corgipile.tables.formats.images.folder import ABOUT
from corgipile.tables.formats.images.remote import ImageObjects
from corgipile.tables.formats.tfrecord.index import SUFFIXES as TFRECORDS
from corgipile.tables.formats.tfrecord.index import TEXT_SUFFIXES
from corgipile.tables.io.files import File
from corgipile.tables.io.index_cache import INDEX_SUFFIX
from corgipile.tables.io.remote import file_of, open_together
from corgipile.tables.partitions import SourceFile, is_key, keys_of
from corgipile.tables.registry import formats
from corgipile.tables.table_logs import refuse_logged_keys
from corgipile.urls import GLOB, RemotePath, local_path, parts_of

if TYPE_CHECKING:
    from corgipile.stores.buckets import Listed

__all__ = ["remote_files_of"]


class _Object(NamedTuple):
    """A listed object: its key, and its path below the listed folder."""

    key: str
    below: PurePosixPath


def remote_files_of(urls: Sequence[RemotePath], format_name: str | None = None) -> list[SourceFile]:
    """Return the objects of URLs, sorted by key, with the partition keys of their folders; see `folders.files_of`.

    Named objects are opened concurrently.

    Raises:
        MissingFile: No object matches.
        UnknownFormat: Objects have several formats.
        BadArgument: Subfolders that are no partitions hold tables.
    """
    paths = [url.sibling(one) for url in urls for one in expand_braces(url.full)]
    single = [path for path in paths if _is_single(path)]
    opened = dict(zip(single, open_together(single, missing=True), strict=True))
    return [file for path in paths for file in _files_of(path, opened.get(path), format_name)]


def _is_single(path: RemotePath) -> bool:
    """Return whether a URL names an object, or perhaps a folder without a trailing slash."""
    parts = parts_of(path.full)
    if path.system is None and parts.scheme == "file":
        return False
    return bool(parts.key) and not parts.key.endswith("/") and not GLOB.search(parts.key)


def _files_of(path: RemotePath, file: File | MissingFile | None, format_name: str | None) -> list[SourceFile]:
    local = local_path(path.full) if path.system is None else None
    if local is not None:
        return files_of(local, format_name)
    key = parts_of(path.full).key
    if isinstance(file, File):
        return [SourceFile(file, _keys(path, PurePosixPath(key).parent))]
    if file is None:
        return _matching(path, format_name) if GLOB.search(key) else _in_folder(path, format_name)
    if parts_of(path).web and path.system is None:
        raise file
    try:
        return _in_folder(path.sibling(f"{path.full}/"), format_name)
    except MissingFile:
        raise file from None


def _keys(path: RemotePath, root: PurePosixPath) -> dict[str, str | None]:
    """Return the partition keys of an object: from folders below ``root``, and from those directly above it."""
    return keys_of(f"/{parts_of(path.full).key}", PurePosixPath("/") / root)


def _in_folder(folder: RemotePath, format_name: str | None) -> list[SourceFile]:
    every = [*list_objects(folder)]
    listed = _objects_of(every, folder)
    refuse_logged_keys(str(folder), (str(one.below) for one in listed))
    if images := _images(folder, every, listed, format_name):
        return [SourceFile(cast("Any", images), {})]
    objects = [one for one in listed if not any(map(is_skipped, one.below.parts))]
    _refuse_others(folder, objects)
    tables = _one_format(folder, objects, format_name, f"{folder} has")
    if not tables:
        suffixes = ", ".join(
            suffix for name, kind in formats().items() for suffix in kind.suffixes if format_name in (None, name)
        )
        if not suffixes:
            raise BadArgument(
                f"{folder} must be a local folder to be opened as {format_name}; copy it by `aws s3 sync`, or open it "
                "by the library of the format"
            )
        raise MissingFile(f"folder {folder} has no object whose name ends in {suffixes}")
    return _with_keys(folder, tables, parts_of(folder.full).key)


def _matching(pattern: RemotePath, format_name: str | None) -> list[SourceFile]:
    parts = parts_of(pattern.full)
    pieces = parts.key.split("/")
    fixed = next(at for at, piece in enumerate(pieces) if GLOB.search(piece))
    root = "".join(f"{piece}/" for piece in pieces[:fixed])
    folder = pattern.sibling(f"{pattern.full.partition('://')[0]}://{_host(pattern)}/{root}")
    wanted, hidden = _expression("/".join(pieces[fixed:])), any(piece[:1] in ("_", ".") for piece in pieces)
    objects = _objects_of(list_objects(folder), folder)
    found = [
        one
        for one in objects
        if wanted.fullmatch(str(one.below)) and (hidden or not any(map(is_skipped, one.below.parts)))
    ]
    if not found:  # the pattern may match folders
        inside = [one for one in objects if any(wanted.fullmatch(str(above)) for above in list(one.below.parents)[:-1])]
        tables = {next(str(up) for up in reversed(one.below.parents) if wanted.fullmatch(str(up))) for one in inside}
        if tables:
            folders = [folder.sibling(f"{folder.full}{name}/") for name in sorted(tables)]
            return [one for matched in folders for one in _in_folder(matched, format_name)]
        raise MissingFile(f"no object matches {str(pattern)!r}")
    refuse_logged_keys(str(folder), (str(one.below) for one in objects))
    return _with_keys(folder, _one_format(folder, found, format_name, f"{pattern} matches", every=True), root)


def _host(path: RemotePath) -> str:
    return path.full.partition("://")[2].partition("/")[0]


def _expression(glob: str) -> re.Pattern[str]:
    """Return the regular expression of a glob whose ``*`` stops at a slash and whose ``**`` does not.

    Example:
        >>> [bool(_expression(glob).fullmatch("a/b/1.csv")) for glob in ("**/*.csv", "a/?/[0-9].csv", "*.csv")]
        [True, True, False]
    """
    pattern = ""
    for piece in re.findall(r"\*\*/|\*\*|\*|\?|\[[!^]?\]?[^\]]*\]|.", glob, re.DOTALL):
        if piece == "**/":
            pattern += "(?:.*/)?"
        elif piece == "**":
            pattern += ".*"
        elif piece in ("*", "?"):
            pattern += "[^/]*" if piece == "*" else "[^/]"
        elif piece[0] == "[" and len(piece) > 1:
            pattern += "[" + re.sub(r"^!", "^", piece[1:-1]).replace("\\", "\\\\") + "]"
        else:
            pattern += re.escape(piece)
    return re.compile(pattern, re.DOTALL)


def _images(
    folder: RemotePath, everything: "list[Listed]", listed: list[_Object], format_name: str | None
) -> ImageObjects | None:
    """Return the images of an image folder, None if a table other than text lies in it."""
    if format_name not in (None, "images"):
        return None
    direct = [one.below.name for one in listed if len(one.below.parts) == 1]
    if format_name is None and any(kind_named(name) and not name.lower().endswith(ABOUT) for name in direct):
        return None
    return ImageObjects(folder, everything) or None


def _objects_of(objects: "Iterable[Listed]", folder: RemotePath) -> list[_Object]:
    """Return the objects below a folder, without indexes and folder markers."""
    root = parts_of(folder.full).key
    keys = {one.key for one in objects if one.key.startswith(root) and not one.key.endswith("/")}
    return [_Object(key, PurePosixPath(key.removeprefix(root))) for key in sorted(keys) if not _is_index(key, keys)]


def _is_index(key: str, keys: set[str]) -> bool:
    stem, dot, end = key.rpartition(".")
    text = dot + end in TEXT_SUFFIXES and any(stem + suffix in keys for suffix in ("", *TFRECORDS))
    return text or key.endswith(INDEX_SUFFIX)


def _refuse_others(folder: RemotePath, objects: list[_Object]) -> None:
    """Raise BadArgument if tables lie in folders that are no partitions."""
    for one in objects:
        if not all(map(is_key, one.below.parent.parts)) and kind_named(one.below.name):
            raise BadArgument(
                f"{folder} has tables in subfolders that are no partitions, such as {one.below}: "
                f"give '{folder}*' to exclude them, '{folder}**/*{one.below.suffix}' to include them, or one folder"
            )


def _kind(folder: RemotePath, one: _Object) -> str | None:
    """Return the format of an object, the suffix of an unsupported data format, or None."""
    if "." in one.below.name:
        return kind_named(one.below.name)
    named = format_named(one.below.name)
    if named is not None:
        return named
    file = file_of(_path(folder, one))  # Hive and Presto write names without suffixes
    head = file.read(0, min(16, file.size))
    matches = (name for name, kind in formats().items() if kind.magic and head.startswith(kind.magic))
    return next(matches, None) or next((name for name, kind in formats().items() if kind.knows(head)), None)


def _one_format(
    folder: RemotePath, objects: list[_Object], format_name: str | None, where: str, *, every: bool = False
) -> list[_Object]:
    """Return the objects that are tables, all of one format; with ``every``, also those of unknown format."""
    if format_name is not None and every:
        return objects
    kinds = {one: _kind(folder, one) for one in objects}
    if format_name is not None:
        return [one for one in objects if kinds[one] == format_name]
    tables = [one for one in objects if kinds[one] in formats()]
    if tables and len({kind for kind in kinds.values() if kind}) > 1:
        refuse_several({one.key: kind for one, kind in kinds.items()}, where)
    return objects if every else tables


def _path(folder: RemotePath, one: _Object) -> RemotePath:
    return folder.sibling(f"{folder.full.partition('://')[0]}://{_host(folder)}/{one.key}")


def _with_keys(folder: RemotePath, objects: list[_Object], root: str) -> list[SourceFile]:
    base = PurePosixPath(root.rstrip("/"))
    return [SourceFile(path, _keys(path, base)) for path in (_path(folder, one) for one in objects)]
