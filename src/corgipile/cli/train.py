"""``corgipile train``."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

import corgipile as cp
from corgipile.bars import Watch, progress, rate
from corgipile.cli.console import command as guarded
from corgipile.cli.console import note, printable, show_json, show_table
from corgipile.cli.flags import Json, Quiet, Tables
from corgipile.cli.opening import source_of
from corgipile.cli.options import Balance, Block, Buffer, order_of, read, with_settings
from corgipile.errors import DivergenceWarning, LeftOutWarning
from corgipile.lazy import lazy
from corgipile.settings import TrainArguments

inputs = lazy("corgipile.tables.inputs")
saving = lazy("corgipile.linear.saving")
training = lazy("corgipile.linear.train")
ranks_of = lazy("corgipile.torch.linear")

RUNNING = ("loss", "accuracy", "r2")
SKIPPED = {
    "skipped": "skipped in the last epoch: they cannot be trained on",
    "test_skipped": "of the test table skipped: the model cannot be evaluated on them",
}


@guarded
@with_settings(TrainArguments)
def command(
    table: Tables,
    *,
    block: Block = None,
    buffer: Buffer = None,
    balance: Balance = None,
    quiet: Quiet = False,
    json: Json = False,
    sync: Annotated[
        str, typer.Option(metavar="batch|epoch", help="Under torchrun: when ranks average their weights.")
    ] = "batch",
    **settings: Any,
) -> None:
    """Train a linear model by SGD from a table of any size; under torchrun, on all ranks."""
    several_ranks = int(os.environ.get("WORLD_SIZE", "1")) > 1
    is_follower = several_ranks and os.environ.get("RANK", "0") != "0"
    quiet = quiet or is_follower  # rank 0 reports for all
    save, test = settings["save"], settings["test"]
    if save is not None:
        inputs.check_target(save, saving.MODEL, inputs=(table, [test] if test else []), overwrite=settings["overwrite"])
    opened, several = cp.open(source_of(table)), bool(settings["by"] or settings["labels"])
    with (
        progress("train", quiet=quiet or json) as bar,
        _resumable(save, several=several),
        _collect_warnings(quiet=quiet or json) as (diverged, left_out),
    ):
        train_rows = len(opened) * (1.0 - (settings["validation"] or 0.0))
        watch = Watch(bar, int(train_rows) * settings["epochs"])
        order = order_of(settings["order"], block, buffer, balance, settings["label"])
        given = read(settings) | {"order": order}
        say = lambda record: watch.note(f"epoch {record['epoch']}: loss {record['loss']:.4g}")  # noqa: E731
        with ranks_of.launched(sync) if several_ranks else nullcontext() as ranks:
            arguments = TrainArguments(opened, **given, callback=say, on_rows=watch.rows)
            trained = training.train_among(arguments.checked(), ranks)
    if is_follower:
        return
    if json:
        show_json(_document(trained, save, diverged=bool(diverged)))
    elif not quiet:
        _show(trained.history, save, several=several)
    for text in [*left_out, *diverged]:
        typer.echo(f"corgipile: {printable(text)}", err=True)
    if diverged:
        raise typer.Exit(1)


def _document(model: Any, path: str | None, *, diverged: bool) -> dict[str, Any]:
    """Return the facts of a model for JSON."""
    named = {name: getattr(model, name) for name in ("features", "label", "left_out")}
    facts = {"model": model.kind, "shape": model.coef.shape, **named, "diverged": diverged}
    return facts | {name: getattr(model, name) for name in ("params", "notes", "history")} | {"path": path}


class _Lines(logging.Handler):
    """Writes log records to stderr, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(f"corgipile: {printable(record.getMessage())}", err=True)


@contextmanager
def _collect_warnings(*, quiet: bool) -> Iterator[tuple[list[str], list[str]]]:
    """Show log lines unless quiet; collect warnings about divergence and ignored columns for the end."""
    collected: dict[type[Warning], list[str]] = {DivergenceWarning: [], LeftOutWarning: []}
    log, lines = logging.getLogger("corgipile"), logging.NullHandler() if quiet else _Lines()
    before = log.level, log.propagate
    log.addHandler(lines)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        with warnings.catch_warnings(record=True) as caught:
            for kind in collected:
                warnings.simplefilter("always", kind)
            yield collected[DivergenceWarning], collected[LeftOutWarning]
            for kind, texts in collected.items():
                texts += [str(one.message) for one in caught if issubclass(one.category, kind)]
    finally:
        log.removeHandler(lines)
        log.setLevel(before[0])
        log.propagate = before[1]


@contextmanager
def _resumable(save: str | None, *, several: bool) -> Iterator[None]:
    """On an interrupt, show where the model of the last complete epoch is."""
    before = _modified(save)
    try:
        yield
    except KeyboardInterrupt:
        if _modified(save) != before:
            also = "" if several else f"; continue with --warm-start {save}"
            typer.echo(f"corgipile: {printable(f'{save} holds the last complete epoch{also}')}", err=True)
        raise


def _modified(save: str | None) -> int:
    return Path(save).stat().st_mtime_ns if save is not None and Path(save).exists() else 0


def _show(history: list[dict[str, Any]], save: str | None, *, several: bool) -> None:
    known = history[-1] if history else {}
    scores = [name for name in ("accuracy", "r2", "test_loss", "test_accuracy", "test_r2") if name in known]
    lines = [
        (
            str(record["epoch"]),
            f"{record['loss']:.5g}",
            *(f"{record[name]:.4f}" for name in scores),
            f"{record['seconds']:.3f}",
            rate(record["rows"], record["seconds"]),
        )
        for record in history
    ]
    names = (f"running {name}" if name in RUNNING else name.replace("_", " ") for name in ("loss", *scores))
    show_table("", ("epoch", *names, "seconds", "rows/s"), lines, spare=("seconds", "test loss"))
    if history:
        also = "" if several else "; --test evaluates the model itself"
        note(f"running: each row is scored before the model trains on it{also}")
    for name, why in SKIPPED.items():
        if skipped := known.get(name, 0):
            typer.echo(f"corgipile: {skipped:,} row{'s' * (skipped != 1)} {why}", err=True)
    if save is not None:
        typer.echo(printable(f"model written to {save}"))
