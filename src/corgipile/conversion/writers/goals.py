"""Places of output files: one file, numbered files, or a dedicated folder."""

import contextlib
import errno
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from corgipile import scratch
from corgipile.conversion.writers.form import Form
from corgipile.errors import BadArgument, WouldOverwrite, WriteFailed
from corgipile.outputs import Kind, PathLike, flush, keep_rights, writing
from corgipile.tables.inputs import check_target, replacing

__all__ = ["Goal", "goal_of", "numbered_name"]

_NUMBER = re.compile(r"%(?:0(\d))?d")
_LATER = r"(\.[a-z0-9]+|\.corgipile-index\.arrow)?"  # a codec's ending, or an index written by a reader
_ANY = Kind("file", lambda _: False)


class Goal:
    """One output file; sources (``inputs``) are never replaced."""

    many = False

    def __init__(self, path: Path, form: Form, inputs: Iterable[Any], *, overwrite: bool) -> None:
        self._path, self._form, self._inputs, self._overwrite = path, form, list(inputs), overwrite
        self.check()

    def check(self) -> None:
        """Raise, before any work, unless the output may be written."""
        check_target(self._path, self._form.kind, inputs=self._inputs, overwrite=self._overwrite)

    @contextlib.contextmanager
    def paths(self, found: list[Any]) -> Iterator[Iterator[Path]]:
        """Yield temporary names, one per file; move all files to their places if the block succeeds.

        Results of the writers, ``found``, are complete when the block ends.
        """
        kind = self._form.kind
        with replacing(self._path, kind, inputs=self._inputs, overwrite=self._overwrite) as temporary:
            yield iter([temporary])


class Numbered(Goal):
    """Files in a folder with ``%06d`` in their name; other files there are not touched."""

    many = True

    @property
    def _folder(self) -> Path:
        return self._path.parent.resolve()

    @property
    def _scratch_parent(self) -> Path:
        return self._folder  # on the same disk, and writable

    @property
    def _names(self) -> str:
        return self._path.name

    def check(self) -> None:
        """Raise, before any work, unless the output may be written."""
        check_target(self._folder / numbered_name(self._names, 0), _ANY, inputs=self._inputs, overwrite=True)
        for path in self._existing():
            check_target(path, _ANY, inputs=self._inputs, overwrite=True)
            if not self._overwrite:
                raise WouldOverwrite(
                    f"{path} exists, and would be lost or mixed with new files: name another place, or give "
                    "--overwrite (in Python overwrite=True)"
                )

    def _existing(self) -> list[Path]:
        """Return the files that the output replaces."""
        if not self._folder.is_dir():
            return []
        before, *_, after = map(re.escape, _NUMBER.sub("\0", self._names).split("\0"))
        part = re.compile(before + r"\d+" + after + _LATER)
        return sorted(path for path in self._folder.iterdir() if part.fullmatch(path.name))

    @contextlib.contextmanager
    def paths(self, found: list[Any]) -> Iterator[Iterator[Path]]:
        """Yield temporary names; see `Goal`."""
        with writing(self._folder), scratch.folder(self._scratch_parent, self._folder.name or "parts") as room:
            made = room / "made"
            made.mkdir()  # with the user's default rights, unlike the scratch folder
            yield (made / numbered_name(self._names, number) for number in range(10**9))
            if self._form.finish is not None:
                self._form.finish(made, found)
            for path in made.iterdir():
                flush(path)
            self.check()  # files may have appeared meanwhile
            self._place(made, room)

    def _place(self, made: Path, room: Path) -> None:
        old, new = self._existing(), sorted(path.name for path in made.iterdir())
        self._keep_rights(made, old)
        for name in new:
            (made / name).replace(self._folder / name)
        for path in old:
            if path.name not in new:
                path.unlink()
        flush(self._folder)

    def _keep_rights(self, made: Path, old: list[Path]) -> None:
        """Give new files the owner and mode of the files they replace, or of the first old file."""
        for path in made.iterdir() if old else ():
            target = self._folder / path.name
            keep_rights(path, target if target in old else old[0])


class Folder(Numbered):
    """A folder that holds only the output."""

    @property
    def _folder(self) -> Path:
        return self._path.resolve()

    @property
    def _scratch_parent(self) -> Path:
        return self._folder.parent

    @property
    def _names(self) -> str:
        return self._form.names.replace("{}", self._folder.name)

    def check(self) -> None:
        """Raise, before any work, unless the output may be written."""
        if self._folder.is_dir():
            super().check()
        elif self._folder.exists():
            raise WriteFailed(errno.ENOTDIR, f"cannot write {self._path}: it is a file: {self._form.wanted}")
        else:
            check_target(self._folder, _ANY, inputs=self._inputs)

    def _existing(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        ours = super()._existing()
        ours += [path for path in (self._folder / name for name in self._form.besides) if path.exists()]
        for path in sorted(self._folder.iterdir()):
            if path not in ours:
                raise WouldOverwrite(
                    f"{path} lies in the folder of this output, which must hold nothing else: name another folder"
                )
        return ours

    def _place(self, made: Path, room: Path) -> None:
        if self._folder.is_dir():
            self._keep_rights(made, self._existing())
            keep_rights(made, self._folder)
            self._folder.rename(room / "old")  # removed with the scratch folder
        made.rename(self._folder)
        flush(self._folder.parent)


def goal_of(out: PathLike, form: Form, inputs: Iterable[Any], *, overwrite: bool) -> Goal:
    """Return the place of an output, by its name.

    Raise BadArgument for two numbers, or one where a folder is needed.
    """
    path = Path(out).expanduser()
    numbers = len(_NUMBER.findall(path.name))
    if numbers > 1 or (numbers and not form.suffixes):
        raise BadArgument(f"out must have at most one file number in its name, got {out}: {form.wanted}")
    has_suffix = path.name.lower().endswith(form.suffixes) if form.suffixes else False
    folder = path.is_dir() or str(out).endswith("/") or (form.folder and not has_suffix)
    kind = Numbered if numbers else Folder if folder else Goal
    return kind(path, form, inputs, overwrite=overwrite)


def numbered_name(names: str, number: int) -> str:
    """Return a file's name, given its number.

    Example:
        >>> numbered_name("rows-%03d.tar", 7)
        'rows-007.tar'
    """
    return _NUMBER.sub(lambda found: f"{number:0{found[1] or 1}d}", names)
