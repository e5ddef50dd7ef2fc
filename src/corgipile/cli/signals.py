"""Handling of signals: the first stops a command after its cleanup, a second ends it at once."""

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
RESEND_SECONDS = 0.01
_unreported: list[int] = []  # signals not yet shown to the user


class Stopped(KeyboardInterrupt):
    """Raised for a signal, so that cleanup for Ctrl-C runs for it too."""

    def __init__(self, number: int) -> None:
        self.number = number


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Raise Stopped for the first signal; ignored signals and custom handlers are left alone.

    Example:
        >>> with stoppable():
        ...     signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        False
        >>> signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        True
    """
    before = {}
    _unreported.clear()
    if threading.current_thread() is threading.main_thread():
        usual = (signal.SIG_DFL, signal.default_int_handler)
        before = {number: handler for number in SIGNALS if (handler := signal.getsignal(number)) in usual}
    for number in before:
        signal.signal(number, _stop)
    hook = sys.unraisablehook
    sys.unraisablehook = lambda what: _resend(what.exc_value) if isinstance(what.exc_value, Stopped) else hook(what)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, _: FrameType | None) -> None:
    for one in SIGNALS:
        if signal.getsignal(one) is _stop:
            signal.signal(one, signal.SIG_DFL)
    _unreported.append(number)
    raise Stopped(number)


def _resend(stop: Stopped) -> None:
    """Send a signal again shortly after, since Python drops exceptions raised in finalizers."""
    signal.signal(stop.number, _stop)
    later = threading.Timer(RESEND_SECONDS, signal.pthread_kill, (threading.main_thread().ident, stop.number))
    later.daemon = True
    later.start()


def check_lost_signal() -> None:
    """Raise Stopped again if it was lost: during parsing and loading, typer turns it into a bare exit code."""
    if _unreported:
        raise Stopped(_unreported[0])


def leave(code: int) -> int:
    """Return an exit code; for a stopped command, end the process.

    Library threads may still run and abort during Python's shutdown.
    """
    if code > 128:
        scratch.clean()  # the signal may have interrupted a cleanup
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    return code


def outcome(stop: KeyboardInterrupt) -> tuple[int, str]:
    """Return the exit code of a stopped command and a word for its signal.

    Example:
        >>> outcome(Stopped(signal.SIGTERM)), outcome(KeyboardInterrupt())
        ((143, 'terminated'), (130, 'interrupted'))
    """
    _unreported.clear()
    number = signal.Signals(stop.number if isinstance(stop, Stopped) else signal.SIGINT)
    return 128 + number, NEWS.get(number, number.name)
