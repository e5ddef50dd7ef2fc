"""Starts the command line: Ctrl-C while the libraries load ends the process, and shows no traceback.

It lies beside the package, since whatever is in the package loads the package first.
"""

import signal


def main() -> int:
    """Load and run the command line; return its exit code."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from corgipile.cli import main as run  # noqa: PLC0415 - after the signal is seen to
    from corgipile.cli.signals import leave  # noqa: PLC0415

    if usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return leave(run())
