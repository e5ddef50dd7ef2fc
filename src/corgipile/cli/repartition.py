"""``corgipile repartition``."""

from typing import Annotated

import typer

from corgipile.bars import progress
from corgipile.cli.console import command as guarded
from corgipile.cli.flags import Json, Quiet
from corgipile.cli.options import Seed, number_or_text
from corgipile.cli.partition import By, Label, Rank, Unit, World, show
from corgipile.lazy import lazy

exchange = lazy("corgipile.exchange")


@guarded
def command(
    parts: Annotated[list[str], typer.Argument(help="The parts of all old ranks, then the output folder.")],
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
    """Write a rank's part for another number of ranks from all old parts, at their epoch."""
    *old, folder = parts
    size = None if unit is None else number_or_text(unit)
    with progress(f"repartition to {folder}", quiet=quiet or json) as bar:
        part = exchange.restage(
            old, folder, rank, world, by=by, label=label, unit=size, seed=seed, progress=bar,
        )  # fmt: skip
    show(part, quiet=quiet, json=json)
