"""Files of any file system that fsspec knows: for places that obstore does not, such as ``hf://`` and ``sftp://``."""

import asyncio
import errno
import os
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, CorgiPileError, MissingExtra, MissingFile, ReadFailed
from corgipile.stores.buckets import Listed
from corgipile.stores.failures import Denied, Transient, missing, refused
from corgipile.stores.line import line
from corgipile.stores.plan import plan
from corgipile.stores.ranges import IntArray
from corgipile.stores.requests import Ask, answered, fetch
from corgipile.stores.urls import RemotePath, parts_of

__all__ = ["FileRanges", "listed", "open_file", "system_of"]

# What file systems call what changes with a file's content.
_TAGS = ("ETag", "etag", "md5Hash", "md5", "content_md5", "generation", "sha256", "blob_id", "checksum", "ino")
_PERMANENT = (errno.EISDIR, errno.ENOTDIR, errno.EINVAL, errno.ENAMETOOLONG)


def open_file(path: RemotePath) -> tuple["FileRanges", bytes]:
    """Open a file.

    Raises:
        MissingFile: There is none.
        MissingExtra: fsspec, or what it needs for this scheme, is not installed.
    """
    from corgipile.stores import hub  # noqa: PLC0415 - which derives from this

    if hub.is_hub(system_of(path)[0]):
        found = _said(path, lambda system, name: hub.open_file(path, system, name))
        if found is not None:
            return found, b""
    info = _said(path, lambda system, name: system.info(name))
    if info.get("type") == "directory":
        raise MissingFile(f"no file at {path}: it is a folder")
    if info.get("size") is None:
        raise ReadFailed(errno.ENOTSUP, f"{path}: how many bytes it has is not said, so ranges cannot be read")
    return FileRanges(path, int(info["size"]), _tag(info)), b""


def _tag(info: dict[str, Any]) -> str:
    """Return what changes with a file's content, if the file system says."""
    return next((f"{name}:{info[name]}" for name in _TAGS if info.get(name)), "")


class FileRanges:
    """Reads ranges of a file through fsspec; see `corgipile.stores.ranges.Ranges`.

    Args:
        path: Where it lies.
        size: Its bytes.
        etag: What changes when it does, if that is known.
    """

    def __init__(self, path: RemotePath, size: int, etag: str) -> None:
        self.path, self.size, self.etag = path, size, etag

    def __reduce__(self) -> tuple[Any, ...]:
        return FileRanges, (self.path, self.size, self.etag)

    def __repr__(self) -> str:
        return f"FileRanges({str(self.path)!r})"

    @property
    def url(self) -> str:
        """Return where it lies, without credentials."""
        return self.path

    def fetch(self, offsets: IntArray, lengths: IntArray, out: npt.NDArray[np.uint8], to: IntArray) -> None:
        """Read ranges, each to its place in ``out``."""
        from corgipile.stores.objects import check_inside  # noqa: PLC0415 - which opens by us

        check_inside(self, offsets, lengths)
        mine = line()
        mine.run(fetch(mine, self.path, self._asking(), plan(offsets, lengths, to, mine.times.latency), out))

    def whole(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Read a range by one request."""
        from corgipile.stores.objects import check_inside  # noqa: PLC0415 - as above

        check_inside(self, np.array([start]), np.array([stop - start]))
        mine = line()
        return np.frombuffer(mine.run(answered(mine, self.path, self._asking(), start, stop)), np.uint8)

    def _asking(self) -> Ask:
        """Return what asks for bytes."""
        from corgipile.stores import hub  # noqa: PLC0415 - which derives from this

        mine, (system, name) = line(), system_of(self.path)
        # Its files would read megabytes ahead, for each range anew.
        cat = partial(system.cat_file, cache_type="none") if hub.is_hub(system) else system.cat_file

        async def ask(start: int, stop: int) -> memoryview:
            loop = asyncio.get_running_loop()
            try:
                return memoryview(await loop.run_in_executor(mine.workers, cat, name, start, stop))
            except Exception as error:  # noqa: BLE001 - whatever the file system raises, as ours
                found = _failure(error, self.path)
            raise found

        return ask


def listed(path: RemotePath) -> Iterator[Listed]:
    """Yield the files below a folder, by what comes after the host in their URL."""
    _, root = system_of(path)
    for name, info in _said(path, lambda system, name: system.find(name, detail=True)).items():
        below = name.removeprefix(root.rstrip("/")).lstrip("/")
        yield Listed(parts_of(path.full).key + below, int(info.get("size") or 0), _tag(info))


def _said(path: RemotePath, ask: Any) -> Any:
    """Ask a file system for something, again where that may help."""
    mine, (system, name) = line(), system_of(path)
    said: list[Any] = []

    async def once(_start: int, _stop: int) -> memoryview:
        try:
            said.append(await asyncio.get_running_loop().run_in_executor(mine.workers, ask, system, name))
        except Exception as error:  # noqa: BLE001 - as above
            found = _failure(error, path)
            raise found from None
        return memoryview(b"")

    mine.run(answered(mine, path, once, 0, 0, patience=5.0))
    return said[0]


def _failure(error: Exception, path: RemotePath) -> BaseException:
    if isinstance(error, CorgiPileError | Transient):
        return error
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        from corgipile.stores import hub  # noqa: PLC0415 - as above

        return hub.failure(status, path)
    return _local_failure(error, path)


def _local_failure(error: Exception, path: RemotePath) -> BaseException:
    if isinstance(error, FileNotFoundError):
        return missing(path)
    if isinstance(error, PermissionError):
        return Denied("the file system says no")
    if isinstance(error, ImportError):
        return MissingExtra(f"{path}: {error}")
    if (isinstance(error, OSError) and error.errno in _PERMANENT) or isinstance(
        error, NotImplementedError | ValueError
    ):
        said = type(error).__name__ if re.search("[?@]", str(error)) else str(error)[:200]  # may have a signed URL
        return ReadFailed(getattr(error, "errno", None) or errno.EINVAL, f"{path}: {said}")
    return Transient(type(error).__name__)


def system_of(path: RemotePath) -> tuple[Any, str]:
    """Return the file system of a path, one a process, and the name of the file there."""
    mine = line()
    name = ("fsspec", parts_of(path.full)[:2], id(path.system) if path.system is not None else 0)
    with mine.lock:
        if name not in mine.kept:
            mine.kept[name] = _made(path)
        system = mine.kept[name]
    full = path.full
    return system, system._strip_protocol(full.removeprefix("fsspec://"))  # noqa: SLF001 - what fsspec names so


def _made(path: RemotePath) -> Any:
    try:
        import fsspec  # noqa: PLC0415 - optional
    except ImportError:
        raise MissingExtra(f"{path} is read through fsspec, which is not installed: pip install fsspec") from None
    given = path.system
    if given is not None:
        # Its threads, and connections, are those of the process that made it.
        return (
            given
            if getattr(given, "_pid", os.getpid()) == os.getpid()
            else type(given)(*given.storage_args, **given.storage_options)
        )
    scheme = parts_of(path).scheme
    try:
        system, _ = fsspec.core.url_to_fs(path.full)
    except ImportError as error:
        raise MissingExtra(f"{path}: {error}") from None
    except ValueError:
        known = "s3, gs, az, https, hf, file, and those of fsspec"
        raise BadArgument(f"{path}: no library here reads {scheme}://; {known} are read") from None
    except Exception as error:  # noqa: BLE001 - as above
        found = _failure(error, path)
    else:
        return system
    raise found if isinstance(found, CorgiPileError) else refused(path, str(found))
