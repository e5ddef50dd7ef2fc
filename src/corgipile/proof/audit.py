"""Report page of an audit."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from corgipile.proof.charts import Chart, Interval, Line, dots, intervals, key, lines
from corgipile.proof.markup import Markup, element
from corgipile.proof.page import Page, Section, table
from corgipile.proof.scales import Scale, linear, log
from corgipile.verdicts import FAULTS

if TYPE_CHECKING:
    from corgipile.quality.audited import AuditReport, EpochReport
    from corgipile.quality.faults import Fault
    from corgipile.quality.keyed import Spread

__all__ = ["PARTS", "audit_page", "deff_scale", "fault_list", "parts_of", "places", "spread_cells"]

PARTS = (("whole epoch", 0), ("first tenth", 1), ("middle", 2), ("last tenth", 3))
MAX_SHOWN = 8  # epochs and keys with charts at most
MAX_ROWS = 200  # rows of a table at most
MIN_DEFF = 0.01  # lower end of deff scales


def audit_page(report: "AuditReport", command: str = "") -> Page:
    """Return the report page of an audit; ``command``: the command that makes it."""
    epochs = _shown(report.epochs)
    worst = max((each.deff[0] for epoch in report.epochs for each in epoch.spreads), default=None)
    facts = [
        ("rows of the table", "unknown" if report.rows is None else f"{report.rows:,}"),
        ("epochs", f"{len(report.epochs):,}"),
        ("batches", f"{sum(epoch.batches for epoch in report.epochs):,}"),
        ("faults", f"{len(report.faults)}"),
    ]
    if worst is not None:
        facts.append(("deff at worst", f"{worst:.2f}"))
    lead = "The batches of a loader were recorded. deff measures how much batches vary: 1 is a full shuffle."
    sections = [Section("Faults", "", [fault_list(report.faults)])]
    sections += [_mixing(epochs, len(report.epochs)), *_places(epochs), *_correlations(epochs), *_table(report.epochs)]
    return Page("Audit of a loader", report.verdict, lead, facts, sections, command)


def fault_list(faults: "Sequence[Fault]", what: str = "") -> Markup:
    """Return a list of faults, or a sentence if there are none; ``what``: a prefix, such as the order's name."""
    if not faults:
        return element("p", f"None of the {len(FAULTS)} known faults: {', '.join(FAULTS)}.")
    items = (
        element("li", element("b", f"{what}{each.name}"), element("span", f"Epoch {each.epoch}: {each.detail}."))
        for each in faults
    )
    return element("ul", *items, class_="faults")


def places(epoch: "EpochReport", title: str, series: int = 0) -> Chart | None:
    """Return the chart of row places in an epoch; None if they are unknown."""
    if not epoch.places:
        return None
    rows, at = (max((1, *values)) for values in zip(*epoch.places, strict=True))
    points = [(place / at, row / rows) for row, place in epoch.places]
    alt = f"{len(points)} rows: place in storage (vertical) and in the epoch (horizontal). {_describe_dots(epoch)}"
    return Chart(title, alt, dots(points, series, ("place in the epoch", "row")), width=150, height=158)


def spread_cells(spread: "Spread") -> tuple[str, ...]:
    """Return deff of an epoch and its parts as text."""
    return tuple(f"{value:.2f} ± {half:.2f}" for value, half in parts_of(spread))


def deff_scale(found: Sequence[tuple[float, float]]) -> Scale:
    """Return a scale for deff values and half the widths of their intervals."""
    ends = [value + side * half for value, half in found for side in (-1, 1) if math.isfinite(half)]
    return log([0.5, 2.0, *ends], least=MIN_DEFF)


def _describe_dots(epoch: "EpochReport") -> str:
    """Describe the dots by the mean distance of rows from their places in storage."""
    rows, at = (max((1, *values)) for values in zip(*epoch.places, strict=True))
    far = sum(abs(row / rows - place / at) for row, place in epoch.places) / len(epoch.places)
    return f"On average rows are {far:.0%} of the table away from their places; a full shuffle has 33%."


