"""Signals that ask a command to stop: it cleans up and says which; a second one ends it at once."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from corgipile import scratch

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NEWS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
AGAIN = 0.01  # seconds
_untold: list[int] = []  # signals of which the user has not been told


class Stopped(KeyboardInterrupt):
    """A signal asks the process to stop; what cleans up after Ctrl-C cleans up after it."""

    def __init__(self, number: int) -> None:
        self.number = number


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Turn the first signal into Stopped; signals that are ignored or have handlers of their own are left alone.

    Example:
        >>> with stoppable():
        ...     signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        False
        >>> signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        True
    """
    before = {}
    _untold.clear()
    if threading.current_thread() is threading.main_thread():
        found = {number: signal.getsignal(number) for number in SIGNALS}
        before = {number: was for number, was in found.items() if was in (signal.SIG_DFL, signal.default_int_handler)}
    for number in before:
        signal.signal(number, _stop)
    hook = sys.unraisablehook
    sys.unraisablehook = lambda what: _again(what.exc_value) if isinstance(what.exc_value, Stopped) else hook(what)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, was in before.items():
            signal.signal(number, was)


def _stop(number: int, _: FrameType | None) -> None:
    for one in SIGNALS:
        if signal.getsignal(one) is _stop:
            signal.signal(one, signal.SIG_DFL)
    _untold.append(number)
    raise Stopped(number)


def _again(stop: Stopped) -> None:
    """Let a signal come once more, a moment later: Python drops what is raised where an object is cleared away."""
    signal.signal(stop.number, _stop)
    later = threading.Timer(AGAIN, signal.pthread_kill, (threading.main_thread().ident, stop.number))
    later.daemon = True
    later.start()


def check_told() -> None:
    """Raise Stopped again where it was lost: typer, while it reads words or loads, makes a bare exit code of it."""
    if _untold:
        raise Stopped(_untold[0])


def leave(code: int) -> int:
    """Return an exit code; of a stopped command, end the process here.

    Threads of libraries that were stopped in the middle may still run, and abort if Python is taken down under them.
    """
    if code > 128:
        scratch.clean()  # whatever the signal came between
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    return code


def outcome(stop: KeyboardInterrupt) -> tuple[int, str]:
    """Return the exit code of a stopped command, and a word for it.

    Example:
        >>> outcome(Stopped(signal.SIGTERM)), outcome(KeyboardInterrupt())
        ((143, 'terminated'), (130, 'interrupted'))
    """
    _untold.clear()
    number = signal.Signals(stop.number if isinstance(stop, Stopped) else signal.SIGINT)
    return 128 + number, NEWS.get(number, number.name)
