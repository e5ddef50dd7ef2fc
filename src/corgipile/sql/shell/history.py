"""Input history: one private file for all shells of a user."""

import logging
import os
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from corgipile.errors import WriteFailed
from corgipile.outputs import writing

__all__ = ["default_place", "opened"]


def default_place() -> Path:
    """Return the path of the history in XDG's state folder."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else Path.home() / ".local" / "state") / "corgipile" / "sql_history"


def opened(place: Path) -> tuple[History, str | None]:
    """Open the history file; without access, return an in-memory history and a warning."""
    logging.getLogger("prompt_toolkit.buffer").addFilter(_is_no_stop)
    try:
        with writing(place):
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
            place.chmod(0o600)
    except WriteFailed as error:
        return InMemoryHistory(), f"the history of this shell is not saved: {error}"
    return _Shared(str(place)), None


def _is_no_stop(record: logging.LogRecord) -> bool:
    """Return whether a log record is not about an interrupt while the history was read."""
    return not (record.exc_info and isinstance(record.exc_info[1], KeyboardInterrupt))


class _Shared(FileHistory):
    """Writes each entry atomically, so that shells do not mix theirs; lines that begin with a space are not saved."""

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
        except OSError:  # for example a full disk: only this shell remembers the line
            return
