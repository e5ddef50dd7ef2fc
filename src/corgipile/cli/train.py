"""``corgipile train``."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corgipile.cli.console import Watch, note, printable, progress, rate, show_json, show_table
from corgipile.cli.console import command as guarded
from corgipile.cli.options import (
    L2,
    Balance,
    BatchSize,
    Block,
    Buffer,
    Decay,
    Epochs,
    Features,
    Json,
    Label,
    Memory,
    ModelKind,
    Overwrite,
    Quiet,
    Seed,
    Tables,
    Test,
    columns_of,
    number_or_text,
    order_of,
    source_of,
)

if TYPE_CHECKING:
    from corgipile.tables import Table

RUNNING = ("loss", "accuracy", "r2")
SKIPPED = {
    "skipped": "skipped in the last epoch: they cannot be learnt from",
    "test_skipped": "of the test table skipped: the model cannot be measured on them",
}


@guarded
def command(
    table: Tables,
    *,
    model: ModelKind = "logistic",
    features: Features = None,
    label: Label = "label",
    epochs: Epochs = 5,
    learning_rate: Annotated[
        float | None, typer.Option(help="Step of the first epoch; 0.01 by default, less where that diverges.")
    ] = None,
    decay: Decay = 0.95,
    l2: L2 = 0.0,
    batch_size: BatchSize = 1,
    order: Annotated[str, typer.Option(help="Which rows next: auto, balanced, riffle, full ...")] = "auto",
    block: Block = None,
    buffer: Buffer = None,
    balance: Balance = None,
    memory: Memory = "64MB",
    seed: Seed = 0,
    test: Test = None,
    validation: Annotated[
        float | None, typer.Option(help="Share of rows to leave out and measure the model on, such as 0.1.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Column of which all rows of a value are on one side of --validation.")
    ] = None,
    standardize: Annotated[
        bool | None, typer.Option(help="Learn from features of mean 0 and spread 1; by default where it is needed.")
    ] = None,
    tolerance: Annotated[float | None, typer.Option(help="Stop when the loss improves by less than this.")] = None,
    warm_start: Annotated[str | None, typer.Option(help="Model file to go on from.")] = None,
    on_bad: Annotated[
        str, typer.Option(help="What to do with rows that cannot be learnt from: raise or skip.")
    ] = "raise",
    save: Annotated[str | None, typer.Option(help="Model file, written after each epoch.")] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train a linear model by SGD from a table of any size."""
    from corgipile import tables  # noqa: PLC0415
    from corgipile.linear import load, train  # noqa: PLC0415
    from corgipile.linear.saving import MODEL  # noqa: PLC0415
    from corgipile.outputs import check_target  # noqa: PLC0415

    if save is not None:
        check_target(save, MODEL, inputs=(table, [test] if test else []), overwrite=overwrite)
    opened, left_out = _sides(tables.open(source_of(table)), test, validation, group, seed)
    with progress("train", quiet=quiet or json) as bar, _resumable(save), _told(quiet=quiet or json) as diverged:
        watch = Watch(bar, len(opened) * epochs)
        trained = train(
            opened,
            model=model,
            features=columns_of(features),
            label=label,
            epochs=epochs,
            learning_rate=learning_rate,
            decay=decay,
            l2=l2,
            batch_size=batch_size,
            order=order_of(order, block, buffer, balance, label),
            memory=number_or_text(memory),
            seed=seed,
            test=left_out if test is None else source_of(test),
            standardize=standardize,
            tolerance=tolerance,
            warm_start=None if warm_start is None else load(warm_start),
            save=save,
            overwrite=overwrite,
            on_bad=on_bad,  # type: ignore[arg-type]
            callback=lambda record: watch.say(f"epoch {record['epoch']}: loss {record['loss']:.4g}"),
            on_rows=watch.rows,
        )
    if json:
        show_json(_document(trained, save, diverged=bool(diverged)))
    elif not quiet:
        _show(trained.history, save)
    for text in diverged:
        typer.echo(f"corgipile: {printable(text)}", err=True)
    if diverged:
        raise typer.Exit(1)


def _sides(
    table: "Table", test: str | None, validation: float | None, group: str | None, seed: int
) -> "tuple[Table, Table | None]":
    """Return what to learn from, and what of it is left out to measure the model on."""
    from corgipile.errors import BadArgument  # noqa: PLC0415
    from corgipile.tables.splitting import train_test_split  # noqa: PLC0415

    if validation is None and group is not None:
        raise BadArgument("--group says which rows --validation keeps together; give a share, such as --validation 0.1")
    if validation is None:
        return table, None
    if test is not None:
        raise BadArgument("--test and --validation both name rows to measure the model on; give one of them")
    return train_test_split(table, validation, seed, group)


def _document(model: Any, path: str | None, *, diverged: bool) -> dict[str, Any]:
    """Return what there is to say of a model."""
    return {
        "model": model.kind,
        "shape": model.coef.shape,
        "features": model.features,
        "label": model.label,
        "left_out": model.left_out,
        "diverged": diverged,
        "params": model.params,
        "notes": model.notes,
        "history": model.history,
        "path": path,
    }


class _Lines(logging.Handler):
    """Writes what the learner says on stderr, a line each."""

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(f"corgipile: {printable(record.getMessage())}", err=True)


@contextmanager
def _told(*, quiet: bool) -> Iterator[list[str]]:
    """Show what the learner says, unless quiet; collect what it says of divergence, for the end."""
    from corgipile.errors import DivergenceWarning  # noqa: PLC0415

    said: list[str] = []
    log, lines = logging.getLogger("corgipile"), logging.NullHandler() if quiet else _Lines()
    before = log.level, log.propagate
    log.addHandler(lines)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DivergenceWarning)
            yield said
            said += [str(one.message) for one in caught if issubclass(one.category, DivergenceWarning)]
    finally:
        log.removeHandler(lines)
        log.setLevel(before[0])
        log.propagate = before[1]


@contextmanager
def _resumable(save: str | None) -> Iterator[None]:
    """Say, when interrupted, where the model of the last whole epoch is."""
    before = _changed(save)
    try:
        yield
    except KeyboardInterrupt:
        if _changed(save) != before:
            told = printable(f"{save} holds the last whole epoch; go on with --warm-start {save}")
            typer.echo(f"corgipile: {told}", err=True)
        raise


def _changed(save: str | None) -> int:
    return Path(save).stat().st_mtime_ns if save is not None and Path(save).exists() else 0


def _show(history: list[dict[str, Any]], save: str | None) -> None:
    scores = [
        name for name in ("accuracy", "r2", "test_loss", "test_accuracy", "test_r2") if history and name in history[-1]
    ]
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
        note("running: of each row as it came, before the model learnt from it; --test measures the model itself")
    for name, why in SKIPPED.items():
        skipped = history[-1].get(name, 0) if history else 0
        if skipped:
            typer.echo(f"corgipile: {skipped:,} row{'s' * (skipped != 1)} {why}", err=True)
    if save is not None:
        typer.echo(printable(f"model written to {save}"))
