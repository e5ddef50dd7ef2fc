"""``corgipile search``."""

from typing import Annotated, Any

import typer

from corgipile import tables
from corgipile.bars import Watch, progress
from corgipile.cli.console import command as guarded
from corgipile.cli.console import printable, show_json, show_table
from corgipile.cli.flags import Json, Quiet, Tables
from corgipile.cli.opening import source_of
from corgipile.cli.options import Overwrite, read, with_settings
from corgipile.errors import BadArgument
from corgipile.linear.saving import MODEL
from corgipile.linear.search import GRID_SETTINGS, SearchArguments, search
from corgipile.tables.inputs import check_target

Grid = Annotated[
    list[str] | None, typer.Option("--grid", help="Values of a setting: l2=0,1e-4; repeat for all combinations.")
]
Save = Annotated[str | None, typer.Option(help="File for the best model, trained on all rows.")]


@guarded
@with_settings(SearchArguments)
def command(
    table: Tables,
    *,
    grid: Grid = None,
    save: Save = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
    **written: Any,
) -> None:
    """Cross-validate models of many settings at once, from one read of the table."""
    if save is not None:
        check_target(save, MODEL, inputs=(table,), overwrite=overwrite)
    opened = tables.open(source_of(table))
    settings = read(written) | {"refit": save is not None}
    with progress("search", quiet=quiet or json) as bar:
        watch = Watch(bar, len(opened) * settings["epochs"])
        result = search(opened, grid=_grid(grid or []), on_rows=watch.rows, **settings)
    if result.model is not None and save is not None:
        result.model.save(save, overwrite=overwrite)
    if json:
        show_json({"metric": result.metric, "best": result.best, "results": result.results, "path": save})
    elif not quiet or save is None:
        _show(result, result.results[:1] if quiet else result.results)
        if save is not None:
            typer.echo(printable(f"model written to {save}"))


def _grid(written: list[str]) -> dict[str, list[Any]]:
    """Parse values by setting.

    Example:
        >>> _grid(["l2=0,1e-4", "average=true,false"])
        {'l2': [0.0, 0.0001], 'average': [True, False]}
    """
    grid: dict[str, list[Any]] = {}
    for word in written:
        name, _, values = word.partition("=")
        name = name.strip().replace("-", "_")
        if not values or name in grid:
            raise BadArgument(f"--grid must be NAME=VALUE,VALUE with each name once, got {word!r}")
        grid[name] = [_value(name, text.strip()) for text in values.split(",")]
    return grid


def _value(name: str, text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text) if name == "batch_size" else float(text)
    except ValueError:
        return text


def _show(result: Any, results: list[dict[str, Any]]) -> None:
    """Show results as a table."""
    names = list(dict.fromkeys(name for record in result.results for name in record if name in GRID_SETTINGS))
    lines = [
        (
            *(str(record.get(name, "")) for name in names),
            f"{record['score']:.4f} ± {record['score_spread']:.4f}",
            f"{record['loss']:.4g} ± {record['loss_spread']:.2g}",
        )
        for record in results
    ]
    show_table("", (*names, f"held-out {result.metric}", "held-out loss"), lines)
