"""Figures of a training's loader, handed to whoever keeps them: plain functions, loggers, Prometheus."""

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
    """Yield the batches of one epoch, and hand on figures: those of ``loader.stats``, and rows a second.

    Args:
        batches: A loader, a dataset, or what is made of one.
        on_step: Called after every so many batches with a dictionary of numbers.
        on_epoch: Called with one when the epoch has ended.
        every: Batches between two calls of ``on_step``.
        of: The loader or dataset that has the figures, where ``batches`` are made of it, such as by a DataLoader.

    Raises:
        BadArgument: There are no figures: it is no loader of ours.

    Example:
        >>> import corgipile as cp, pyarrow as pa
        >>> loader = cp.Loader(pa.table({"x": range(1000)}), batch_size=10)
        >>> told = []
        >>> for batch in watch(loader, on_step=told.append, on_epoch=told.append, every=40):
        ...     pass
        >>> [(figures["epoch"], figures["batches"], figures["rows"]) for figures in told]
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
        raise BadArgument(f"{kind} has no figures: a Loader, or a CorgiPileDataset, is right for of=")
    return {**asdict(stats), "rows_per_second": stats.rows_per_second}


def by_rows(on_step: Hook, *, every: int = 1_000_000) -> Callable[[int], None]:
    """Return what `corgipile.train` takes as ``on_rows``: it hands on how far a training is, after every so many rows.

    The figures are ``rows`` learnt since the training began, ``seconds``, and ``rows_per_second``. Those of epochs need
    nothing: any hook is a ``callback``.

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
        rows += count  # below 0 where an epoch begins again
        if rows >= (due or every):
            seconds = time.perf_counter() - began
            due = rows - rows % every + every
            on_step({"rows": rows, "seconds": seconds, "rows_per_second": rows / seconds})

    return on_rows


def to_tensorboard(writer: Any) -> Hook:
    """Return a hook that adds scalars to a SummaryWriter of TensorBoard, by the step of its own calls.

    Example:
        >>> class Writer:
        ...     def add_scalar(self, name, value, step):
        ...         print(name, value, step)
        >>> to_tensorboard(Writer())({"epoch": 0, "rows": 400})
        corgipile/rows 400 1
    """
    return _counted(lambda figures, step: [writer.add_scalar(name, figures[name], step) for name in figures])


def to_logger(logger: Any) -> Hook:
    """Return a hook that calls ``log_metrics`` of a logger of Lightning, or of one like it."""
    return _counted(lambda figures, step: logger.log_metrics(figures, step=step))


def to_wandb(run: Any) -> Hook:
    """Return a hook that calls ``log`` of a run of Weights & Biases, or of one like it; the run counts its steps."""
    return _counted(lambda figures, _: run.log(figures))


def _counted(log: Callable[[dict[str, float], int], object]) -> Hook:
    """Call with names of ours, and how often it was called: batches begin anew in each epoch."""
    calls = 0

    def hook(figures: Figures) -> None:
        nonlocal calls
        calls += 1
        log({f"{PREFIX}/{name}": value for name, value in figures.items() if name != "epoch"}, calls)

    return hook


def to_prometheus(path: PathLike, **labels: str) -> Hook:
    """Return a hook that writes the figures as Prometheus text, for the textfile collector of its node exporter.

    The file is replaced as a whole each time.

    Args:
        path: The file, such as ``/var/lib/node_exporter/train.prom``.
        labels: Labels of all figures, such as ``rank="3"``.

    Raises:
        WouldOverwrite: A file that is no such text lies there, when the hook is called.
        WriteFailed: It cannot be written.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "train.prom"
        >>> to_prometheus(path, rank="3")({"rows": 400})
        >>> print(path.read_text().splitlines()[-1])
        corgipile_rows{rank="3"} 400
    """
    for name in labels:
        if not (name.isidentifier() and name.isascii()):
            raise BadArgument(f"a label is named {name!r}; letters, digits and _ are right")
    quoted = [f'{name}="{_escaped(str(value))}"' for name, value in labels.items()]
    inside = f"{{{','.join(quoted)}}}" if quoted else ""

    def hook(figures: Figures) -> None:
        lines = [f"# TYPE {PREFIX}_{name} gauge\n{PREFIX}_{name}{inside} {value}\n" for name, value in figures.items()]
        with replacing(path, PAGE) as temporary:
            Path(temporary).write_text(MARK + "".join(lines), encoding="utf-8")

    return hook


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
