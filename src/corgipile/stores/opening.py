"""Opens objects by their URL, and lists them: whichever library speaks to the place where they lie."""

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from corgipile.errors import BadArgument
from corgipile.sizes import Size
from corgipile.stores.ranges import Ranges
from corgipile.stores.urls import RemotePath, is_url, parts_of, redacted

if TYPE_CHECKING:
    from corgipile.stores.buckets import Listed

__all__ = ["list_objects", "listed_ranges", "located", "open_ranges"]

_ONE_SLASH = re.compile(r"(s3|gs|az|abfss?|https?|hf|file):/[^/]")
OBSTORE = ("s3", "gs", "az", "abfs", "abfss", "adl", "http", "https")


def open_ranges(path: RemotePath) -> tuple[Ranges, bytes]:
    """Open an object; return what reads its ranges, and its last bytes if they came along.

    Raises:
        MissingFile: There is none.
        ReadFailed: The store refuses, or does not answer.
        MissingExtra: The library for it is not installed.
    """
    from corgipile.stores import files, objects  # noqa: PLC0415 - with asyncio, which local tables do not need

    found, tail = objects.open_object(path) if _by_obstore(path) else files.open_file(path)
    return (found if path.cache is None else _cached(found, path.cache)), tail


def list_objects(path: RemotePath) -> Iterator["Listed"]:
    """Yield the objects below a folder, whose URL ends with a slash, by their keys.

    Raises:
        BadArgument: It is a web server, which does not tell.
        ReadFailed: The store refuses.
    """
    from corgipile.stores import buckets, files  # noqa: PLC0415 - as above

    parts = parts_of(path.full)
    if not _by_obstore(path):
        return files.listed(path)
    if parts.web and path.system is None:
        raise BadArgument(f"{path}: a web server does not say which files it has; give their URLs, or use braces")
    bucket, key = buckets.bucket_of(path)
    return bucket.listed(key.rstrip("/"), path)


def listed_ranges(path: RemotePath, one: "Listed") -> Ranges:
    """Return what reads an object that was listed: nothing is asked for until it is read."""
    from corgipile.stores import buckets, files, objects  # noqa: PLC0415 - as above

    if not _by_obstore(path):
        return files.FileRanges(path, one.size, one.etag)
    found = objects.ObjectRanges(path, buckets.Stated(one.size, one.etag, ""))
    return found if path.cache is None or not found.etag else _cached(found, path.cache)


def located(source: Any, filesystem: Any = None, cache: Any = None, cache_size: Any = None) -> Any:
    """Return a source in which URLs, and paths on a file system, are `RemotePath` objects; all else is as it was.

    Args:
        source: What `corgipile.open` takes; files of fsspec are what they are opened from.
        filesystem: A store of obstore, or a file system of fsspec, on which all paths are.
        cache: Folder of the cache on disk, None for none.
        cache_size: Bytes of the cache.

    Raises:
        BadArgument: The file system is none, or the size of a cache is given without its folder.

    Example:
        >>> located(["s3://me:pw@bucket/a.csv", "b.csv"])
        ['s3://bucket/a.csv', 'b.csv']
    """
    if cache is None and cache_size is not None:
        raise BadArgument(f"cache_size={cache_size!r} without cache=: a folder on a local disk is needed")
    kept = None if cache is None else (str(Path(cache).expanduser().absolute()), cache_size)
    return _located(source, filesystem, kept)


def _located(source: Any, filesystem: Any, cache: tuple[str, Size | None] | None) -> Any:
    if isinstance(source, list | tuple) and any(isinstance(one, str | os.PathLike) or _is_open(one) for one in source):
        return [_located(one, filesystem, cache) for one in source]
    if _is_open(source):
        return _on(source.fs, source.path, cache)
    if isinstance(source, RemotePath):
        return RemotePath(source, cache=cache)
    if filesystem is not None and isinstance(source, str | os.PathLike):
        return _on(filesystem, os.fspath(source), cache)
    if isinstance(source, str | PurePath) and _ONE_SLASH.match(str(source)):
        raise BadArgument(
            f"{redacted(str(source).replace(':/', '://', 1))!r} must be text, got a Path, which merges its slashes; "
            "give the URL as a string"
        )
    return RemotePath(str(source), cache=cache) if is_url(source) else source


def _is_open(source: Any) -> bool:
    """Say whether something is a file of fsspec, open or not."""
    return hasattr(source, "fs") and callable(getattr(source.fs, "cat_file", None)) and hasattr(source, "path")


def _on(system: Any, path: str, cache: tuple[str, Size | None] | None) -> RemotePath:
    """Return the path of an object on a store of obstore, or a file system of fsspec, that somebody made."""
    from corgipile.stores.buckets import is_obstore  # noqa: PLC0415 - as above

    if is_obstore(system):
        kind = type(system).__name__.removesuffix("Store").lower()
        scheme = {"gcs": "gs", "azure": "az", "http": "https"}.get(kind, kind)
        config = getattr(system, "config", None) or {}
        place = config.get("bucket") or config.get("container_name") or ""
        return RemotePath(f"{scheme}://{place}/{path.lstrip('/')}", system=system, cache=cache)
    if callable(getattr(system, "cat_file", None)):
        shown = system.unstrip_protocol(path)
        return RemotePath(shown if is_url(shown) else f"fsspec://{shown}", system=system, cache=cache)
    raise BadArgument(
        f"filesystem is {type(system).__name__}; a store of obstore, or a file system of fsspec, is right"
    )


def _by_obstore(path: RemotePath) -> bool:
    from corgipile.stores.buckets import is_obstore  # noqa: PLC0415 - as above

    if path.system is not None:
        return is_obstore(path.system)
    return parts_of(path).scheme in OBSTORE


def _cached(ranges: Ranges, cache: tuple[str, Size | None]) -> Ranges:
    from corgipile.stores.cache import Cached  # noqa: PLC0415 - few have one

    return Cached(ranges, *cache)
