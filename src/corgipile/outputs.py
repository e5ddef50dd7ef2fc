"""Files that are written: whole or not at all, and never in the place of what a user would miss.

Everything that writes a file goes through `replacing`, which asks for the kind of the file. A file that is there is
replaced only if it is of the same kind and corgipile wrote it, or the caller says ``overwrite``; a file that is read
is never replaced.
"""

import contextlib
import errno
import fnmatch
import functools
import glob
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from corgipile import scratch
from corgipile.errors import BadArgument, CorgiPileError, WouldOverwrite, WriteFailed
from corgipile.stores.urls import is_url, redacted

__all__ = [
    "Kind",
    "PathLike",
    "check_apart",
    "check_target",
    "files_read",
    "flush",
    "keep_rights",
    "refuse_url",
    "replacing",
    "writing",
]

PathLike = str | os.PathLike[str]
PLAIN = {bool, int, float, str, bytes, type(None)}  # types of what no file is in
_SEND = {
    "file": "or rather, give the plain path",
    "gs": "then `gcloud storage cp` it there",
    "hf": "then `hf upload --repo-type dataset` it",
    "s3": "then `aws s3 cp` it there",
}


class Kind(NamedTuple):
    """A kind of file.

    Attributes:
        name: What messages call it, such as "model".
        owns: Says whether a file is surely one that corgipile wrote.
        follow: Whether what a symbolic link leads to is written, not the link replaced.
    """

    name: str
    owns: Callable[[Path], bool]
    follow: bool = True


@contextlib.contextmanager
def replacing(
    path: PathLike, kind: Kind, *, inputs: Iterable[Any] = (), overwrite: bool = False, of: PathLike | None = None
) -> Iterator[Path]:
    """Give a temporary name beside ``path``; on success flush the file and rename it, on failure remove it.

    A file keeps the owner and mode of the one it replaces; a new file's mode follows the umask.

    Args:
        path: The file to write; where it is a link, the file that it leads to.
        kind: What it will be.
        inputs: What is read meanwhile: tables, paths, globs, folders, lists of these.
        overwrite: Replace a file of any kind, the inputs excepted.
        of: The file that it describes, or a private folder; its permissions bound the new file's.

    Raises:
        WouldOverwrite: An input, or a file of another kind, lies there.
        WriteFailed: There is no such folder, the disk is full, or the file system refuses.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with replacing(folder / "a.txt", Kind("list", lambda _: False)) as temporary:
        ...     _ = temporary.write_text("whole")
        >>> [entry.name for entry in folder.iterdir()]
        ['a.txt']
    """
    goal = check_target(path, kind, inputs=inputs, overwrite=overwrite)
    mode = 0o600 if goal.exists() else 0o666 if of is None else Path(of).stat().st_mode & 0o666 | 0o600
    with writing(goal), scratch.temporary(goal, mode) as temporary:
        yield temporary
        if not overwrite:
            _check_kind(goal, kind)  # it may have appeared meanwhile
        keep_rights(temporary, goal, of)
        flush(temporary)
        temporary.replace(goal)
        flush(goal.parent)


def keep_rights(new: Path, old: PathLike, of: PathLike | None = None) -> None:
    """Give a file or folder the owner and mode of the one that it replaces or describes.

    Args:
        new: The file.
        old: The one that it replaces, which need not exist.
        of: The one that it describes, whose mode is an upper bound.

    Example:
        >>> import tempfile
        >>> old, new = (Path(tempfile.mkdtemp()) / name for name in ("old", "new"))
        >>> old.touch(0o640), new.touch(0o600), keep_rights(new, old), oct(new.stat().st_mode & 0o777)
        (None, None, None, '0o640')
    """
    here, there = Path(new).stat(), Path(old) if Path(old).exists() or of is None else Path(of)
    if not there.exists():
        return
    like = there.stat()
    mode = (like if there == Path(old) else here).st_mode & (0o777 if of is None else Path(of).stat().st_mode & 0o777)
    for owner in (like.st_uid, -1):
        with contextlib.suppress(PermissionError):
            os.chown(new, owner, like.st_gid)
            break
    else:
        mode &= ~0o070 | (mode & 0o007) << 3  # the file has another group
    with contextlib.suppress(PermissionError):  # file systems without modes
        new.chmod(mode)


