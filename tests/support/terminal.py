"""A command in its own terminal, for tests that type and read."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

from patience import PATIENCE, wait_for

_ESCAPES = re.compile(r"\x1b\[[0-9;?>=]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[=>()][B0]?|[\x00\x07\x0f]")
READY = "\x01"  # marks in the output that the shell waits for a line
_PASTE = "\x1b[?2004h"  # start of its prompt


class Terminal:
    """Runs a command of corgipile and reads its output as plain text.

    Args:
        words: The words after ``corgipile``.
        columns: Width of the terminal.
        env: Additional environment variables.
        cwd: Working folder.
        stdout: Output file instead of the terminal.
    """

    def __init__(self, *words, columns=80, env=None, cwd=None, stdout=None):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        given = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "corgipile", *words],
            stdin=theirs,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
            env={**given, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **(env or {})},
            cwd=cwd,
            start_new_session=True,
            preexec_fn=lambda: _own(theirs),  # noqa: PLW1509 - no threads here
        )
        os.close(theirs)
        self.text = ""  # since the last wait
        self.all = ""

    def type(self, keys):
        """Press keys."""
        os.write(self.ours, keys.encode())

    def wait(self, pattern):
        """Read until the pattern appears; return the text up to its end."""
        end = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < end, f"no {pattern!r} in {self.text!r}"
            assert self._read(0.1) or self.process.poll() is None, f"it ended: {self.text!r}"
        before, self.text = self.text[: found.end()], self.text[found.end() :]
        return before

    def run(self, line):
        """Type a line and return the output up to the next prompt."""
        self.type(f"{line}\r")
        return self.wait(READY)

    def works(self):
        """Wait until the command works, by its processor time, which typing does not take."""
        stat = Path(f"/proc/{self.process.pid}/stat")

        def taken():
            return sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")

        before = taken()
        wait_for(lambda: taken() > before + 0.5, "work")

    def end(self):
        """Read to the end; return the exit code."""
        while self._read(PATIENCE):
            pass
        return self.process.wait(PATIENCE)

    def _read(self, seconds):
        if not select.select([self.ours], [], [], seconds)[0]:
            return False
        try:
            raw = os.read(self.ours, 1 << 16).decode(errors="replace")
        except OSError:  # nobody is at the other end
            return False
        text = _ESCAPES.sub("", raw.replace(_PASTE, READY))
        self.text, self.all = self.text + text, self.all + text
        return bool(raw)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.ours)


def _own(terminal):
    """Make the terminal control the process, so that Ctrl-C reaches it."""
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
