"""Puts the subcommands together."""

from typing import Annotated

import typer

from corgipile.cli import compare, convert, index, info, pg, predict, reshuffle, train

app = typer.Typer(
    help="Feed SGD from data larger than memory: full-shuffle accuracy at the speed of a sequential read.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for module in (train, predict, compare, convert, reshuffle, info, index):
    app.command(module.__name__.rpartition(".")[2])(module.command)
app.add_typer(pg.group, name="pg")


def _version(wanted: bool) -> None:
    if wanted:
        from corgipile import __version__  # noqa: PLC0415

        typer.echo(f"corgipile {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")] = False,
) -> None:
    del version
