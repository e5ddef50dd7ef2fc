"""``corgipile evaluate``."""

import math
from typing import Annotated, Any

import typer

import corgipile as cp
from corgipile.cli.console import command as guarded
from corgipile.cli.console import note, printable, show_facts, show_json, show_table, table_width, terminal_width
from corgipile.cli.flags import Json
from corgipile.cli.opening import source_of
from corgipile.cli.options import Fill, columns_of, filled
from corgipile.errors import BadArgument
from corgipile.lazy import lazy

multilabel = lazy("corgipile.linear.multilabel")

MAX_MATRIX_CLASSES, MAX_PAIRS = 12, 10  # classes of a shown matrix; confused pairs shown if it is too wide
MIN_NAME = 8  # characters of a shortened class name
COLUMN_GAP = "  "
BINS = 10


@guarded
def command(
    model: Annotated[str, typer.Argument(help="Model file.")],
    table: Annotated[list[str], typer.Argument(help="Rows to evaluate it on: files, globs or folders.")],
    *,
    label: Annotated[str | None, typer.Option(help="Label column or columns; default: as trained.")] = None,
    weight: Annotated[str | None, typer.Option(help="Weight column; default: each row counts 1.")] = None,
    positive: Annotated[
        str | None, typer.Option(help="Positive class of ROC AUC and calibration; default: the second of two.")
    ] = None,
    bins: Annotated[int, typer.Option(help="Calibration bins.")] = BINS,
    missing: Fill = None,
    on_bad: Annotated[
        str, typer.Option(help="What to do with rows that cannot be evaluated: raise or skip.")
    ] = "raise",
    json: Json = False,
) -> None:
    """Evaluate a model: per class, ROC AUC, calibration and confusion matrix; per label for multi-label models."""
    how: dict[str, Any] = {"positive": positive, "bins": bins, "on_bad": on_bad}
    trained = filled(cp.load(model), missing)
    if isinstance(trained, multilabel.LabelModels):
        _check_labels(positive, bins, on_bad)
        _show_labels(trained, cp.open(source_of(table)), label, weight, json=json)
        return
    evaluation = trained.judge(cp.open(source_of(table)), label, weight, **how)
    classes = [] if evaluation.by_class is None else evaluation.by_class.to_pylist()
    bins_of = [] if evaluation.calibration is None else evaluation.calibration.to_pylist()
    if json:
        show_json(_document(evaluation, classes, bins_of))
        return
    figures = {name.replace("_", " "): _shown(value) for name, value in evaluation.figures.items() if value is not None}
    show_facts(f"{evaluation.rows:,} rows", list(figures.items()))
    if evaluation.skipped:
        what, them = ("row", "it") if evaluation.skipped == 1 else ("rows", "them")
        message = f"{evaluation.skipped:,} {what} skipped: the model cannot be evaluated on {them}"
        typer.echo(f"corgipile: {message}", err=True)
    if classes:
        _show_classes(classes, evaluation.confusion)
    if bins_of:
        names = ("predicted", "observed", "weight")
        rows = [(f"{one['low']:.3g} to {one['high']:.3g}", *(_shown(one[name]) for name in names)) for one in bins_of]
        typer.echo("")
        show_table("", ("probability", *names), rows)


def _check_labels(positive: str | None, bins: int, on_bad: str) -> None:
    """Raise BadArgument for options that multi-label models do not support."""
    for name, given, usual in (("positive", positive, None), ("bins", bins, BINS), ("on-bad", on_bad, "raise")):
        if given != usual:
            raise BadArgument(f"--{name} must be omitted for a model of several labels a row, got {given!r}")


def _show_labels(model: Any, rows: Any, label: str | None, weight: str | None, *, json: bool) -> None:
    """Show the metrics of a multi-label model: overall and per label."""
    figures, each = model.figures(rows, columns_of(label), weight)
    labels = each.to_pylist()
    if json:
        show_json({"figures": figures, "rows": len(rows), "labels": labels})
        return
    facts = {name.replace("_", " "): _shown(value) for name, value in figures.items()}
    show_facts(f"{len(rows):,} rows", list(facts.items()))
    _show_each(["label", "precision", "recall", "f1", "weight"], labels)


def _show_each(head: list[str], each: list[dict[str, Any]]) -> list[str]:
    """Show the metrics of each class or label, numbered and shortened if too wide; return the whole names."""
    names = [printable(str(one[head[0]])) for one in each]
    figures = [tuple(map(_shown, list(one.values())[1:])) for one in each]
    left = terminal_width() - table_width(head[1:], figures) - len(COLUMN_GAP)
    fitting = names if max(map(len, names)) <= left else _numbered(names, left)
    typer.echo("")
    show_table("", head, [(name, *one) for name, one in zip(fitting, figures, strict=True)])
    return names


def _show_classes(classes: list[dict[str, Any]], confusion: Any) -> None:
    names = _show_each(list(classes[0]), classes)
    if len(classes) > MAX_MATRIX_CLASSES:
        note(f"use --json for the confusion matrix of {len(classes)} classes")
        return
    typer.echo("")
    _show_confusion(names, confusion.tolist())


def _show_confusion(names: list[str], confusion: list[list[float]]) -> None:
    """Show the confusion matrix with class names, or with numbers if too wide, else only the largest errors."""
    head, cells = ["actual", *(f"predicted {name}" for name in names)], [tuple(map(_shown, line)) for line in confusion]
    rows = [(name, *line) for name, line in zip(names, cells, strict=True)]
    if table_width(head, rows) <= terminal_width():
        show_table("", head, rows)
        return
    numbers = [str(at) for at in range(1, len(names) + 1)]
    left = terminal_width() - table_width(numbers, cells) - len(COLUMN_GAP)
    if left >= MIN_NAME:
        named = _numbered(names, left)
        show_table("", ["actual", *numbers], [(name, *line) for name, line in zip(named, cells, strict=True)])
        note("columns: the predicted class, by number")
        return
    cells_of = ((-count, at, to) for at, line in enumerate(confusion) for to, count in enumerate(line) if at != to)
    worst = [(at, to, _shown(-count)) for count, at, to in sorted(cells_of)[:MAX_PAIRS] if count]
    wide = max((len(shown) for *_, shown in worst), default=0)
    short = _numbered(names, (terminal_width() - max(wide, len("weight")) - 2 * len(COLUMN_GAP)) // 2)
    show_table("", ["actual", "predicted", "weight"], [(short[at], short[to], shown) for at, to, shown in worst])
    note(f"the confusion matrix of {len(names)} classes is wider than the terminal; use --json for all of it")


def _numbered(names: list[str], wide: int) -> list[str]:
    """Prefix names with their numbers and shorten long ones in the middle.

    Example:
        >>> _numbered(["pear", "apple of the orchard"], 12)
        ['1 pear', '2 app...hard']
    """
    numbered, wide = [f"{at} {name}" for at, name in enumerate(names, 1)], max(wide, MIN_NAME)
    return [
        name if len(name) <= wide else f"{name[: wide // 2 - 1]}...{name[wide // 2 + 2 - wide :]}" for name in numbered
    ]


def _document(evaluation: Any, classes: list[dict[str, Any]], bins_of: list[dict[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {"figures": evaluation.figures, "rows": evaluation.rows, "skipped": evaluation.skipped}
    if classes:
        document["classes"] = classes
    if evaluation.confusion is not None:
        document["confusion"] = evaluation.confusion.tolist()
    return document | ({"calibration": bins_of} if bins_of else {})


def _shown(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.5g}" if value < 1e5 else f"{value:.0f}"
