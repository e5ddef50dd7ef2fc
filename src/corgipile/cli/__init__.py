"""The command line: ``corgipile train | predict | compare | convert | reshuffle | info | index | pg``."""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 2 bad request, 130 interrupted.

    Args:
        arguments: Words of the command; those of the process by default.

    Example:
        >>> main(["--version"])
        corgipile 0.1.0
        0
    """
    try:
        from corgipile.cli.app import app  # noqa: PLC0415 - typer is an extra
    except ImportError as error:
        from corgipile.errors import MissingExtra  # noqa: PLC0415

        print(
            MissingExtra(f"the command line needs {error.name}: pip install 'corgipile[cli]'"),
            file=sys.stderr,
        )
        return 2
    try:
        app(list(sys.argv[1:] if arguments is None else arguments), prog_name="corgipile")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
