"""Options that several subcommands have."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from corgipile import _kernel

Tables = Annotated[
    list[str], typer.Argument(help="Files, globs or folders; many are one table; x.npy,y.npy has features and labels.")
]
Memory = Annotated[
    str, typer.Option(help="Memory for rows, read-ahead included: 64MB, 1G, or a share of the table (5%).")
]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.")]
Block = Annotated[str | None, typer.Option(help="Block: rows (1000), bytes (256KB) or share (1%).")]
Buffer = Annotated[str | None, typer.Option(help="Buffer: rows, bytes or share (2%).")]
Balance = Annotated[str | None, typer.Option(help="Balance Riffle's blocks by this column.")]
_LOSSES = dict.fromkeys(f"{name}, {name}:{takes.upper()}" if takes else name for name, *_, takes, _ in _kernel.LOSSES)
ModelKind = Annotated[str, typer.Option(help=f"{', '.join(_LOSSES)}.")]
Features = Annotated[str | None, typer.Option(help="Feature column, or several with commas; found by default.")]
Label = Annotated[str, typer.Option(help="Column of labels.")]
Epochs = Annotated[int, typer.Option(help="Passes over the table.")]
LearningRate = Annotated[float, typer.Option(help="Step of the first epoch.")]
Decay = Annotated[float, typer.Option(help="Factor on the step from epoch to epoch.")]
L2 = Annotated[float, typer.Option(help="Strength of L2 regularisation.")]
BatchSize = Annotated[int, typer.Option(help="Rows of one update.")]
Test = Annotated[str | None, typer.Option(help="Table of held-out rows.")]
RecordBatch = Annotated[str | None, typer.Option(help="Record batch: bytes ('1MB') or rows.")]
Compression = Annotated[str | None, typer.Option(help="lz4 or zstd.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a file of another kind too; a file that is read never.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document only, of errors too.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors, and what is asked for.")]


def number_or_text(text: str) -> int | str:
    """Read a size or position: whole numbers are numbers, all else stays text.

    Example:
        >>> number_or_text("-1"), number_or_text("256KB")
        (-1, '256KB')
    """
    try:
        return int(text)
    except ValueError:
        return text


def source_of(names: str | Sequence[str]) -> Any:
    """Return what to open: one name as it is, several as a list, ``x.npy,y.npy`` as features with their labels."""
    names = [names] if isinstance(names, str) else names
    sources = [_pair(name) for name in names]
    return sources[0] if len(sources) == 1 else sources


def _pair(name: str) -> Any:
    from corgipile import tables  # noqa: PLC0415

    features, comma, label = name.rpartition(",")
    if not (comma and features.endswith(".npy") and label.endswith(".npy")) or Path(name).exists():
        return name
    return tables.open(features, label=label)


def columns_of(names: str | None) -> str | list[str] | None:
    """Split names at commas.

    Example:
        >>> columns_of("x"), columns_of("x,y")
        ('x', ['x', 'y'])
    """
    return names.split(",") if names is not None and "," in names else names


def order_of(name: str, block: str | None, buffer: str | None, balance: str | None, label: str) -> Any:
    """Make an order of these settings."""
    from dataclasses import replace  # noqa: PLC0415

    from corgipile import orders  # noqa: PLC0415
    from corgipile.errors import BadArgument  # noqa: PLC0415

    order: Any = orders.named(name)
    if getattr(order, "balance", None) is not None:
        order = replace(order, balance=label)
    if balance is not None:
        if not hasattr(order, "balance"):
            raise BadArgument(f"balance is for order riffle, not {name}")
        order = replace(order, balance=balance)
    if block is not None and order.cuts_into == "row":
        raise BadArgument(f"block is {block}, but order {name} visits single rows; leave it out")
    sizes = {"block": block, "buffer": buffer}
    return replace(order, **{what: number_or_text(size) for what, size in sizes.items() if size is not None})
