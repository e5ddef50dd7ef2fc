"""Puts the subcommands together."""

import sys
from typing import Annotated

import typer

from corgipile.cli import compare, convert, index, info, pg, predict, reshuffle, sql, train
from corgipile.cli.console import discard_output, fail
from corgipile.cli.opening import with_opening
from corgipile.outputs import writing

app = typer.Typer(
    help="Feed SGD from data larger than memory: full-shuffle accuracy at the speed of a sequential read.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (sql, train, predict, compare, convert, reshuffle, info, index):
    command = module.command if module in {sql, index} else with_opening(module.command)
    app.command(module.__name__.rpartition(".")[2])(command)
app.add_typer(pg.group, name="pg")


def run(words: list[str]) -> int:
    """Run a command and return its exit code; what it printed is then on its way."""
    json = "--json" in words
    words = [f" {word}" if word[:2] == "--" and word[2:3].isspace() else word for word in words]  # a comment of SQL
    try:
        # As JSON, what typer says of wrong words is printed by us.
        code = app(words, prog_name="corgipile", standalone_mode=not json) or 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except OSError as error:  # of what typer prints itself, help for one
        discard_output()
        return fail(f"cannot write the output: {error.strerror}", type(error).__name__, json=json, code=2)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        code = fail(error.format_message(), "Usage", json=True, code=2)
    return int(code) or _flushed(json=json)


def _flushed(*, json: bool) -> int:
    """Write out what was printed; return 2 where it cannot be."""
    try:
        with writing("the output"):
            sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
    except OSError as error:
        discard_output()
        return fail(str(error), type(error).__name__, json=json, code=2)
    return 0


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