def _shown(epochs: "Sequence[EpochReport]") -> "list[tuple[int, EpochReport]]":
    """Return the first and last epochs, with their numbers."""
    numbered = list(enumerate(epochs))
    return numbered if len(numbered) <= MAX_SHOWN else [*numbered[: MAX_SHOWN // 2], *numbered[-MAX_SHOWN // 2 :]]


def _mixing(epochs: "list[tuple[int, EpochReport]]", of: int) -> Section:
    charts = []
    scale = deff_scale([part for _, epoch in epochs for spread in epoch.spreads for part in parts_of(spread)])
    for number, epoch in epochs:
        rows = [
            Interval(spread.key, *part, series)
            for spread in epoch.spreads[:MAX_SHOWN]
            for (_, series), part in zip(PARTS, parts_of(spread), strict=True)
        ]
        drawn, height = intervals(rows, scale, "deff", mark=1.0)
        cells = [(spread.key, *spread_cells(spread)) for spread in epoch.spreads]
        alt = "; ".join(f"{name}: {value}" for name, value, *_ in cells) or "Nothing was measured."
        head = ("key", "deff", "first tenth", "middle", "last tenth")
        charts.append(Chart(f"Epoch {number}: deff", alt, drawn, head, cells, height=height))
    lead = (
        "deff of each key over the whole epoch and its parts, with 95 % intervals; the dashed line is a full shuffle. "
        "Left of it batches vary less, right of it more."
    )
    keys = max((len(epoch.spreads) for _, epoch in epochs), default=0)
    lead += f" Shown: {MAX_SHOWN} of {of} epochs." * (of > MAX_SHOWN)
    lead += f" Charts: {MAX_SHOWN} of {keys} keys." * (keys > MAX_SHOWN)
    return Section("How evenly batches mix", lead, [key(PARTS)], charts)


def parts_of(spread: "Spread") -> tuple[tuple[float, float], ...]:
    """Return deff and half the width of its interval, for each of `PARTS`."""
    return spread.deff, spread.head, spread.middle, spread.tail


def _places(epochs: "list[tuple[int, EpochReport]]") -> Iterator[Section]:
    charts = [chart for number, epoch in epochs if (chart := places(epoch, f"Epoch {number}"))]
    if charts:
        lead = "Some rows: place in storage (vertical) and in the epoch (horizontal). A full shuffle is even noise."
        yield Section("Row places", lead, charts=charts, layout="small")


def _correlations(epochs: "list[tuple[int, EpochReport]]") -> Iterator[Section]:
    """Yield the section on correlation between batches."""
    charts, names = [], []
    for number, epoch in epochs:
        known = [spread for spread in epoch.spreads[:MAX_SHOWN] if len(spread.lags) > 1]
        curves = [Line(spread.key, list(enumerate(spread.lags, 1)), at) for at, spread in enumerate(known)]
        if not curves:
            continue
        names = [(curve.name, curve.series) for curve in curves]
        gaps, related = zip(*(point for curve in curves for point in curve.points), strict=True)
        drawn = lines(curves, linear(gaps, zero=True), linear([*related, -0.1, 0.1]), ("batches apart", ""), mark=0.0)
        cells = [(spread.key, f"{spread.lags[0]:+.2f}", f"{max(spread.lags):+.2f}") for spread in known]
        alt = "; ".join(f"{name}: neighbours {first}, at most {most}" for name, first, most in cells)
        head = ("key", "neighbours", "at most")
        charts.append(Chart(f"Epoch {number}: correlation of batches", alt, drawn, head, cells))
    if charts:
        lead = "Correlation of batch means by distance. A comb means that each worker shuffles its own part."
        yield Section("Similar batches", lead, [key(names)], charts)


def _table(epochs: "Sequence[EpochReport]") -> Iterator[Section]:
    head = ("epoch and key", "prefix", "total variation", "its floor", "longest gap", "a full shuffle's", "kind")
    rows = [
        (f"{number}, {spread.key}", *_cells(spread)) for number, epoch in enumerate(epochs) for spread in epoch.spreads
    ]
    caption = f"The first {MAX_ROWS} of {len(rows)}" if len(rows) > MAX_ROWS else ""
    parts = [table(caption, head, rows[:MAX_ROWS])] if rows else []
    shares = ((number, epoch.again) for number, epoch in enumerate(epochs) if epoch.again is not None)
    again = [(f"{number}", f"{share:.2%}", f"{chance:.2%}") for number, (share, chance) in shares]
    if again:
        names = ("epoch", "share a batch again", "by chance")
        parts.append(table("Rows that shared a batch in the previous epoch", names, again[:MAX_ROWS]))
    if parts:
        gaps = "gaps are visits of others between two rows of a class."
        yield Section("Beyond deff", f"The prefix discrepancy of a full shuffle is 0.9 to 1.3; {gaps}", parts)


def _cells(spread: "Spread") -> tuple[str, ...]:
    varied = ("", "") if spread.variation is None else tuple(f"{value:.3f}" for value in spread.variation)
    gap = spread.gap
    waits = ("", "", "") if gap is None else (f"{gap.gap:,}", f"{gap.expected:,.0f}", f"{gap.kind}")
    return (f"{spread.prefix:.2f}", *varied, *waits)
