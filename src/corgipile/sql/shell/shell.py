"""Read-eval-print loop of the shell."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output.defaults import create_output

from corgipile.sql.runner import Runner
from corgipile.sql.shell import history
from corgipile.sql.shell.commands import Commands
from corgipile.sql.shell.completion import SqlCompleter
from corgipile.sql.shell.words import Known
from corgipile.sql.tokens import complete

__all__ = ["Shell"]

PROMPT = "corgipile> "
WORDS = {"exit": "\\q", "quit": "\\q", "help": "\\?"}  # known from other shells


class Shell:
    """Reads statements from a terminal and runs them, until Ctrl-D; ``remembered`` is the history file."""

    def __init__(
        self,
        runner: Runner,
        say: Callable[[str], None],
        fail: Callable[[Exception], object],
        remembered: Path | None = None,
    ) -> None:
        self.runner, self.say, self._fail = runner, say, fail
        self.known = Known(runner.connection.engine)
        self.timing = self.done = False
        self._commands = Commands(self)
        past, warning = history.opened(remembered or history.default_place())
        if warning:
            runner.tell(warning)
        self._prompt: PromptSession[str] = PromptSession(
            PROMPT,
            prompt_continuation=lambda width, _, __: "-> ".rjust(width),
            multiline=True,
            key_bindings=_keys(),
            completer=SqlCompleter(self.known, self._commands.table),
            complete_while_typing=False,
            history=past,
            output=create_output(always_prefer_tty=True),
        )

    def run(self) -> None:
        """Run until the user leaves."""
        with _ctrl_c_raises():
            try:
                while not self.done:
                    try:
                        self._once()
                    except KeyboardInterrupt as stop:  # clears the line, even while an error is shown
                        _only_ctrl_c(stop)
            finally:
                self._commands.close()

    def _once(self) -> None:
        try:
            line = self._prompt.prompt(handle_sigint=False)  # or a Ctrl-C during the return is lost
        except EOFError:
            self.done = True
            return
        try:
            self._run(line)
        except KeyboardInterrupt as stop:
            _only_ctrl_c(stop)
            self.say("stopped")
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - the shell survives any error
            self._fail(error)

    def _run(self, line: str) -> None:
        line = WORDS.get(_word(line), line)
        try:
            if line.lstrip().startswith("\\"):
                self._commands.run(line)
            else:
                self.runner.run(line)
                if self.timing and line.strip():
                    self.say(f"Time: {self.runner.seconds * 1e3:,.1f} ms")
        finally:
            self.known.forget()


def _keys() -> KeyBindings:
    """Bind Enter: run complete input, else begin a new line."""
    keys = KeyBindings()

    @keys.add("enter", filter=has_focus(DEFAULT_BUFFER))
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None
        elif is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def is_whole(text: str) -> bool:
    r"""Return whether input is complete: a command, or statements that end with a semicolon.

    Example:
        >>> is_whole("\\timing"), is_whole("SELECT 1"), is_whole("SELECT 1;")
        (True, False, True)
    """
    return text.lstrip().startswith("\\") or _word(text) in WORDS or complete(text)


def _word(text: str) -> str:
    return text.strip().rstrip(";").lower()


def _only_ctrl_c(stop: KeyboardInterrupt) -> None:
    """Re-raise interrupts other than Ctrl-C, such as a closed terminal."""
    if type(stop) is not KeyboardInterrupt:
        raise stop


@contextmanager
def _ctrl_c_raises() -> Iterator[None]:
    """Make every Ctrl-C raise KeyboardInterrupt, not only the first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
