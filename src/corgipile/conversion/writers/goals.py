"""Where the files of an output will lie: one file, numbered ones, or a folder of its own."""

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

__all__ = ["Goal", "goal_of", "named"]

_NUMBER = re.compile(r"%(?:0(\d))?d")
_LATER = r"(\.[a-z0-9]+|\.corgipile-index\.arrow)?"  # a codec, or an index that a reader left
_ANY = Kind("file", lambda _: False)


class Goal:
    """One file.

    Args:
        path: The file.
        form: Its format.
        inputs: What is read meanwhile, and never replaced.
        overwrite: Replace what is there, of whatever kind.
    """

    many = False

    def __init__(self, path: Path, form: Form, inputs: Iterable[Any], *, overwrite: bool) -> None:
        self._path, self._form, self._inputs, self._overwrite = path, form, list(inputs), overwrite
        self.check()

    def check(self) -> None:
        """Raise, before any work is done, unless the output may be written."""
        check_target(self._path, self._form.kind, inputs=self._inputs, overwrite=self._overwrite)

    @contextlib.contextmanager
    def paths(self, found: list[Any]) -> Iterator[Iterator[Path]]:
        """Give temporary names, one for each file; put all in their places when the block ends well.

        Args:
            found: What the writers of the files have found out by then.
        """
        kind = self._form.kind
        with replacing(self._path, kind, inputs=self._inputs, overwrite=self._overwrite) as temporary:
            yield iter([temporary])


class Numbered(Goal):
    """Files in a folder, with ``%06d`` in their name; nothing else there is touched."""

    many = True

    @property
    def _folder(self) -> Path:
        return self._path.parent.resolve()

    @property
    def _beside(self) -> Path:
        return self._folder  # on the same disk, and surely writable

    @property
    def _names(self) -> str:
        return self._path.name

    def check(self) -> None:
        """Raise, before any work is done, unless the output may be written."""
        check_target(self._folder / named(self._names, 0), _ANY, inputs=self._inputs, overwrite=True)
        for there in self._there():
            check_target(there, _ANY, inputs=self._inputs, overwrite=True)
            if not self._overwrite:
                raise WouldOverwrite(
                    f"{there} is there, and would be lost or mixed with what is new: name another place, or say "
                    "--overwrite (in Python overwrite=True)"
                )

    def _there(self) -> list[Path]:
        """List what the output replaces."""
        if not self._folder.is_dir():
            return []
        before, *_, after = map(re.escape, _NUMBER.sub("\0", self._names).split("\0"))
        part = re.compile(before + r"\d+" + after + _LATER)
        return sorted(path for path in self._folder.iterdir() if part.fullmatch(path.name))

    @contextlib.contextmanager
    def paths(self, found: list[Any]) -> Iterator[Iterator[Path]]:
        """Give temporary names; see `Goal`."""
        with writing(self._folder), scratch.folder(self._beside, self._folder.name or "parts") as room:
            made = room / "made"
            made.mkdir()  # with the rights that a user gives to folders, which a room has not
            yield (made / named(self._names, number) for number in range(10**9))
            if self._form.finish is not None:
                self._form.finish(made, found)
            for path in made.iterdir():
                flush(path)
            self.check()  # something may have appeared meanwhile
            self._place(made, room)

    def _place(self, made: Path, room: Path) -> None:
        old, new = self._there(), sorted(path.name for path in made.iterdir())
        self._keep_rights(made, old)
        for name in new:
            (made / name).replace(self._folder / name)
        for path in old:
            if path.name not in new:
                path.unlink()
        flush(self._folder)

    def _keep_rights(self, made: Path, old: list[Path]) -> None:
        """Give new files the owner and mode of the files they replace, else those of the first old file."""
        for path in made.iterdir() if old else ():
            there = self._folder / path.name
            keep_rights(path, there if there in old else old[0])


class Folder(Numbered):
    """A folder that holds the output alone."""

    @property
    def _folder(self) -> Path:
        return self._path.resolve()

    @property
    def _beside(self) -> Path:
        return self._folder.parent

    @property
    def _names(self) -> str:
        return self._form.names.replace("{}", self._folder.name)

    def check(self) -> None:
        """Raise, before any work is done, unless the output may be written."""
        if self._folder.is_dir():
            super().check()
        elif self._folder.exists():
            raise WriteFailed(errno.ENOTDIR, f"cannot write {self._path}: it is a file; {self._form.wanted}")
        else:
            check_target(self._folder, _ANY, inputs=self._inputs)

    def _there(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        ours = super()._there()
        ours += [path for path in (self._folder / name for name in self._form.besides) if path.exists()]
        for path in sorted(self._folder.iterdir()):
            if path not in ours:
                raise WouldOverwrite(
                    f"{path} is in the folder that is to hold this output alone; name another, which need not exist"
                )
        return ours

    def _place(self, made: Path, room: Path) -> None:
        if self._folder.is_dir():
            self._keep_rights(made, self._there())
            keep_rights(made, self._folder)
            self._folder.rename(room / "old")  # which goes with the room
        made.rename(self._folder)
        flush(self._folder.parent)


def goal_of(out: PathLike, form: Form, inputs: Iterable[Any], *, overwrite: bool) -> Goal:
    """Return where an output will lie, by its name.

    Raises:
        BadArgument: The name has two numbers, or one where a folder is wanted.
    """
    path = Path(out).expanduser()
    numbers = len(_NUMBER.findall(path.name))
    if numbers > 1 or (numbers and not form.suffixes):
        raise BadArgument(f"{out} has {numbers} places for the number of a file in its name; {form.wanted}")
    told = path.name.lower().endswith(form.suffixes) if form.suffixes else False
    folder = path.is_dir() or str(out).endswith("/") or (form.folder and not told)
    kind = Numbered if numbers else Folder if folder else Goal
    return kind(path, form, inputs, overwrite=overwrite)


def named(names: str, number: int) -> str:
    """Return the name of a file by its number.

    Example:
        >>> named("rows-%03d.tar", 7)
        'rows-007.tar'
    """
    return _NUMBER.sub(lambda found: f"{number:0{found[1] or 1}d}", names)
