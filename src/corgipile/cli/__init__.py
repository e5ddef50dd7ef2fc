"""Command line: ``corgipile sql | train | predict | compare | convert | reshuffle | info | index | ...``."""

import sys
from collections.abc import Sequence

from corgipile.cli.signals import check_lost_signal, outcome, stoppable
from corgipile.errors import MissingExtra
from corgipile.lazy import lazy

__all__ = ["main"]

application = lazy("corgipile.cli.app")  # needs typer


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 success, 1 no result, 2 bad request, 128 + n for signal n.

    Args:
        arguments: The command's words; by default the process's.

    Example:
        >>> main(["--version"])
        corgipile 0.1.0
        0
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with stoppable():
            code = _run(words)
            check_lost_signal()
            return code
    except KeyboardInterrupt as stop:
        code, word = outcome(stop)
        print(f"corgipile: {word}", file=sys.stderr)
        return code


def _run(words: list[str]) -> int:
    try:
        run = application.run
    except ImportError as error:
        print(MissingExtra(f"the command line needs {error.name}: pip install 'corgipile[cli]'"), file=sys.stderr)
        return 2
    return int(run(words))
