"""The page of an audit."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from corgipile.proof.charts import Chart, Interval, Line, dots, intervals, key, lines
from corgipile.proof.markup import Markup, element
from corgipile.proof.page import Page, Section, table
from corgipile.proof.scales import Scale, linear, log
from corgipile.quality.faults import NAMES

if TYPE_CHECKING:
    from corgipile.quality.audited import AuditReport, EpochReport
    from corgipile.quality.faults import Fault
    from corgipile.quality.keyed import Spread

__all__ = ["PARTS", "audit_page", "deff_scale", "faults_of", "places", "spread_cells"]

PARTS = (("all of it", 0), ("first tenth", 1), ("middle", 2), ("last tenth", 3))
SHOWN = 8  # epochs and keys that have charts
ROWS = 200  # of a table
LEAST_DEFF = 0.01  # where scales begin


def audit_page(report: "AuditReport", command: str = "") -> Page:
    """Return the page of an audit; ``command``: how to get it again."""
    epochs = _shown(report.epochs)
    worst = max((one for epoch in report.epochs for one in epoch.spreads), key=lambda one: one.deff[0], default=None)
    facts = [
        ("rows of the table", "unknown" if report.rows is None else f"{report.rows:,}"),
        ("epochs", f"{len(report.epochs):,}"),
        ("batches", f"{sum(epoch.batches for epoch in report.epochs):,}"),
        ("faults", f"{len(report.faults)}"),
    ]
    if worst is not None:
        facts.append(("deff at worst", f"{worst.deff[0]:.2f}"))
    lead = "Batches of a loader were watched as they came. deff is how much batches vary: 1 as after a full shuffle."
    sections = [Section("Faults", "", [faults_of(report.faults)])]
    sections += [_mixing(epochs, len(report.epochs)), *_places(epochs), *_alike(epochs), *_table(report.epochs)]
    return Page("Audit of a loader", report.verdict, lead, facts, sections, command)


def faults_of(faults: "Sequence[Fault]", what: str = "") -> Markup:
    """Return a list of faults, or a sentence that says that there are none; ``what``: whose they are."""
    if not faults:
        return element("p", f"None of the {len(NAMES)} faults that are looked for: {', '.join(NAMES)}.")
    found = (
        element("li", element("b", f"{what}{one.name}"), element("span", f"Epoch {one.epoch}: {one.detail}."))
        for one in faults
    )
    return element("ul", *found, class_="faults")


def places(epoch: "EpochReport", title: str, series: int = 0) -> Chart | None:
    """Return the chart of where rows come in an epoch; None where that is not known."""
    if not epoch.places:
        return None
    rows, at = (max((1, *values)) for values in zip(*epoch.places, strict=True))
    points = [(there / at, row / rows) for row, there in epoch.places]
    said = f"{len(points)} rows: where each is stored, upwards, and when it comes, along. {_words(epoch)}"
    return Chart(title, said, dots(points, series, ("when it comes", "row")), width=150, height=158)


def spread_cells(spread: "Spread") -> tuple[str, ...]:
    """Return deff of an epoch and its parts."""
    return tuple(f"{value:.2f} ± {half:.2f}" for value, half in (spread.deff, spread.head, spread.middle, spread.tail))


def deff_scale(found: Sequence[tuple[float, float]]) -> Scale:
    """Return a scale for deff, of values and half the widths of their intervals."""
    ends = [value + side * half for value, half in found for side in (-1, 1) if math.isfinite(half)]
    return log([0.5, 2.0, *ends], least=LEAST_DEFF)


def _words(epoch: "EpochReport") -> str:
    """Say what the dots look like, by how far rows come from where they are stored."""
    rows, at = (max((1, *values)) for values in zip(*epoch.places, strict=True))
    far = sum(abs(row / rows - there / at) for row, there in epoch.places) / len(epoch.places)
    return f"Rows come {far:.0%} of the table from their places on average; after a full shuffle it is 33%."


def _shown(epochs: "Sequence[EpochReport]") -> "list[tuple[int, EpochReport]]":
    """Return the first and the last epochs, with their numbers."""
    numbered = list(enumerate(epochs))
    return numbered if len(numbered) <= SHOWN else [*numbered[: SHOWN // 2], *numbered[-SHOWN // 2 :]]


def _mixing(epochs: "list[tuple[int, EpochReport]]", of: int) -> Section:
    charts, scale = [], deff_scale([found for _, epoch in epochs for one in epoch.spreads for found in _parts(one)])
    for number, epoch in epochs:
        rows = [
            Interval(spread.key, *found, series)
            for spread in epoch.spreads[:SHOWN]
            for (_, series), found in zip(PARTS, _parts(spread), strict=True)
        ]
        drawn, height = intervals(rows, scale, "deff", mark=1.0)
        cells = [(spread.key, *spread_cells(spread)) for spread in epoch.spreads]
        said = "; ".join(f"{name}: {value}" for name, value, *_ in cells) or "Nothing was measured."
        head = ("key", "deff", "first tenth", "middle", "last tenth")
        charts.append(Chart(f"Epoch {number}: deff", said, drawn, head, cells, height=height))
    lead = (
        "deff of each key over the whole epoch and over parts of it, with 95 % intervals; the dashed line is a full "
        "shuffle. To the left of it batches vary less, to the right more."
    )
    keys = max((len(epoch.spreads) for _, epoch in epochs), default=0)
    lead += f" Shown: {SHOWN} of {of} epochs." * (of > SHOWN) + f" Drawn: {SHOWN} of {keys} keys." * (keys > SHOWN)
    return Section("How evenly batches mix", lead, [key(PARTS)], charts)


def _parts(spread: "Spread") -> tuple[tuple[float, float], ...]:
    return spread.deff, spread.head, spread.middle, spread.tail


def _places(epochs: "list[tuple[int, EpochReport]]") -> Iterator[Section]:
    charts = [found for number, epoch in epochs if (found := places(epoch, f"Epoch {number}"))]
    if charts:
        lead = "Some rows: where they are stored, upwards, and when they come, along. A full shuffle is even noise."
        yield Section("Where rows come", lead, charts=charts, layout="small")


def _alike(epochs: "list[tuple[int, EpochReport]]") -> Iterator[Section]:
    """Yield how batches some apart are alike."""
    charts, names = [], []
    for number, epoch in epochs:
        known = [one for one in epoch.spreads[:SHOWN] if len(one.lags) > 1]
        found = [Line(one.key, list(enumerate(one.lags, 1)), at) for at, one in enumerate(known)]
        if not found:
            continue
        names = [(one.name, one.series) for one in found]
        apart, related = zip(*(point for one in found for point in one.points), strict=True)
        drawn = lines(found, linear(apart, zero=True), linear([*related, -0.1, 0.1]), ("batches apart", ""), mark=0.0)
        cells = [(one.key, f"{one.lags[0]:+.2f}", f"{max(one.lags):+.2f}") for one in known]
        said = "; ".join(f"{name}: neighbours {first}, at most {most}" for name, first, most in cells)
        head = ("key", "neighbours", "at most")
        charts.append(Chart(f"Epoch {number}: correlation of batches", said, drawn, head, cells))
    if charts:
        lead = "Correlation of the means of batches so many apart. A comb: workers shuffle parts of their own."
        yield Section("Batches that are alike", lead, [key(names)], charts)


def _table(epochs: "Sequence[EpochReport]") -> Iterator[Section]:
    head = ("epoch and key", "prefix", "total variation", "its floor", "longest wait", "a full shuffle's", "kind")
    rows = [(f"{number}, {spread.key}", *_also(spread)) for number, one in enumerate(epochs) for spread in one.spreads]
    parts = [table(f"The first {ROWS} of {len(rows)}" if len(rows) > ROWS else "", head, rows[:ROWS])] if rows else []
    again = [
        (f"{number}", f"{one.again[0]:.2%}", f"{one.again[1]:.2%}")
        for number, one in enumerate(epochs)
        if one.again is not None
    ]
    if again:
        names = ("epoch", "share a batch again", "by chance")
        parts.append(table("Rows that shared a batch in the epoch before", names, again[:ROWS]))
    lead = "The prefix discrepancy of a full shuffle is 0.9 to 1.3; waits are visits of others between two of a kind."
    if parts:
        yield Section("What deff does not see", lead, parts)


def _also(spread: "Spread") -> tuple[str, ...]:
    varied = ("", "") if spread.variation is None else tuple(f"{value:.3f}" for value in spread.variation)
    gap = spread.gap
    waits = ("", "", "") if gap is None else (f"{gap.gap:,}", f"{gap.expected:,.0f}", f"{gap.kind}")
    return (f"{spread.prefix:.2f}", *varied, *waits)
