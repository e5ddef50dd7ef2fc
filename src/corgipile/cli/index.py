"""``corgipile index``."""

from typing import Annotated

import typer

from corgipile.cli.console import command as guarded
from corgipile.cli.console import printable, show_json
from corgipile.cli.flags import Json, Quiet
from corgipile.cli.opening import Open, options_of
from corgipile.lazy import lazy

opening = lazy("corgipile.tables.opening")


@guarded
def command(
    files: Annotated[
        list[str], typer.Argument(help="CSV, JSON lines, TFRecord, SVMlight or WebDataset files, globs or folders.")
    ],
    *,
    open: Open = None,  # noqa: A002 - the option's name
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write an index of row positions: text (start size) for TFRecord, Arrow for others."""
    written = []
    for index in opening.write_indexes(files, **options_of(open)):
        written.append(index._asdict())
        if not (json or quiet):
            typer.echo(printable(f"{index.path}: {index.rows:,} rows, {index.nbytes:,} bytes"))
    if json:
        show_json(written)