@contextlib.contextmanager
def writing(goal: PathLike) -> Iterator[None]:
    """Turn errors of the operating system into WriteFailed.

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


def check_target(path: PathLike, kind: Kind, *, inputs: Iterable[Any] = (), overwrite: bool = False) -> Path:
    """Raise, before any work is done, unless a file of this kind may be written there; return where it will lie.

    Args:
        path: As for `replacing`.
        kind: As for `replacing`.
        inputs: As for `replacing`.
        overwrite: As for `replacing`.
    """
    refuse_url(path)
    given = Path(path).expanduser()
    with writing(given):
        goal = _place(given, kind)
        if not goal.name or goal.is_dir():
            raise WriteFailed(errno.EISDIR, f"cannot write {given}: it is a folder; a file name is wanted")
        if not goal.parent.is_dir():
            raise WriteFailed(errno.ENOENT, f"cannot write {given}: there is no folder {goal.parent}; make it first")
        _check_writable(goal.parent)
        if goal.exists() and not goal.is_file():
            raise WriteFailed(errno.EINVAL, f"cannot write {given}: it is a device or a pipe; a file is wanted")
        _check_inputs(goal, inputs)
        if not overwrite:
            _check_kind(goal, kind)
    return goal


def check_apart(path: PathLike, inputs: Iterable[Any]) -> None:
    """Raise WouldOverwrite if a file to be written is one of those that are read.

    Example:
        >>> check_apart("/tmp/a.arrow", ["/tmp/b.arrow"])
    """
    if not is_url(path):
        _check_inputs(Path(path).expanduser().resolve(), inputs)


def refuse_url(path: PathLike) -> None:
    """Raise BadArgument if a path is a URL: files are written on this machine.

    Example:
        >>> refuse_url("s3://bucket/a.arrow")
        Traceback (most recent call last):
        ...
        corgipile.errors.BadArgument: s3://bucket/a.arrow is a URL, and only local files are written: write ...
    """
    if is_url(path):
        shown = redacted(os.fspath(path))
        how = _SEND.get(shown.partition(":")[0], "then copy it there")
        raise BadArgument(f"{shown} is a URL, and only local files are written: write it here, {how}")


def _place(given: Path, kind: Kind) -> Path:
    """Return the plain path of a file, without links and dots on the way."""
    if not kind.follow:
        return given.parent.resolve() / given.name
    with contextlib.suppress(FileNotFoundError):
        given.stat()  # what resolve says of loops is no error of the system
    return given.resolve()


def _check_writable(folder: Path) -> None:
    """Raise OSError where no file can be made in a folder."""
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise OSError(errno.EROFS if os.statvfs(folder).f_flag & os.ST_RDONLY else errno.EACCES, "no file can be made")


def _check_kind(goal: Path, kind: Kind) -> None:
    if not goal.exists() or not goal.stat().st_size:
        return
    if not kind.owns(goal):
        raise WouldOverwrite(
            f"{goal} is there, and surely no {kind.name} that corgipile wrote: it would be lost; name another file, "
            "or say --overwrite (in Python overwrite=True)"
        )


def _check_inputs(goal: Path, inputs: Iterable[Any]) -> None:
    for source in inputs:
        if _reads(source, goal):
            raise WouldOverwrite(f"{goal} is, or would be, one of the files that are read here; name another file")


def _reads(source: Any, goal: Path) -> bool:
    """Say whether a source takes rows from a file."""
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
        return any(_same(name, goal) for name in (path, *_beside(path)))
    return glob.has_magic(str(path)) and _glob_reads(path, goal)


def _folder_reads(path: Path, goal: Path) -> bool:
    """Say whether a file lies in a folder of a table and bears the name of a part, or is linked to one."""
    if goal.resolve().is_relative_to(path.resolve()) and _is_table_name(goal.name):
        return True
    if not goal.exists() or goal.stat().st_nlink == 1:
        return False  # a file of one name
    names = (Path(root, name) for root, _, files in os.walk(path) for name in files)
    return any(_same(name, goal) for name in names)


def _glob_reads(pattern: Path, goal: Path) -> bool:
    if not glob.has_magic(str(pattern.parent)):
        pattern = pattern.parent.resolve() / pattern.name
    found = glob.glob(str(pattern), recursive=True)  # noqa: PTH207 - takes absolute patterns
    if any(_path_reads(Path(name), goal) for name in found):
        return True
    deep = "**" in pattern.parts
    return (deep or len(pattern.parts) == len(goal.parts)) and fnmatch.fnmatchcase(str(goal), str(pattern))


def _beside(path: Path) -> list[Path]:
    """List where the index of a file may lie."""
    from corgipile.tables.io.index_cache import INDEX_SUFFIX  # noqa: PLC0415 - tables write their indexes through us
    from corgipile.tables.tfrecord.index import TEXT_SUFFIXES  # noqa: PLC0415

    return [path.with_name(stem + end) for stem in {path.name, path.stem} for end in (INDEX_SUFFIX, *TEXT_SUFFIXES)]


def _is_table_name(name: str) -> bool:
    from corgipile.tables.formats import formats  # noqa: PLC0415 - as above
    from corgipile.tables.images import IMAGES  # noqa: PLC0415

    return name.lower().endswith((*IMAGES, *(end for kind in formats().values() for end in kind.suffixes)))


def _same(path: Path, goal: Path) -> bool:
    try:
        return path.samefile(goal)
    except OSError:
        return path == goal


def _paths_of(table: Any) -> Iterator[str]:
    """Find the files, and the folders of images, that a table reads."""
    return (one.path for one in files_read(table))


def files_read(table: Any) -> Iterator[Any]:
    """Yield the files, open, and the folders of images that a table reads, through whatever wraps it."""
    seen, waiting = set(), [table]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        kind = _holds(type(one))  # type: ignore[arg-type]  # a type is hashable
        if kind == "files":
            yield one
        else:
            found = one if kind == "items" else getattr(one, "__dict__", {})
            inside = found.values() if isinstance(found, dict) else found
            waiting += (inner for inner in inside if _holds(type(inner)) != "nothing")  # type: ignore[arg-type]


@functools.cache  # types are few, and what a table is made of is much where it has many files or columns
def _holds(kind: type) -> Literal["files", "items", "attributes", "nothing"]:
    """Return what objects of a type hold that may be files, or lead to them."""
    from corgipile.tables.images import ImageFolder  # noqa: PLC0415
    from corgipile.tables.io.files import File  # noqa: PLC0415 - as above
    from corgipile.tables.library import LibraryTable  # noqa: PLC0415 - as above

    if issubclass(kind, File | ImageFolder | LibraryTable):
        return "files"
    if issubclass(kind, list | tuple | dict):
        return "items"
    table = all(callable(getattr(kind, name, None)) for name in ("read", "cuts")) or hasattr(kind, "__getattr__")
    return "attributes" if table or kind.__module__.startswith("corgipile.tables.") else "nothing"


def flush(path: Path) -> None:
    """Have a file, or the names in a folder, written to the device."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
