"""Files of any fsspec file system, for schemes that obstore does not support, such as ``hf://`` and ``sftp://``."""

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
from corgipile.stores.failures import Denied, Transient, missing, of_status, refused
from corgipile.stores.line import line
from corgipile.stores.objects import check_inside
from corgipile.stores.plan import plan
from corgipile.stores.ranges import IntArray
from corgipile.stores.requests import Ask, answered, fetch
from corgipile.urls import RemotePath, parts_of

__all__ = ["FileRanges", "is_hub", "listed", "open_file", "query", "system_of"]

# Names of metadata that change with a file's content.
_TAGS = ("ETag", "etag", "md5Hash", "md5", "content_md5", "generation", "sha256", "blob_id", "checksum", "ino")
_PERMANENT = (errno.EISDIR, errno.ENOTDIR, errno.EINVAL, errno.ENAMETOOLONG)


def open_file(path: RemotePath) -> "FileRanges":
    """Open a file.

    Raises:
        MissingFile: The file does not exist.
        MissingExtra: fsspec, or a package that it needs for this scheme, is not installed.
    """
    info = query(path, lambda system, name: system.info(name))
    if info.get("type") == "directory":
        raise MissingFile(f"no file at {path}: it is a folder")
    if info.get("size") is None:
        raise ReadFailed(errno.ENOTSUP, f"{path}: its size is unknown, so ranges cannot be read")
    return FileRanges(path, int(info["size"]), _tag(info))


def _tag(info: dict[str, Any]) -> str:
    """Return a tag that changes with a file's content, empty if unknown."""
    return next((f"{name}:{info[name]}" for name in _TAGS if info.get(name)), "")


class FileRanges:
    """Reads ranges of a file through fsspec; see `corgipile.stores.ranges.Ranges`.

    Args:
        path: Its location.
        size: Its bytes.
        etag: A tag that changes with its content, empty if unknown.
    """

    def __init__(self, path: RemotePath, size: int, etag: str) -> None:
        self.path, self.size, self.etag = path, size, etag

    def __reduce__(self) -> tuple[Any, ...]:
        return FileRanges, (self.path, self.size, self.etag)

    def __repr__(self) -> str:
        return f"FileRanges({str(self.path)!r})"

    @property
    def url(self) -> str:
        """Return its URL, without credentials."""
        return self.path

    def fetch(self, offsets: IntArray, lengths: IntArray, out: npt.NDArray[np.uint8], to: IntArray) -> None:
        """Read ranges, each to its place in ``out``."""
        check_inside(self, offsets, lengths)
        requester = line()
        requester.run(
            fetch(requester, self.path, self._asking(), plan(offsets, lengths, to, requester.times.latency), out)
        )

    def whole(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Read a range by one request."""
        check_inside(self, np.array([start]), np.array([stop - start]))
        requester = line()
        return np.frombuffer(requester.run(answered(requester, self.path, self._asking(), start, stop)), np.uint8)

    def _asking(self) -> Ask:
        """Return the function that requests bytes."""
        requester, (system, name) = line(), system_of(self.path)
        # The Hub's files would read megabytes ahead, again for each range.
        cat = partial(system.cat_file, cache_type="none") if is_hub(system) else system.cat_file

        async def ask(start: int, stop: int) -> memoryview:
            loop = asyncio.get_running_loop()
            try:
                return memoryview(await loop.run_in_executor(requester.workers, cat, name, start, stop))
            except Exception as error:  # noqa: BLE001 - file system errors of any kind are converted
                found = _failure(error, self.path)
            raise found

        return ask


def listed(path: RemotePath) -> Iterator[Listed]:
    """Yield the files below a folder, by the part of their URL after the host."""
    _, root = system_of(path)
    for name, info in query(path, lambda system, name: system.find(name, detail=True)).items():
        below = name.removeprefix(root.rstrip("/")).lstrip("/")
        yield Listed(parts_of(path.full).key + below, int(info.get("size") or 0), _tag(info))


def query(path: RemotePath, ask: Any) -> Any:
    """Query a file system; failures are retried for a while."""
    requester, (system, name) = line(), system_of(path)
    answers: list[Any] = []

    async def once(_start: int, _stop: int) -> memoryview:
        try:
            answers.append(await asyncio.get_running_loop().run_in_executor(requester.workers, ask, system, name))
        except Exception as error:  # noqa: BLE001 - as above
            found = _failure(error, path)
            raise found from None
        return memoryview(b"")

    requester.run(answered(requester, path, once, 0, 0, patience=5.0))
    return answers[0]


def _failure(error: Exception, path: RemotePath) -> BaseException:
    if isinstance(error, CorgiPileError | Transient):
        return error
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return of_status(status, path)
    return _local_failure(error, path)


def _local_failure(error: Exception, path: RemotePath) -> BaseException:
    if isinstance(error, FileNotFoundError):
        return missing(path)
    if isinstance(error, PermissionError):
        return Denied("the file system denies access")
    if isinstance(error, ImportError):
        return MissingExtra(f"{path}: {error}")
    if (isinstance(error, OSError) and error.errno in _PERMANENT) or isinstance(
        error, NotImplementedError | ValueError
    ):
        answers = (
            type(error).__name__ if re.search("[?@]", str(error)) else str(error)[:200]
        )  # may contain a signed URL
        return ReadFailed(getattr(error, "errno", None) or errno.EINVAL, f"{path}: {answers}")
    return Transient(type(error).__name__)


def is_hub(system: Any) -> bool:
    """Return whether an fsspec file system is the Hub's."""
    return (type(system).__module__ or "").partition(".")[0] == "huggingface_hub"


def system_of(path: RemotePath) -> tuple[Any, str]:
    """Return the file system of a path, one per process, and the file's name in it."""
    requester = line()
    name = ("fsspec", parts_of(path.full)[:2], id(path.system) if path.system is not None else 0)
    with requester.lock:
        if name not in requester.kept:
            requester.kept[name] = _open_system(path)
        system = requester.kept[name]
    full = path.full
    return system, system._strip_protocol(full.removeprefix("fsspec://"))  # noqa: SLF001 - fsspec has no public name for it


def _open_system(path: RemotePath) -> Any:
    try:
        import fsspec  # noqa: PLC0415 - optional
    except ImportError:
        raise MissingExtra(f"{path} needs fsspec, which is not installed: pip install fsspec") from None
    system_given = path.system
    if system_given is not None:
        # Threads and connections belong to the process that created the system.
        return (
            system_given
            if getattr(system_given, "_pid", os.getpid()) == os.getpid()
            else type(system_given)(*system_given.storage_args, **system_given.storage_options)
        )
    scheme = parts_of(path).scheme
    try:
        system, _ = fsspec.core.url_to_fs(path.full)
    except ImportError as error:
        raise MissingExtra(f"{path}: {error}") from None
    except ValueError:
        known = "s3, gs, az, https, hf, file, and those of fsspec"
        raise BadArgument(f"{path}: {scheme}:// is not supported; use one of {known}") from None
    except Exception as error:  # noqa: BLE001 - as above
        found = _failure(error, path)
    else:
        return system
    raise found if isinstance(found, CorgiPileError) else refused(path, str(found))
