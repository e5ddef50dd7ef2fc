"""Atomic output files that never replace a file by mistake.

Every writer uses `replacing` with the kind of its file. An existing file is replaced only if corgipile wrote it and it
has the same kind, or with ``overwrite``. `corgipile.tables.inputs` has the same functions for writers that read tables:
they never replace an input.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from corgipile import scratch
from corgipile.errors import BadArgument, CorgiPileError, WouldOverwrite, WriteFailed
from corgipile.urls import is_url, redacted

__all__ = [
    "Kind",
    "PathLike",
    "check_target",
    "flush",
    "keep_rights",
    "refuse_url",
    "replacing",
    "resolved",
    "writing",
]

PathLike = str | os.PathLike[str]
_UPLOAD_HINTS = {
    "file": "or rather, give the plain path",
    "gs": "then `gcloud storage cp` it there",
    "hf": "then `hf upload --repo-type dataset` it",
    "s3": "then `aws s3 cp` it there",
}


class Kind(NamedTuple):
    """A kind of file.

    Attributes:
        name: Its name in messages, such as "model".
        owns: Returns whether corgipile certainly wrote a file.
        follow: Whether a symbolic link's target is written instead of the link.
        lasting: Whether the file is flushed to the device; others need a checksum, since a crash may damage them.
    """

    name: str
    owns: Callable[[Path], bool]
    follow: bool = True
    lasting: bool = True


@contextlib.contextmanager
def replacing(path: PathLike, kind: Kind, *, overwrite: bool = False, of: PathLike | None = None) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``; flush and rename the file on success, remove it on failure.

    A file keeps the owner and mode of the one it replaces; a new file's mode follows the umask.

    Args:
        path: File to write, or a link to it.
        kind: Kind of the new file.
        overwrite: Replace a file of any kind.
        of: The file that the new one describes, or a private folder; its mode bounds the new file's mode.

    Raises:
        WouldOverwrite: The path holds a file of another kind.
        WriteFailed: The folder does not exist, the disk is full, or the file system refuses.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with replacing(folder / "a.txt", Kind("list", lambda _: False)) as temporary:
        ...     _ = temporary.write_text("whole")
        >>> [entry.name for entry in folder.iterdir()]
        ['a.txt']
    """
    goal = check_target(path, kind, overwrite=overwrite)
    mode = 0o600 if goal.exists() else 0o666 if of is None else Path(of).stat().st_mode & 0o666 | 0o600
    with writing(goal), scratch.temporary(goal, mode) as temporary:
        yield temporary
        if not overwrite:
            _check_kind(goal, kind)  # the file may have appeared meanwhile
        keep_rights(temporary, goal, of)
        if kind.lasting:
            flush(temporary)
        temporary.replace(goal)
        if kind.lasting:
            flush(goal.parent)


def keep_rights(new: Path, old: PathLike, of: PathLike | None = None) -> None:
    """Set a file's or folder's owner and mode to those of the one that it replaces or describes.

    Args:
        new: The file.
        old: The replaced file, which need not exist.
        of: The described file, whose mode is an upper bound.

    Example:
        >>> import tempfile
        >>> old, new = (Path(tempfile.mkdtemp()) / name for name in ("old", "new"))
        >>> old.touch(0o640), new.touch(0o600), keep_rights(new, old), oct(new.stat().st_mode & 0o777)
        (None, None, None, '0o640')
    """
    own, model = Path(new).stat(), Path(old) if Path(old).exists() or of is None else Path(of)
    if not model.exists():
        return
    base = model.stat()
    mode = (base if model == Path(old) else own).st_mode & (0o777 if of is None else Path(of).stat().st_mode & 0o777)
    for owner in (base.st_uid, -1):
        with contextlib.suppress(PermissionError):
            os.chown(new, owner, base.st_gid)
            break
    else:
        mode &= ~0o070 | (mode & 0o007) << 3  # the file's group differs, so it gets the rights of others
    with contextlib.suppress(PermissionError):  # some file systems have no modes
        new.chmod(mode)


@contextlib.contextmanager
def writing(goal: PathLike) -> Iterator[None]:
    """Convert errors of the operating system to WriteFailed.

    Example:
        >>> with writing("/nowhere/a"):
        ...     Path("/nowhere/a").touch()
        Traceback (most recent call last):
        ...
        corgipile.errors.WriteFailed: cannot write /nowhere/a: No such file or directory
    """
    try:
        yield
    except (CorgiPileError, BrokenPipeError):
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else " ".join(str(error).split())
        raise WriteFailed(error.errno or errno.EIO, f"cannot write {goal}: {reason}") from error


def check_target(path: PathLike, kind: Kind, *, overwrite: bool = False) -> Path:
    """Return the resolved path of an output, or raise an error before any work; arguments as for `replacing`."""
    refuse_url(path)
    given = Path(path).expanduser()
    with writing(given):
        goal = resolved(given, follow=kind.follow)
        if not goal.name or goal.is_dir():
            raise WriteFailed(errno.EISDIR, f"cannot write {given}: it is a folder; give a file name")
        if not goal.parent.is_dir():
            raise WriteFailed(errno.ENOENT, f"cannot write {given}: there is no folder {goal.parent}; create it first")
        _check_writable(goal.parent)
        if goal.exists() and not goal.is_file():
            raise WriteFailed(errno.EINVAL, f"cannot write {given}: it is a device or a pipe; give a regular file")
        if not overwrite:
            _check_kind(goal, kind)
    return goal


def refuse_url(path: PathLike) -> None:
    """Raise BadArgument if a path is a URL: outputs are local files.

    Example:
        >>> refuse_url("s3://bucket/a.arrow")
        Traceback (most recent call last):
        ...
        corgipile.errors.BadArgument: s3://bucket/a.arrow is a URL, but only local files are written: write ...
    """
    if is_url(path):
        shown = redacted(os.fspath(path))
        how = _UPLOAD_HINTS.get(shown.partition(":")[0], "then copy it there")
        raise BadArgument(f"{shown} is a URL, but only local files are written: write it here, {how}")


def resolved(path: Path, *, follow: bool = True) -> Path:
    """Return a path without links and dots; without ``follow`` its last part may be a link.

    Example:
        >>> str(resolved(Path("/tmp/../a")))
        '/a'
    """
    if not follow:
        return path.parent.resolve() / path.name
    with contextlib.suppress(FileNotFoundError):
        path.stat()  # raises the system's error for loops of links, unlike resolve
    return path.resolve()


def _check_writable(folder: Path) -> None:
    """Raise OSError unless files can be created in a folder."""
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise OSError(errno.EROFS if os.statvfs(folder).f_flag & os.ST_RDONLY else errno.EACCES, "no file can be made")


def _check_kind(goal: Path, kind: Kind) -> None:
    if not goal.exists() or not goal.stat().st_size:
        return
    if not kind.owns(goal):
        raise WouldOverwrite(
            f"{goal} exists and is not a {kind.name} written by corgipile: give another path, or replace it by "
            "--overwrite (in Python overwrite=True)"
        )


def flush(path: Path) -> None:
    """Flush a file's data, or a folder's entries, to the device."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
