"""``corgipile summary``."""

from typing import Annotated

import typer

from corgipile.cli.console import command as guarded
from corgipile.cli.console import note, printable, show_json, show_table
from corgipile.cli.flags import Json
from corgipile.cli.opening import source_of


@guarded
def command(
    model: Annotated[str, typer.Argument(help="Model file.")],
    table: Annotated[list[str], typer.Argument(help="The rows it was trained on: files, globs or folders.")],
    *,
    label: Annotated[str | None, typer.Option(help="Column of labels; by default that of training.")] = None,
    weight: Annotated[str | None, typer.Option(help="Column of what rows count for; by default as trained.")] = None,
    json: Json = False,
) -> None:
    """Show a model's coefficients with standard errors and p-values."""
    from corgipile import tables  # noqa: PLC0415
    from corgipile.linear import load  # noqa: PLC0415

    found = load(model).summary(tables.open(source_of(table)), label, weight)
    columns = {"coef": found.coef, "standard_error": found.standard_error, "z": found.z, "p": found.p}
    columns |= {"low": found.low, "high": found.high}
    each = zip(*columns.values(), strict=True)
    rows = {name: dict(zip(columns, map(float, row), strict=True)) for name, row in zip(found.names, each, strict=True)}
    if json:
        show_json({"features": rows, "rows": found.rows, "gap": found.gap, "references": found.references})
        return
    lines = [(printable(name), *(f"{value:.5g}" for value in row.values())) for name, row in rows.items()]
    show_table("", ("feature", *(name.replace("_", " ") for name in columns)), lines, spare=("low", "high", "z"))
    note(found.notes)
