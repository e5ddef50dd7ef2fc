"""``corgipile partition``."""

from typing import TYPE_CHECKING, Annotated

import typer

from corgipile.bars import progress
from corgipile.cli.console import command as guarded
from corgipile.cli.console import printable
from corgipile.cli.flags import Json, Quiet
from corgipile.cli.opening import source_of
from corgipile.cli.options import Seed, number_or_text

if TYPE_CHECKING:
    from corgipile.exchange import LocalPart

Rank = Annotated[int, typer.Option(help="This rank, from 0 on.")]
World = Annotated[int, typer.Option(help="How many ranks there are.")]
By = Annotated[str, typer.Option(help="Rows it begins with: contiguous, strided, block (at random), balanced.")]
Label = Annotated[str | None, typer.Option(help="Column of which 'balanced' gives each rank as many of each value.")]
Unit = Annotated[
    str | None, typer.Option(help="What ranks exchange as a whole: rows, bytes or share; 64KB by default.")
]


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
    """Write a rank's part of a table to its own disk; what was stopped goes on where it stood."""
    from corgipile.errors import BadArgument  # noqa: PLC0415
    from corgipile.exchange import stage  # noqa: PLC0415

    *sources, folder = source
    if not sources:
        raise BadArgument(f"one name given, {folder}; a table and a folder to write are wanted")
    size = None if unit is None else number_or_text(unit)
    with progress(f"partition to {folder}", quiet=quiet or json) as bar:
        found = stage(
            source_of(sources), folder, rank, world, by=by, label=label, unit=size, seed=seed, progress=bar,  # type: ignore[arg-type]  # which it checks
        )  # fmt: skip
    show(found, quiet=quiet, json=json)


def show(part: "LocalPart", *, quiet: bool, json: bool) -> None:
    """Say what a part has."""
    from corgipile.cli.console import show_json  # noqa: PLC0415
    from corgipile.sizes import format_bytes  # noqa: PLC0415

    table, said = part.table, part.said
    rows, size = len(table), table.nbytes
    if json:
        names = ("rank", "world", "by", "unit", "units", "epoch")
        show_json({"path": str(part.folder), "rows": rows, "bytes": size} | {name: said[name] for name in names})
    elif not quiet:
        units = f"{said['units']:,} units of {said['unit']:,}"
        typer.echo(
            printable(
                f"{part.folder}: {rows:,} rows of {said['rows']:,}, {units}, {format_bytes(size)}, "
                f"rank {said['rank']} of {said['world']}, epoch {part.epoch}"
            )
        )
