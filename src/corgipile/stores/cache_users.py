"""Open objects of the processes that share a cache, and the bytes that each may yet write.

Each process records both in its own file and keeps it locked; an unlocked file belongs to a process that has ended.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from corgipile import scratch

__all__ = ["Note"]

IDLE_SECONDS = 3600.0  # seconds after which open objects that are not read are not in use
DIGITS = 20  # of the number of bytes


class Note:
    """The note of this process, which is deleted when the process ends.

    Args:
        folder: Folder of all notes.

    Raises:
        OSError: The folder cannot be written.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp())
        >>> one, other = Note(place), Note(place)
        >>> one.write(100, ["a", "b"])
        >>> other.others() == (100, {"a", "b"})
        True
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._life = contextlib.ExitStack()
        self._path = self._life.enter_context(scratch.temporary(folder / "open"))

    def write(self, owed: int, keys: Iterable[str]) -> None:
        """Record bytes and keys, and that the keys are in use now."""
        text = "\n".join([f"{owed:0{DIGITS}}", *keys]).encode()
        with self._opened() as file:
            os.pwrite(file, text, 0)
            os.ftruncate(file, len(text))

    def owe(self, owed: int) -> None:
        """Record bytes only."""
        with self._opened() as file:
            os.pwrite(file, f"{owed:0{DIGITS}}".encode(), 0)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        file = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            yield file
        finally:
            os.close(file)

    def others(self) -> tuple[int, set[str]]:
        """Return the bytes that other processes may yet write, and the keys of objects that they have open and read."""
        scratch.sweep(self._folder)
        owed, in_use = 0, set[str]()
        for path in self._folder.glob(".open.*"):
            if path != self._path:
                with contextlib.suppress(OSError, ValueError):
                    lines = path.read_text().split("\n")
                    owed += int(lines[0])
                    if time.time() - path.stat().st_mtime < IDLE_SECONDS:
                        in_use.update(lines[1:])
        return owed, in_use
