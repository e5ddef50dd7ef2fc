"""``corgipile compare``."""

from collections.abc import Sequence
from typing import Any

import typer

from corgipile import tables
from corgipile.bars import Watch, progress, rate
from corgipile.cli.console import command as guarded
from corgipile.cli.console import note, printable, show_json, show_table
from corgipile.cli.flags import Json, Quiet, Tables
from corgipile.cli.opening import source_of
from corgipile.cli.options import Overwrite, read, with_settings
from corgipile.cli.pages import Html, check_page, command_text, without_secrets
from corgipile.cli.signals import outcome
from corgipile.comparison import ORDERS, CompareArguments, compare
from corgipile.environment import machine
from corgipile.errors import CorgiPileError
from corgipile.planner import choose
from corgipile.proof import Compared, comparison_page
from corgipile.proof.comparison import repaid
from corgipile.sizes import format_bytes


@guarded
@with_settings(CompareArguments)
def command(
    table: Tables,
    *,
    html: Html = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
    **written: Any,
) -> None:
    """Train one model by every order on the same table: accuracy, loss, speed, memory and deff."""
    if html is not None:
        check_page(html, [table, written["test"]], overwrite=overwrite)
    opened = tables.open(source_of(table))
    order, test = written.pop("order"), written.pop("test")
    names = ORDERS if order is None else tuple(name.strip() for name in order.split(",") if name.strip())
    settings = read(written)
    epochs, seeds = settings["epochs"], settings["seeds"]
    results: list[Any] = []
    title = f"{settings['model']}, {len(opened):,} rows, {epochs} epochs, memory {written['memory']}"
    title += f", {seeds} seeds" * (seeds > 1)
    stop = None
    try:
        with progress("compare", quiet=quiet or json) as bar:
            watch = Watch(bar, len(opened) * epochs * len(names) * max(1, seeds))

            def finished(result: Any) -> None:
                results.append(result)
                watch.note(_news(result))

            source = None if test is None else source_of(test, test=True)
            options = settings | {"audited": html is not None}
            compare(opened, test=source, order=names, callback=finished, on_rows=watch.rows, **options)
    except KeyboardInterrupt as signal:
        stop = signal  # still show the finished orders
    if json:
        document = _document(table, opened, settings | {"order": names, "test": test})
        facts = [{**vars(one), "audit": _audit(one)} for one in results]
        show_json(document | {"stopped": stop is not None, "results": facts})
    elif results:
        show(results, title, held_out=test is not None)
    if html is not None and results:
        choice = None if stop else _choice(opened, settings)
        known = {name: settings[name] for name in ("model", "epochs")}
        of = Compared(
            " ".join(map(without_secrets, table)), len(opened), opened.nbytes, memory=written["memory"], **known,
            held_out=test is not None, choice=choice, command=command_text(),
        )  # fmt: skip
        comparison_page(results, of).save(html, inputs=[opened, source_of(table)], overwrite=overwrite)
    if stop is not None:
        code, word = outcome(stop)
        typer.echo(f"corgipile: {word}", err=True)
        raise typer.Exit(code)
    if all(result.failure for result in results):
        raise typer.Exit(1)


def _document(paths: Sequence[str], table: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the provenance of the results."""
    facts = {"paths": paths, "rows": len(table), "bytes": table.nbytes, "fingerprint": table.fingerprint}
    shared = {name: settings[name] for name in ("memory", "model", "epochs")}
    return {"rows": len(table), **shared, "table": facts, "settings": settings, **machine()}


def _choice(opened: Any, settings: dict[str, Any]) -> Any:
    """Plan blocks of several sizes for the page; None if none fits."""
    try:
        return choose(opened, memory=settings["memory"], batch_size=settings["batch"], label=settings["label"])
    except CorgiPileError as error:
        typer.echo(f"corgipile: the page has no block sizes: {printable(str(error))}", err=True)
        return None


def _audit(result: Any) -> dict[str, Any] | None:
    """Return the audit of a loader for JSON, without the places of single rows."""
    if result.audit is None:
        return None
    facts = result.audit.as_dict()
    return {**facts, "epochs": [{**epoch, "places": None} for epoch in facts["epochs"]]}


def _news(result: Any) -> str:
    return f"{result.order}: {(result.failure and 'failed') or f'{result.metric} {result.score:.4f}'}"


def show(results: Sequence[Any], title: str, *, held_out: bool) -> None:
    """Print the results of a comparison as a table, with notes on its columns."""
    metric = next((result.metric for result in results if not result.failure), "accuracy")
    score = f"{'test' if held_out else 'train'} {metric}"
    head = ("order", score, "loss", "s/ epoch", "rows/s", "read/ epoch", "buffer", "deff")
    cells = [(result.order, *(_cells(result, metric) or "-" * (len(head) - 1))) for result in results]
    show_table(title, head, cells, spare=("read/ epoch", "buffer", "loss"))
    for result in results:
        if result.setup_seconds:
            once = f"{result.setup_seconds:.2f} s more for writing the table once"
            note(f"{result.order}: {once}, {repaid(result, results)}.")
        if result.failure or result.warning:
            note(f"{result.order}: {result.failure or result.warning}", indent="  ")
    rows = "held-out rows" if held_out else "the rows trained on"
    note(f"{score}, loss: the model after the last epoch, on {rows}.")
    note("deff: how unevenly labels are spread over batches; 1 is a full shuffle, less is better.")


def _cells(result: Any, metric: str) -> tuple[str, ...]:
    if result.failure:
        return ()
    share = metric == "accuracy"
    score, spread = (f"{100 * one:.2f}" if share else f"{one:.4f}" for one in (result.score, result.spread))
    return (
        f"{score}{f' ± {spread}' * (result.seeds > 1)}{' %' * share}",
        f"{result.loss:.4g}",
        f"{result.seconds:.3f}",
        rate(result.rows_per_second, 1.0),
        format_bytes(result.bytes_read),
        format_bytes(result.buffer_bytes),
        f"{result.deff:.2f}",
    )
