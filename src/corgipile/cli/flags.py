"""What nearly all subcommands are told; nothing of training is loaded for it."""

from typing import Annotated

import typer

Tables = Annotated[
    list[str], typer.Argument(help="Files, globs or folders; many are one table; x.npy,y.npy has features and labels.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document only, of errors too.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors, and what is asked for.")]
