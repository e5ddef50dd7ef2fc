"""Which objects the processes that share a cache have open, and how many bytes each may yet write.

Each process notes both in a file of its own, which it keeps locked; what is not locked is of a process that has ended.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from corgipile import scratch

__all__ = ["Note"]

IDLE = 3600.0  # seconds after which what a process has open, and does not read, is not in use
DIGITS = 20  # of the number of bytes


class Note:
    """The note of this process; it goes when the process ends.

    Args:
        folder: Where all notes lie.

    Raises:
        OSError: It cannot be written there.

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
        """Note bytes and keys, and that the keys are in use now."""
        text = "\n".join([f"{owed:0{DIGITS}}", *keys]).encode()
        with self._opened() as file:
            os.pwrite(file, text, 0)
            os.ftruncate(file, len(text))

    def owe(self, owed: int) -> None:
        """Note bytes alone."""
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
        """Return the bytes that other processes may yet write, and the keys of what they have open and read."""
        scratch.sweep(self._folder)
        owed, in_use = 0, set[str]()
        for path in self._folder.glob(".open.*"):
            if path != self._path:
                with contextlib.suppress(OSError, ValueError):
                    lines = path.read_text().split("\n")
                    owed += int(lines[0])
                    if time.time() - path.stat().st_mtime < IDLE:
                        in_use.update(lines[1:])
        return owed, in_use
