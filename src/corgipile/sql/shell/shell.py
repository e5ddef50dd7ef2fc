"""The loop of the shell: read a statement, run it, show what it answers, go on."""

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
WORDS = {"exit": "\\q", "quit": "\\q", "help": "\\?"}  # that other shells know


class Shell:
    """Reads statements from a terminal and runs them, until Ctrl-D.

    Args:
        runner: Where they run.
        say: Writes a line for the user.
        fail: Tells an error.
        remembered: The file of what was typed before.
    """

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
                    except KeyboardInterrupt as stop:  # it clears a line, and ends no error that is being told
                        _only_ctrl_c(stop)
            finally:
                self._commands.close()

    def _once(self) -> None:
        try:
            line = self._prompt.prompt(handle_sigint=False)  # else Ctrl-C is lost that comes as it returns
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
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the shell lives on
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
    """Let Enter run what is whole, and begin a new line of what is not."""
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
    r"""Say whether a text is to be run as it is: a command, or statements of which the last ends with a semicolon.

    Example:
        >>> is_whole("\\timing"), is_whole("SELECT 1"), is_whole("SELECT 1;")
        (True, False, True)
    """
    return text.lstrip().startswith("\\") or _word(text) in WORDS or complete(text)


def _word(text: str) -> str:
    return text.strip().rstrip(";").lower()


def _only_ctrl_c(stop: KeyboardInterrupt) -> None:
    """Raise what is more than Ctrl-C, such as the end of the terminal."""
    if type(stop) is not KeyboardInterrupt:
        raise stop


@contextmanager
def _ctrl_c_raises() -> Iterator[None]:
    """Let each Ctrl-C raise KeyboardInterrupt, not the first alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
