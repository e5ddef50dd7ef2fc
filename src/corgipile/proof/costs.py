"""Sections of a page on the costs of orders, from a plan."""

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
    """Yield a section on each order's memory, reads, mixing and time per epoch.

    Example:
        >>> from corgipile.datasets import clustered
        >>> from corgipile.planner import choose
        >>> (section,) = costs(choose(clustered(2000, classes=2), memory="16KB", seconds=0))
        >>> section.title
        'Costs of each order'
    """
    if choice is None:
        return
    head = ("order", "block", "memory", "deff", "other columns", "s warm", "s cold", "reads", "bytes read")
    rows = []
    for plan in (choice.best, *choice.others):
        if plan.flaw is None:
            rest, warm, cold = ("" if value is None else f"{value:.3g}" for value in (plan.rest, plan.warm, plan.cold))
            size = f"{plan.block_rows:,} row{'s' * (plan.block_rows != 1)}"
            numbers = (size, format_bytes(plan.memory), f"{plan.deff:.3g}", rest, warm, cold)
            rows.append((plan.title, *numbers, f"{plan.reads:,}", format_bytes(plan.nbytes)))
    by = "in the worst case, since no label is known" if choice.labels is None else f"by {choice.labels}"
    lead = (
        f"Per epoch. The first is the plan's choice: {choice.reason}. deff, {by}, measures how much batches vary: 1 is "
        "a full shuffle, less is better. Other columns: deff by the most clustered other column, at most."
    )
    lead += f" Alternative: {choice.advice}." if choice.advice else ""
    yield Section("Costs of each order", lead, [table("", head, rows)])


def speeds(choice: "Choice | None", row: float) -> Iterator[Section]:
    """Yield a section on read rates by block size, for rows of ``row`` bytes."""
    if choice is None:
        return
    tried = [plan for plan in (choice.best, *choice.others) if plan.seconds and plan.block_rows]
    titles = list(dict.fromkeys(plan.title for plan in tried))
    curves, rows = [], []
    for at, title in enumerate(titles):
        group = sorted((plan for plan in tried if plan.title == title), key=lambda plan: plan.block_rows)
        points = [(plan.block_rows * row, plan.nbytes / (plan.seconds or math.inf) / 2**20) for plan in group]
        best = next((place for place, plan in enumerate(group) if plan is choice.best), None)
        curves.append(Line(title, points, at, chosen=best))
        rows += [
            (title, format_bytes(size), f"{rate:,.0f}", f"{plan.deff:.2f}", "chosen" if plan is choice.best else "")
            for plan, (size, rate) in zip(group, points, strict=True)
        ]
    if not curves:
        return
    x = bytes_scale([size for curve in curves for size, _ in curve.points])
    y = linear([rate for curve in curves for _, rate in curve.points], zero=True)
    alt = "; ".join(f"{title}, blocks of {size}: {rate} MB/s" for title, size, rate, *_ in rows)
    head = ("order", "block", "MB/s", "deff", "")
    chart = Chart("Bytes per second by block size", alt, lines(curves, x, y, ("block", "MB/s")), head, rows)
    lead = (
        f"From short trials, at the table's state in the page cache. The circle is the plan's choice: {choice.reason}."
    )
    yield Section("Read rates by block size", lead, [key([(curve.name, curve.series) for curve in curves])], [chart])
