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

Rank = Annotated[int, typer.Option(help="This rank, from 0.")]
World = Annotated[int, typer.Option(help="Number of ranks.")]
By = Annotated[str, typer.Option(help="Initial rows: contiguous, strided, block (random blocks) or balanced.")]
Label = Annotated[str | None, typer.Option(help="Column whose values 'balanced' spreads evenly over ranks.")]
Unit = Annotated[str | None, typer.Option(help="Unit that ranks exchange: rows, bytes or share; default: 64KB.")]


@guarded
def command(
    source: Annotated[list[str], typer.Argument(help="Files of the table, then the folder to write.")],
    *,
    rank: Rank,
    world: World,
    by: By = "contiguous",
    label: Label = None,
    unit: Unit = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write a rank's part of a table to its own disk; an interrupted run can be resumed."""
    *sources, folder = source
    if not sources:
        raise BadArgument(f"partition needs a table and an output folder, got only {folder}")
    size = None if unit is None else number_or_text(unit)
    with progress(f"partition to {folder}", quiet=quiet or json) as bar:
        part = exchange.stage(
            source_of(sources), folder, rank, world, by=by, label=label, unit=size, seed=seed, progress=bar,
        )  # fmt: skip
    show(part, quiet=quiet, json=json)


def show(part: "LocalPart", *, quiet: bool, json: bool) -> None:
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
