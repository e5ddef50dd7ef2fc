"""What orders cost, as a plan tells it: sections of pages."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from corgipile.proof.charts import Chart, Line, key, lines
from corgipile.proof.page import Section, table
from corgipile.proof.scales import bytes_scale, linear
from corgipile.sizes import format_bytes

if TYPE_CHECKING:
    from corgipile.planner import Choice

__all__ = ["costs", "speeds"]


def costs(choice: "Choice | None") -> Iterator[Section]:
    """Yield what each order would hold and read, how it would mix, and how long an epoch would take.

    Example:
        >>> from corgipile.datasets import clustered
        >>> from corgipile.planner import choose
        >>> (found,) = costs(choose(clustered(2000, classes=2), memory="16KB", seconds=0))
        >>> found.title
        'What each order costs'
    """
    if choice is None:
        return
    head = ("order", "block", "memory", "deff", "of the rest", "s warm", "s cold", "reads", "bytes read")
    rows = []
    for one in (choice.best, *choice.others):
        if one.flaw is None:
            rest, warm, cold = ("" if value is None else f"{value:.3g}" for value in (one.rest, one.warm, one.cold))
            size = f"{one.block_rows:,} row{'s' * (one.block_rows != 1)}"
            numbers = (size, format_bytes(one.memory), f"{one.deff:.3g}", rest, warm, cold)
            rows.append((one.title, *numbers, f"{one.reads:,}", format_bytes(one.nbytes)))
    by = "at worst, for no label is known" if choice.labels is None else f"by {choice.labels}"
    lead = (
        f"Of an epoch. The first is the plan's choice: {choice.reason}. deff, {by}, is how much batches vary: 1 as "
        "after a full shuffle, less is better; of the rest: of the column that is clustered most beside it, at most."
    )
    lead += f" Instead: {choice.advice}." if choice.advice else ""
    yield Section("What each order costs", lead, [table("", head, rows)])


def speeds(choice: "Choice | None", row: float) -> Iterator[Section]:
    """Yield how fast batches come, by the size of blocks, of rows of so many bytes."""
    if choice is None:
        return
    tried = [one for one in (choice.best, *choice.others) if one.seconds and one.block_rows]
    titles = list(dict.fromkeys(one.title for one in tried))
    found, rows = [], []
    for at, title in enumerate(titles):
        mine = sorted((one for one in tried if one.title == title), key=lambda one: one.block_rows)
        points = [(one.block_rows * row, one.nbytes / (one.seconds or math.inf) / 2**20) for one in mine]
        best = next((place for place, one in enumerate(mine) if one is choice.best), None)
        found.append(Line(title, points, at, chosen=best))
        rows += [
            (title, format_bytes(size), f"{rate:,.0f}", f"{one.deff:.2f}", "chosen" if one is choice.best else "")
            for one, (size, rate) in zip(mine, points, strict=True)
        ]
    if not found:
        return
    x = bytes_scale([size for one in found for size, _ in one.points])
    y = linear([rate for one in found for _, rate in one.points], zero=True)
    said = "; ".join(f"{title}, blocks of {size}: {rate} MB/s" for title, size, rate, *_ in rows)
    head = ("order", "block", "MB/s", "deff", "")
    chart = Chart("Bytes a second, by block size", said, lines(found, x, y, ("block", "MB/s")), head, rows)
    lead = f"Each tried for a moment, on the table as warm as it was. The circle is the plan's choice: {choice.reason}."
    yield Section("How fast blocks are read", lead, [key([(one.name, one.series) for one in found])], [chart])
