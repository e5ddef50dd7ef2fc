"""``corgipile compare``."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from corgipile.cli.console import Watch, progress, rows_per_second, show_json, show_table
from corgipile.cli.console import command as guarded
from corgipile.cli.options import (
    L2,
    BatchSize,
    Block,
    Decay,
    Epochs,
    Features,
    Json,
    Label,
    LearningRate,
    Memory,
    ModelKind,
    Seed,
    Tables,
    Test,
    columns_of,
    number_or_text,
    source_of,
)


@guarded
def command(
    table: Tables,
    *,
    model: ModelKind = "logistic",
    features: Features = None,
    label: Label = "label",
    epochs: Epochs = 5,
    learning_rate: LearningRate = 0.01,
    decay: Decay = 0.95,
    l2: L2 = 0.0,
    batch_size: BatchSize = 1,
    order: Annotated[str | None, typer.Option(help="Orders to compare, with commas between; all by default.")] = None,
    block: Block = None,
    memory: Memory = "64MB",
    seed: Seed = 0,
    batch: Annotated[int, typer.Option(help="Rows of a batch for which deff is measured.")] = 256,
    test: Test = None,
    json: Json = False,
) -> None:
    """Train one model by every order on the same table: accuracy, loss, speed, memory and deff."""
    from corgipile import tables  # noqa: PLC0415
    from corgipile.compare import ORDERS, compare  # noqa: PLC0415

    opened = tables.open(source_of(table))
    names = ORDERS if order is None else tuple(order.split(","))
    with progress("compare", quiet=json) as bar:
        watch = Watch(bar, len(opened) * epochs * len(names))
        results = compare(
            opened,
            model=model,
            features=columns_of(features),
            label=label,
            test=None if test is None else source_of(test),
            memory=memory,
            epochs=epochs,
            learning_rate=learning_rate,
            decay=decay,
            l2=l2,
            batch_size=batch_size,
            order=names,
            block=None if block is None else number_or_text(block),
            seed=seed,
            batch=batch,
            callback=lambda result: watch.say(_news(result)),
            on_rows=watch.rows,
        )
    if json:
        show_json({"rows": len(opened), "memory": memory, "model": model, "epochs": epochs, "results": results})
    else:
        show(results, f"{model}, {len(opened):,} rows, {epochs} epochs, memory {memory}", held_out=test is not None)


def _news(result: Any) -> str:
    return f"{result.order}: {result.failure or f'{result.metric} {result.score:.4f}'}"


def show(results: Sequence[Any], title: str, *, held_out: bool) -> None:
    """Print the results of a comparison as a table."""
    from corgipile.sizes import format_bytes  # noqa: PLC0415

    metric = next((result.metric for result in results if not result.failure), "accuracy")
    head = (
        "order",
        f"{'test' if held_out else 'train'} {metric}",
        "loss",
        "s/epoch",
        "speed",
        "read",
        "buffer",
        "deff",
    )
    lines = [
        (result.order, *("-" * bool(result.failure) for _ in head[1:]))
        if result.failure
        else (
            result.order,
            f"{100 * result.score:.2f} %" if metric == "accuracy" else f"{result.score:.4f}",
            f"{result.loss:.4g}",
            f"{result.seconds:.3f}",
            rows_per_second(result.rows_per_second, 1.0),
            format_bytes(result.bytes_read),
            format_bytes(result.buffer_bytes),
            f"{result.deff:.2f}",
        )
        for result in results
    ]
    show_table(title, head, lines)
    for result in results:
        if result.setup_seconds:
            once = result.setup_seconds / max(result.seconds, 1e-9)
            typer.echo(f"{result.order}: {result.setup_seconds:.2f} s more ({once:.1f} epochs) to write the table once")
        if result.failure or result.warning:
            typer.echo(f"{result.order}: {result.failure or result.warning}")
