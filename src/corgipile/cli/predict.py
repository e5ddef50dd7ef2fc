"""``corgipile predict``."""

from typing import Annotated, Any

import typer

import corgipile as cp
from corgipile.bars import progress
from corgipile.cli.console import command as guarded
from corgipile.cli.console import printable, show_json
from corgipile.cli.flags import Json, Quiet
from corgipile.cli.opening import source_of
from corgipile.cli.options import Fill, Overwrite, filled
from corgipile.errors import BadArgument
from corgipile.lazy import lazy
from corgipile.suggestions import listed

files = lazy("corgipile.cli.prediction_files")


@guarded
def command(
    model: Annotated[str, typer.Argument(help="Model file.")],
    table: Annotated[list[str], typer.Argument(help="Files, globs or folders, joined to one table.")],
    *,
    out: Annotated[str, typer.Option(help="Output file, .arrow or .npy; - prints one line a row.")] = "-",
    what: Annotated[str, typer.Option(help="predict, predict_proba or decision.")] = "predict",
    missing: Fill = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Predict every row of a table, streaming."""
    kinds: tuple[Any, ...] = ("predict", "predict_proba", "decision")
    if what not in kinds:
        raise BadArgument(f"what must be one of {', '.join(kinds)}, got {what!r}")
    if json and out == "-":
        raise BadArgument("--json needs --out FILE for the predictions")
    trained, opened = filled(cp.load(model), missing), cp.open(source_of(table))
    parts = trained.stream(opened, kinds[kinds.index(what)])
    silent, labels = quiet or json or out == "-", trained.params.get("labels")
    if labels and not (quiet or json):
        typer.echo(printable(f"corgipile: each row has a number for the labels {listed(labels)}"), err=True)
    goal = files.sink(out, next(parts), len(opened), inputs=(model, *table, opened), overwrite=overwrite)
    with progress(f"predict to {out}", quiet=silent) as bar, goal as write:
        done = 0
        for part in parts:
            write(part)
            done += len(part)
            bar(done, len(opened))
    if json:
        show_json({"rows": done, "path": out} | ({"labels": labels} if labels else {}))
    elif out != "-" and not quiet:
        typer.echo(printable(f"{out}: {done:,} rows"))
