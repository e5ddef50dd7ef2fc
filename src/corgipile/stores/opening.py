"""Opening and listing of objects by URL, with the library for their scheme."""

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from corgipile.errors import BadArgument
from corgipile.lazy import lazy
from corgipile.sizes import Size
from corgipile.stores.ranges import Ranges
from corgipile.urls import RemotePath, is_url, parts_of, redacted

if TYPE_CHECKING:
    from corgipile.stores import buckets, files, hub, objects
    from corgipile.stores import cache as disk_cache
    from corgipile.stores.buckets import Listed
else:  # these need asyncio, which local tables do not
    buckets, disk_cache = lazy("corgipile.stores.buckets"), lazy("corgipile.stores.cache")
    files, hub = lazy("corgipile.stores.files"), lazy("corgipile.stores.hub")
    objects = lazy("corgipile.stores.objects")

__all__ = ["list_objects", "listed_ranges", "located", "open_ranges"]

_ONE_SLASH = re.compile(r"(s3|gs|az|abfss?|https?|hf|file):/[^/]")
OBSTORE = ("s3", "gs", "az", "abfs", "abfss", "adl", "http", "https")


def open_ranges(path: RemotePath) -> tuple[Ranges, bytes]:
    """Open an object; return the reader of its ranges, and its last bytes if they were sent.

    Raises:
        MissingFile: The object does not exist.
        ReadFailed: The store refuses, or does not answer.
        MissingExtra: The library for it is not installed.
    """
    found, tail = objects.open_object(path) if _by_obstore(path) else (hub.open_file(path), b"")
    return (found if path.cache is None else _cached(found, path.cache)), tail


def list_objects(path: RemotePath) -> Iterator["Listed"]:
    """Yield the objects below a folder, whose URL ends with a slash, by their keys.

    Raises:
        BadArgument: Web servers cannot list files.
        ReadFailed: The store refuses.
    """
    parts = parts_of(path.full)
    if not _by_obstore(path):
        return files.listed(path)
    if parts.web and path.system is None:
        raise BadArgument(f"{path}: web servers cannot list files; pass their URLs, or use braces")
    bucket, key = buckets.bucket_of(path)
    return bucket.listed(key.rstrip("/"), path)


def listed_ranges(path: RemotePath, one: "Listed") -> Ranges:
    """Return the reader of a listed object; it sends no request until it is read."""
    if not _by_obstore(path):
        return files.FileRanges(path, one.size, one.etag)
    found = objects.ObjectRanges(path, buckets.Stated(one.size, one.etag, ""))
    return found if path.cache is None or not found.etag else _cached(found, path.cache)


def located(source: Any, filesystem: Any = None, cache: Any = None, cache_size: Any = None) -> Any:
    """Return a source with URLs, and paths on a file system, as `RemotePath` objects; the rest is unchanged.

    Args:
        source: A source for `corgipile.open`; fsspec files are replaced by their paths.
        filesystem: An obstore store or an fsspec file system of all paths.
        cache: Folder of the cache on disk, None for no cache.
        cache_size: Bytes of the cache.

    Raises:
        BadArgument: The file system is invalid, or a cache size has no folder.

    Example:
        >>> located(["s3://me:pw@bucket/a.csv", "b.csv"])
        ['s3://bucket/a.csv', 'b.csv']
    """
    if cache is None and cache_size is not None:
        raise BadArgument(f"cache_size={cache_size!r} needs cache=; pass a folder on a local disk")
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
            "pass the URL as a string"
        )
    return RemotePath(str(source), cache=cache) if is_url(source) else source


def _is_open(source: Any) -> bool:
    """Return whether a source is an fsspec file, open or not."""
    return hasattr(source, "fs") and callable(getattr(source.fs, "cat_file", None)) and hasattr(source, "path")


def _on(system: Any, path: str, cache: tuple[str, Size | None] | None) -> RemotePath:
    """Return the path of an object on a given obstore store or fsspec file system."""
    if buckets.is_obstore(system):
        kind = type(system).__name__.removesuffix("Store").lower()
        scheme = {"gcs": "gs", "azure": "az", "http": "https"}.get(kind, kind)
        config = getattr(system, "config", None) or {}
        place = config.get("bucket") or config.get("container_name") or ""
        return RemotePath(f"{scheme}://{place}/{path.lstrip('/')}", system=system, cache=cache)
    if callable(getattr(system, "cat_file", None)):
        shown = system.unstrip_protocol(path)
        return RemotePath(shown if is_url(shown) else f"fsspec://{shown}", system=system, cache=cache)
    raise BadArgument(f"filesystem must be an obstore store or an fsspec file system, got {type(system).__name__}")


def _by_obstore(path: RemotePath) -> bool:
    if path.system is not None:
        return buckets.is_obstore(path.system)
    return parts_of(path).scheme in OBSTORE


def _cached(ranges: Ranges, place: tuple[str, Size | None]) -> Ranges:
    return disk_cache.Cached(ranges, *place)
