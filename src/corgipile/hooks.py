"""Hooks that pass a training's statistics to functions, loggers and Prometheus."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from corgipile.errors import BadArgument
from corgipile.outputs import Kind, PathLike, replacing
from corgipile.sizes import whole

__all__ = ["by_rows", "to_logger", "to_prometheus", "to_tensorboard", "to_wandb", "watch"]

Batch = TypeVar("Batch")
Figures = Mapping[str, float]
Hook = Callable[[Figures], object]
PREFIX = "corgipile"
MARK = f"# Figures of a loader, by {PREFIX}\n"
PAGE = Kind("Prometheus text", lambda path: path.read_bytes()[: len(MARK)] == MARK.encode())


def watch(
    batches: Iterable[Batch],
    *,
    on_step: Hook | None = None,
    on_epoch: Hook | None = None,
    every: int = 100,
    of: Any = None,
) -> Iterator[Batch]:
    """Yield the batches of one epoch and pass on statistics: those of ``loader.stats``, and rows per second.

    Args:
        batches: A loader, a dataset, or batches made from one.
        on_step: Called with a dictionary of numbers after every ``every`` batches.
        on_epoch: Called with the dictionary at the end of the epoch.
        every: Batches between two calls of ``on_step``.
        of: The loader or dataset with the statistics if ``batches`` are made from it, such as by a DataLoader.

    Raises:
        BadArgument: The source has no statistics.

    Example:
        >>> import corgipile as cp, pyarrow as pa
        >>> loader = cp.Loader(pa.table({"x": range(1000)}), batch_size=10)
        >>> calls = []
        >>> for batch in watch(loader, on_step=calls.append, on_epoch=calls.append, every=40):
        ...     pass
        >>> [(figures["epoch"], figures["batches"], figures["rows"]) for figures in calls]
        [(0, 40, 400), (0, 80, 800), (0, 100, 1000)]
    """
    source, every = batches if of is None else of, whole(every, "every", 1)
    for number, batch in enumerate(batches, 1):
        yield batch
        if on_step and number % every == 0:
            on_step(_figures(source))
    if on_epoch:
        on_epoch(_figures(source))


def _figures(source: Any) -> dict[str, float]:
    stats = getattr(source, "stats", None)
    if stats is None:
        kind = type(source).__name__
        raise BadArgument(f"of must be a Loader or a CorgiPileDataset, got a {kind}, which has no statistics")
    return {**asdict(stats), "rows_per_second": stats.rows_per_second}


def by_rows(on_step: Hook, *, every: int = 1_000_000) -> Callable[[int], None]:
    """Return an ``on_rows`` function for `corgipile.train` that calls a hook after every ``every`` rows.

    The hook gets ``rows`` trained on so far, ``seconds``, and ``rows_per_second``. For epochs, pass any hook as
    ``callback``.

    Args:
        on_step: Called with a dictionary of numbers.
        every: Rows between two calls.

    Example:
        >>> import corgipile as cp
        >>> from corgipile.datasets import clustered
        >>> steps, epochs = [], []
        >>> how = {"on_rows": by_rows(steps.append, every=2000), "callback": epochs.append}
        >>> model = cp.train(clustered(4000, classes=2), epochs=2, memory="16KB", **how)
        >>> len(steps) >= 3, steps[-1]["rows"] <= 8000, [figures["epoch"] for figures in epochs]
        (True, True, [0, 1])
    """
    every, began, rows, due = whole(every, "every", 1), time.perf_counter(), 0, 0

    def on_rows(count: int) -> None:
        nonlocal rows, due
        rows += count  # negative if an epoch restarts
        if rows >= (due or every):
            seconds = time.perf_counter() - began
            due = rows - rows % every + every
            on_step({"rows": rows, "seconds": seconds, "rows_per_second": rows / seconds})

    return on_rows


def to_tensorboard(writer: Any) -> Hook:
    """Return a hook that adds scalars to a TensorBoard SummaryWriter; the step counts the hook's calls.

    Example:
        >>> class Writer:
        ...     def add_scalar(self, name, value, step):
        ...         print(name, value, step)
        >>> to_tensorboard(Writer())({"epoch": 0, "rows": 400})
        corgipile/rows 400 1
    """
    return _counted(lambda figures, step: [writer.add_scalar(name, figures[name], step) for name in figures])


def to_logger(logger: Any) -> Hook:
    """Return a hook that calls ``log_metrics`` of a Lightning logger."""
    return _counted(lambda figures, step: logger.log_metrics(figures, step=step))


def to_wandb(run: Any) -> Hook:
    """Return a hook that calls ``log`` of a Weights & Biases run, which counts its own steps."""
    return _counted(lambda figures, _: run.log(figures))


def _counted(log: Callable[[dict[str, float], int], object]) -> Hook:
    """Return a hook that passes prefixed names and the number of calls: batch numbers restart in each epoch."""
    calls = 0

    def hook(figures: Figures) -> None:
        nonlocal calls
        calls += 1
        log({f"{PREFIX}/{name}": value for name, value in figures.items() if name != "epoch"}, calls)

    return hook


def to_prometheus(path: PathLike, **labels: str) -> Hook:
    """Return a hook that writes the statistics as Prometheus text, for the node exporter's textfile collector.

    Each call replaces the file atomically.

    Args:
        path: The file, such as ``/var/lib/node_exporter/train.prom``.
        labels: Labels of all figures, such as ``rank="3"``.

    Raises:
        WouldOverwrite: The path holds another kind of file when the hook is called.
        WriteFailed: The file cannot be written.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "train.prom"
        >>> to_prometheus(path, rank="3")({"rows": 400})
        >>> print(path.read_text().splitlines()[-1])
        corgipile_rows{rank="3"} 400
    """
    for name in labels:
        if not (name.isidentifier() and name.isascii()):
            raise BadArgument(f"label names must consist of letters, digits and _, got {name!r}")
    quoted = [f'{name}="{_escaped(str(value))}"' for name, value in labels.items()]
    inside = f"{{{','.join(quoted)}}}" if quoted else ""

    def hook(figures: Figures) -> None:
        lines = [f"# TYPE {PREFIX}_{name} gauge\n{PREFIX}_{name}{inside} {value}\n" for name, value in figures.items()]
        with replacing(path, PAGE) as temporary:
            Path(temporary).write_text(MARK + "".join(lines), encoding="utf-8")

    return hook


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
