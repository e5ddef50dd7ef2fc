"""``corgipile partition``."""

from typing import TYPE_CHECKING, Annotated

import typer

from corgipile.bars import progress
from corgipile.cli.console import command as guarded
from corgipile.cli.console import printable, show_json
from corgipile.cli.flags import Json, Quiet
from corgipile.cli.opening import source_of
from corgipile.cli.options import Seed, number_or_text
from corgipile.errors import BadArgument
from corgipile.lazy import lazy
from corgipile.sizes import format_bytes

if TYPE_CHECKING:
    from corgipile.exchange import LocalPart

exchange = lazy("corgipile.exchange")


@guarded
def command(
    source: Annotated[list[str], typer.Argument(help="Files of the table, or old parts; then the folder to write.")],
    *,
    rank: Annotated[int, typer.Option(help="This rank, from 0.")],
    world: Annotated[int, typer.Option(help="Number of ranks.")],
    by: Annotated[str, typer.Option(help="Initial rows: contiguous, strided, block or balanced.")] = "contiguous",
    label: Annotated[str | None, typer.Option(help="Column that 'balanced' spreads evenly over ranks.")] = None,
    unit: Annotated[str | None, typer.Option(help="What ranks exchange: rows, bytes or share; default: 64KB.")] = None,
    parts: Annotated[bool, typer.Option("--parts", help="Gather the parts of all old ranks, at their epoch.")] = False,
    seed: Seed = 0,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write a rank's part of a table, or of all old parts, to its own disk; an interrupted run can be resumed."""
    *sources, folder = source
    if not sources:
        raise BadArgument(f"partition needs a table and an output folder, got only {folder}")
    size = None if unit is None else number_or_text(unit)
    with progress(f"partition to {folder}", quiet=quiet or json) as bar:
        how = {"by": by, "label": label, "unit": size, "seed": seed, "progress": bar}
        rows = source_of(sources)
        old = [rows] if isinstance(rows, str) else rows
        part = (
            exchange.restage(old, folder, rank, world, **how)
            if parts
            else exchange.stage(rows, folder, rank, world, **how)
        )
    _show(part, quiet=quiet, json=json)


def _show(part: "LocalPart", *, quiet: bool, json: bool) -> None:
    """Show a part's facts."""
    table, facts = part.table, part.header
    rows, size = len(table), table.nbytes
    if json:
        names = ("rank", "world", "by", "unit", "units", "epoch")
        show_json({"path": str(part.folder), "rows": rows, "bytes": size} | {name: facts[name] for name in names})
    elif not quiet:
        units = f"{facts['units']:,} units of {facts['unit']:,}, {format_bytes(size)}"
        place = f"rank {facts['rank']} of {facts['world']}, epoch {part.epoch}"
        typer.echo(printable(f"{part.folder}: {rows:,} rows of {facts['rows']:,}, {units}, {place}"))
