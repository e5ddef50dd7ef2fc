"""``corgipile summary``."""

from typing import Annotated

import typer

import corgipile as cp
from corgipile.cli.console import command as guarded
from corgipile.cli.console import note, printable, show_json, show_table
from corgipile.cli.flags import Json
from corgipile.cli.opening import source_of


@guarded
def command(
    model: Annotated[str, typer.Argument(help="Model file.")],
    table: Annotated[list[str], typer.Argument(help="The training rows: files, globs or folders.")],
    *,
    label: Annotated[str | None, typer.Option(help="Label column; default: as trained.")] = None,
    weight: Annotated[str | None, typer.Option(help="Weight column; default: as trained.")] = None,
    json: Json = False,
) -> None:
    """Show a model's coefficients with standard errors and p-values."""
    summary = cp.load(model).summary(cp.open(source_of(table)), label, weight)
    columns = {"coef": summary.coef, "standard_error": summary.standard_error, "z": summary.z, "p": summary.p}
    columns |= {"low": summary.low, "high": summary.high}
    each = (dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True))
    rows = dict(zip(summary.names, each, strict=True))
    if json:
        show_json({"features": rows, "rows": summary.rows, "gap": summary.gap, "references": summary.references})
        return
    lines = [(printable(name), *(f"{value:.5g}" for value in row.values())) for name, row in rows.items()]
    show_table("", ("feature", *(name.replace("_", " ") for name in columns)), lines, spare=("low", "high", "z"))
    note(summary.notes)
