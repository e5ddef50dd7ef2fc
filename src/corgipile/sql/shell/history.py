"""What was typed before, in one file for all shells of a user, which nobody else reads."""

import logging
import os
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from corgipile.errors import WriteFailed
from corgipile.outputs import writing

__all__ = ["default_place", "opened"]


def default_place() -> Path:
    """Return where the history lies: the folder for the state of programs, as XDG has it."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return (
        (Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state") / "corgipile" / "sql_history"
    )


def opened(place: Path) -> tuple[History, str | None]:
    """Return the history of a file, or one that ends with the shell, and why."""
    logging.getLogger("prompt_toolkit.buffer").addFilter(_is_no_stop)
    try:
        with writing(place):
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
            place.chmod(0o600)
    except WriteFailed as error:
        return InMemoryHistory(), f"nothing is remembered after this shell: {error}"
    return _Shared(str(place)), None


def _is_no_stop(record: logging.LogRecord) -> bool:
    """Say whether a message is of more than a shell that was told to end while it read its history."""
    return not (record.exc_info and isinstance(record.exc_info[1], KeyboardInterrupt))


class _Shared(FileHistory):
    """Adds each entry in one piece, so that those of several shells do not mix, unless it begins with a blank."""

    def store_string(self, string: str) -> None:
        if string[:1].isspace():
            return
        lines = "".join(f"+{line}\n" for line in string.split("\n"))
        entry = f"\n# sql\n{lines}".encode(errors="backslashreplace")
        try:
            file = os.open(self.filename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(file, entry)
            finally:
                os.close(file)
        except OSError:  # a disk that is full since: the line is remembered by this shell alone
            return
