"""``corgipile judge``."""

import math
from typing import Annotated, Any

import typer

from corgipile.cli.console import command as guarded
from corgipile.cli.console import note, printable, show_facts, show_json, show_table
from corgipile.cli.flags import Json
from corgipile.cli.opening import source_of
from corgipile.cli.options import Fill, filled

MOST_SHOWN = 12  # classes whose matrix is shown


@guarded
def command(
    model: Annotated[str, typer.Argument(help="Model file.")],
    table: Annotated[list[str], typer.Argument(help="Rows to judge it by: files, globs or folders.")],
    *,
    label: Annotated[str | None, typer.Option(help="Column of labels; by default that of training.")] = None,
    weight: Annotated[str | None, typer.Option(help="Column of what rows count for; by default each for 1.")] = None,
    positive: Annotated[str | None, typer.Option(help="Class of area and calibration; the second of two.")] = None,
    bins: Annotated[int, typer.Option(help="Bins of probabilities.")] = 10,
    missing: Fill = None,
    on_bad: Annotated[
        str, typer.Option(help="What to do with rows that the model cannot be judged by: raise or skip.")
    ] = "raise",
    json: Json = False,
) -> None:
    """Show how well a model does on rows: by class, by rank and by probability."""
    from corgipile import tables  # noqa: PLC0415
    from corgipile.linear import load  # noqa: PLC0415

    how: dict[str, Any] = {"positive": positive, "bins": bins, "on_bad": on_bad}
    found = filled(load(model), missing).judge(tables.open(source_of(table)), label, weight, **how)
    classes = [] if found.by_class is None else found.by_class.to_pylist()
    bins_of = [] if found.calibration is None else found.calibration.to_pylist()
    if json:
        show_json(_document(found, classes, bins_of))
        return
    figures = {name.replace("_", " "): _shown(value) for name, value in found.figures.items() if value is not None}
    show_facts(f"{found.rows:,} rows", list(figures.items()))
    if found.skipped:
        what, them = ("row", "it") if found.skipped == 1 else ("rows", "them")
        typer.echo(f"corgipile: {found.skipped:,} {what} skipped: the model cannot be judged by {them}", err=True)
    if classes:
        _show_classes(classes, found.confusion)
    if bins_of:
        head = ("probability", "predicted", "observed", "weight")
        rows = [
            (f"{one['low']:.3g} to {one['high']:.3g}", *(_shown(one[name]) for name in head[1:])) for one in bins_of
        ]
        typer.echo("")
        show_table("", head, rows)


def _show_classes(classes: list[dict[str, Any]], confusion: Any) -> None:
    head, names = list(classes[0]), [printable(str(one["class"])) for one in classes]
    typer.echo("")
    show_table("", head, [(str(one["class"]), *map(_shown, list(one.values())[1:])) for one in classes])
    if len(classes) > MOST_SHOWN:
        note(f"the confusion matrix of {len(classes)} classes is in --json")
        return
    typer.echo("")
    rows = [(name, *map(_shown, line)) for name, line in zip(names, confusion.tolist(), strict=True)]
    show_table("", ["actual", *(f"taken for {name}" for name in names)], rows)


def _document(found: Any, classes: list[dict[str, Any]], bins_of: list[dict[str, Any]]) -> dict[str, Any]:
    said: dict[str, Any] = {"figures": found.figures, "rows": found.rows, "skipped": found.skipped}
    if classes:
        said["classes"] = [{name: _number(value) for name, value in one.items()} for one in classes]
    if found.confusion is not None:
        said["confusion"] = found.confusion.tolist()
    return said | ({"calibration": bins_of} if bins_of else {})


def _number(value: Any) -> Any:
    """Return what JSON has for it."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _shown(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.5g}" if value < 1e5 else f"{value:.0f}"
