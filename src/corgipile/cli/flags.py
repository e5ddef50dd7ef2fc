"""Options that nearly all subcommands share; this module does not load training code."""

from typing import Annotated

import typer

Tables = Annotated[
    list[str], typer.Argument(help="Files, globs or folders, joined to one table; x.npy,y.npy: features and labels.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, also for errors.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and requested output.")]
