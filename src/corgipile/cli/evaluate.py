"""``corgipile evaluate``."""

import math
from typing import Annotated, Any

import typer

from corgipile.cli.console import command as guarded
from corgipile.cli.console import note, printable, show_facts, show_json, show_table, table_width, terminal_width
from corgipile.cli.flags import Json
from corgipile.cli.opening import source_of
from corgipile.cli.options import Fill, filled
from corgipile.errors import BadArgument

MOST_SHOWN, MOST_PAIRS = 12, 10  # classes whose matrix is shown; pairs of classes, where it is too wide
LEAST_NAME = 8  # characters of a class that is cut
GAP = "  "  # between columns
BINS = 10


@guarded
def command(
    model: Annotated[str, typer.Argument(help="Model file.")],
    table: Annotated[list[str], typer.Argument(help="Rows to judge it by: files, globs or folders.")],
    *,
    label: Annotated[
        str | None, typer.Option(help="Column of labels, or several; by default those of training.")
    ] = None,
    weight: Annotated[str | None, typer.Option(help="Column of what rows count for; by default each for 1.")] = None,
    positive: Annotated[str | None, typer.Option(help="Class of area and calibration; the second of two.")] = None,
    bins: Annotated[int, typer.Option(help="Bins of probabilities.")] = BINS,
    missing: Fill = None,
    on_bad: Annotated[
        str, typer.Option(help="What to do with rows that the model cannot be judged by: raise or skip.")
    ] = "raise",
    json: Json = False,
) -> None:
    """Show how well a model does on rows: by class, by rank and by probability; of several labels a row, by label."""
    from corgipile import tables  # noqa: PLC0415
    from corgipile.linear import load  # noqa: PLC0415
    from corgipile.linear.multilabel import LabelModels  # noqa: PLC0415

    how: dict[str, Any] = {"positive": positive, "bins": bins, "on_bad": on_bad}
    learnt = filled(load(model), missing)
    if isinstance(learnt, LabelModels):
        _check_labels(positive, bins, on_bad)
        _judge_labels(learnt, tables.open(source_of(table)), label, weight, json=json)
        return
    found = learnt.judge(tables.open(source_of(table)), label, weight, **how)
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


def _check_labels(positive: str | None, bins: int, on_bad: str) -> None:
    """Raise BadArgument where options are given that say nothing of several labels a row."""
    for name, given, usual in (("positive", positive, None), ("bins", bins, BINS), ("on-bad", on_bad, "raise")):
        if given != usual:
            raise BadArgument(f"--{name} is of one label a row, and the model tells several; got {given!r}")


def _judge_labels(model: Any, rows: Any, label: str | None, weight: str | None, *, json: bool) -> None:
    """Show how well a model of several labels a row does: all together, and each."""
    columns = label.split(",") if label is not None and "," in label else label
    figures, each = model.figures(rows, columns, weight)
    labels = each.to_pylist()
    if json:
        document = {"figures": figures, "rows": len(rows)}
        show_json(document | {"labels": [{name: _number(value) for name, value in one.items()} for one in labels]})
        return
    facts = {name.replace("_", " "): _shown(value) for name, value in figures.items()}
    show_facts(f"{len(rows):,} rows", list(facts.items()))
    typer.echo("")
    head = ["label", "precision", "recall", "f1", "weight"]
    shown = [tuple(map(_shown, list(one.values())[1:])) for one in labels]
    names = _fitting([printable(str(one["label"])) for one in labels], head[1:], shown)
    show_table("", head, [(name, *one) for name, one in zip(names, shown, strict=True)])


def _fitting(names: list[str], head: list[str], rows: list[tuple[str, ...]]) -> list[str]:
    """Return names of rows, numbered and cut where they are too wide for the terminal."""
    left = terminal_width() - table_width(head, rows) - len(GAP)
    return names if max(map(len, names)) <= left else _numbered(names, left)


def _show_classes(classes: list[dict[str, Any]], confusion: Any) -> None:
    head, names = list(classes[0]), [printable(str(one["class"])) for one in classes]
    figures = [tuple(map(_shown, list(one.values())[1:])) for one in classes]
    names = _fitting(names, head[1:], figures)
    typer.echo("")
    show_table("", head, [(name, *one) for name, one in zip(names, figures, strict=True)])
    if len(classes) > MOST_SHOWN:
        note(f"the confusion matrix of {len(classes)} classes is in --json")
        return
    typer.echo("")
    _show_confusion([printable(str(one["class"])) for one in classes], confusion.tolist())


def _show_confusion(names: list[str], confusion: list[list[float]]) -> None:
    """Show the matrix by the names of classes, by their numbers where that is too wide, else the worst of it."""
    head, cells = ["actual", *(f"taken for {name}" for name in names)], [tuple(map(_shown, line)) for line in confusion]
    rows = [(name, *line) for name, line in zip(names, cells, strict=True)]
    if table_width(head, rows) <= terminal_width():
        show_table("", head, rows)
        return
    numbers = [str(at) for at in range(1, len(names) + 1)]
    left = terminal_width() - table_width(numbers, cells) - len(GAP)
    if left >= LEAST_NAME:
        named = _numbered(names, left)
        show_table("", ["actual", *numbers], [(name, *line) for name, line in zip(named, cells, strict=True)])
        note("columns: what rows were taken for, by the numbers of the classes")
        return
    off = [(-count, at, said) for at, line in enumerate(confusion) for said, count in enumerate(line) if at != said]
    worst = [(at, said, _shown(-count)) for count, at, said in sorted(off)[:MOST_PAIRS] if count]
    wide = max((len(shown) for *_, shown in worst), default=0)
    short = _numbered(names, (terminal_width() - max(wide, len("weight")) - 2 * len(GAP)) // 2)
    show_table("", ["actual", "taken for", "weight"], [(short[at], short[said], shown) for at, said, shown in worst])
    note(f"the confusion matrix of {len(names)} classes is wider than the terminal; all of it is in --json")


def _numbered(names: list[str], wide: int) -> list[str]:
    """Return names with their numbers before them; of those longer than so many characters the middle is left out.

    Example:
        >>> _numbered(["pear", "apple of the orchard"], 12)
        ['1 pear', '2 app...hard']
    """
    found, wide = [f"{at} {name}" for at, name in enumerate(names, 1)], max(wide, LEAST_NAME)
    return [
        name if len(name) <= wide else f"{name[: wide // 2 - 1]}...{name[wide // 2 + 2 - wide :]}" for name in found
    ]


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
