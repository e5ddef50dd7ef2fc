"""The page of a comparison of orders."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from corgipile.proof.audit import PARTS, deff_scale, faults_of, places, spread_cells
from corgipile.proof.charts import Chart, Interval, Line, intervals, key, lines
from corgipile.proof.costs import speeds
from corgipile.proof.page import Page, Section, table
from corgipile.proof.scales import Scale, linear, log
from corgipile.quality.audited import EVEN
from corgipile.repayment import repays
from corgipile.sizes import format_bytes

if TYPE_CHECKING:
    from corgipile.comparison import Result
    from corgipile.planner import Choice
    from corgipile.proof.markup import Markup
    from corgipile.quality.keyed import Spread

__all__ = ["Compared", "comparison_page", "repaid"]

NEAR = {"accuracy": 0.005, "r2": 0.01}  # scores that differ by no more are as good
REFERENCES = ("shuffle_once", "full")
DRAWN, TOLD = 200, 32  # points of a line, in a chart and in the table behind it
MANY = 4  # orders in one chart of deff
CLOSE = 0.02  # scores that are shown apart, where others are far off
STEEP = 20  # times that losses may differ on a linear scale


@dataclass(frozen=True)
class Compared:
    """What orders were compared on.

    Attributes:
        table: What the user calls the table.
        rows: Its rows.
        nbytes: Its bytes.
        model: The model that was trained.
        epochs: Passes over the table.
        memory: The budget, as it was given.
        held_out: Whether scores are of held-out rows.
        choice: What the planner found of orders and blocks; None if it was not asked.
        command: How to get the page again.
    """

    table: str
    rows: int
    nbytes: int
    model: str
    epochs: int
    memory: str
    held_out: bool = False
    choice: "Choice | None" = None
    command: str = ""


def comparison_page(results: "Sequence[Result]", of: Compared) -> Page:
    r"""Return the page of a comparison.

    Example:
        >>> from corgipile.comparison import Result
        >>> fast = Result("riffle", scores=(0.9,), losses=(0.2,), elapsed=(1.0,), seconds=1.0)
        >>> slow = Result("full", scores=(0.901,), losses=(0.2,), elapsed=(3.0,), seconds=3.0)
        >>> comparison_page([slow, fast], Compared("a.arrow", 1000, 9000, "logistic", 1, "1MB")).verdict
        'riffle trains to 90.00\xa0% in 1\xa0s, 3.0 times as fast as full, which reaches 90.10\xa0%.'
    """
    ran = [one for one in results if not one.failure and one.scores]
    ordered = _winner_first(ran)
    rows = "held-out rows" if of.held_out else "the rows trained on"
    metric = ran[0].metric if ran else "accuracy"
    lead = (
        f"One {of.model} model was trained by {len(results)} order{'s' * (len(results) != 1)} on {of.table}: "
        f"{of.rows:,} rows, {format_bytes(of.nbytes)}, {of.memory} of memory, {of.epochs} epochs each. "
        f"The {'R²' if metric == 'r2' else metric} is of {rows}."
    )
    named = [(one.order, at) for at, one in enumerate(ordered)]
    sections = [_side_by_side(results, ordered)]
    if ordered:
        sections.append(_learning(ordered, named))
        sections += [
            *_mixing(ordered),
            *_places(ordered),
            *speeds(of.choice, of.nbytes / max(1, of.rows)),
            *_memory(ordered, of),
            *_faults(ordered),
        ]
    return Page("corgipile compare", _verdict(results, ordered), lead, _facts(ordered), sections, of.command)


def _winner_first(ran: "Sequence[Result]") -> "list[Result]":
    """Return results, the fastest of those that are as good as the best, and mix, before the others."""
    if not ran:
        return []
    best = max((one.score for one in ran if math.isfinite(one.score)), default=math.nan)
    near = [one for one in ran if one.score >= best - NEAR.get(one.metric, 0.0)]
    winner = min([one for one in near if one.deff <= EVEN] or near or ran, key=_spent)
    return [winner, *(one for one in ran if one is not winner)]


def _spent(one: "Result") -> float:
    return one.elapsed[-1] if one.elapsed else math.inf


def _verdict(results: "Sequence[Result]", ordered: "Sequence[Result]") -> str:
    if not ordered:
        why = next((one.failure for one in results if one.failure), "none was run")
        return f"No order has a result: {why}."
    winner, others = ordered[0], ordered[1:]
    reached = f"{winner.order} trains to {_score(winner)} in {_seconds(_spent(winner))}"
    other = next((one for name in REFERENCES for one in ordered if one.order == name), None)
    if other is None:
        other = max(others, key=lambda one: one.score, default=None)
    if other is winner and others:
        return f"{reached}; no other order of {len(ordered)} comes as far in less time."
    if other is None or other is winner:
        return f"{reached}."
    if other.setup_seconds:
        epochs = f"{len(other.scores)} epoch{'s' * (len(other.scores) > 1)}"
        once = f"{_seconds(other.setup_seconds)} of them to write the table once, {repaid(other, results)}"
        return f"{reached}; {other.order} reaches {_score(other)} in {_seconds(_spent(other))} of {epochs}, {once}."
    return (
        f"{reached}, {_times(_spent(other) / max(_spent(winner), 1e-9))} {other.order}, which reaches {_score(other)}."
    )


def repaid(one: "Result", results: "Sequence[Result]") -> str:
    """Return when an order that writes the table once pays off, against the best of the orders that do not."""
    ran = [other for other in results if not other.failure and other.scores and not other.setup_seconds]
    best = next(iter(_winner_first(ran)), None)
    return f"{repays(one.setup_seconds, one.seconds, best.seconds)} against {best.order}" if best else "the only order"


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times as fast as" if ratio >= 1.05 else "about as fast as" if ratio > 0.95 else "slower than"


def _facts(ordered: "Sequence[Result]") -> list[tuple[str, str]]:
    if not ordered:
        return []
    one = ordered[0]
    return [
        ("fastest that is as good", one.order),
        ("R²" if one.metric == "r2" else one.metric, _score(one).removeprefix("R² ")),
        ("seconds an epoch", _seconds(one.seconds)),
        ("deff", f"{one.deff:.2f}"),
        ("rows in memory", format_bytes(one.buffer_bytes)),
    ]


def _side_by_side(results: "Sequence[Result]", ordered: "Sequence[Result]") -> Section:
    score = "R²" if ordered and ordered[0].metric == "r2" else "accuracy"
    head = ("order", score, "loss", "s an epoch", "s in all", "rows/s", "read an epoch", "deff predicted", "measured")
    rows = [(one.order, *_cells(one)) for one in ordered]
    notes = [(one.order, one.failure or one.warning) for one in results if one.failure or one.warning]
    parts = [table("", head, rows)] if rows else []
    accuracy = not ordered or ordered[0].metric == "accuracy"
    if notes:
        parts.append(table("What went wrong", ("order", "what"), notes, text=True))
    lead = (
        "Scores and losses are those after the last epoch. The first order is the fastest of those within "
        f"{'half a point' if accuracy else '0.01'} of the best; where some of these have a deff of at most {EVEN:g}, "
        "of them."
    )
    return Section("Orders side by side", lead, parts)


def _cells(one: "Result") -> tuple[str, ...]:
    found, share = _spread_of(one), one.metric == "accuracy"
    spread = f" ± {100 * one.spread if share else one.spread:.2f}" if one.seeds > 1 else ""
    return (
        _score(one).removeprefix("R² ") + spread,
        f"{one.loss:.4g}", f"{one.seconds:.3g}", f"{_spent(one):.3g}", f"{one.rows_per_second:,.0f}",
        format_bytes(one.bytes_read), f"{one.deff:.2f}", "" if found is None else f"{found.deff[0]:.2f}",
    )  # fmt: skip


def _spread_of(one: "Result") -> "Spread | None":
    """Return how labels were spread over the last epoch that came, not the one that deff was predicted of."""
    return one.audit.epochs[-1].spreads[0] if one.audit is not None else None


def _learning(ordered: "Sequence[Result]", named: Sequence[tuple[str, int]]) -> Section:
    share = ordered[0].metric == "accuracy"
    name, scale = ("accuracy, %", 100.0) if share else ("R²", 1.0)
    whole = list(range(len(ordered)))
    close = [at for at in whole if ordered[at].score >= max(one.score for one in ordered) - CLOSE]
    scores = [[scale * value for value in one.scores] for one in ordered]
    kinds = [(name, "", scores, whole), ("loss", "", [list(one.losses) for one in ordered], whole)]
    if 1 < len(close) < len(ordered):
        kinds.insert(1, (name, ", the best ones", scores, close))
    charts = []
    for title, which, values, shown in kinds:
        for along in ("epochs", "seconds"):
            when = [one.elapsed if along == "seconds" else range(1, len(one.scores) + 1) for one in ordered]
            points = [list(zip(map(float, when[at]), values[at], strict=True)) for at in whole]
            charts.append(_curves(title, which, along, [Line(ordered[at].order, points[at], at) for at in shown]))
    lead = "By epochs, and by the seconds of training: what is written once before it counts, measuring does not."
    return Section("What is learnt, by epochs and by seconds", lead, [key(named)], charts, "pairs")


def _curves(title: str, which: str, along: str, found: Sequence[Line]) -> Chart:
    points = [point for one in found for point in one.points]
    ups = [b for _, b in points if math.isfinite(b)]
    steep = title == "loss" and ups and min(ups) > 0 and max(ups) > STEEP * median(ups)
    x = linear([a for a, _ in points], zero=True, whole=along == "epochs")
    y = log(ups) if steep else linear(ups)
    what = title.partition(",")[0]
    last = [(one.name, *(f"{value:.4g}" for value in one.points[-1])) for one in found if one.points]
    said = "; ".join(f"{name}: {up} after {when} {along}" for name, when, up in last)
    rows = [(one.name, f"{a:.4g}", f"{b:.5g}") for one in found for a, b in _some(one.points, TOLD)]
    found = [one._replace(points=_some(one.points, DRAWN)) for one in found]
    head = f"{what[0].upper()}{what[1:]} by {along}{which}"
    return Chart(head, said, lines(found, x, y, (along, title)), ("order", along, title), rows)


def _some(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Return some points, evenly, and the last."""
    step = -(-len(points) // most)
    return [*points[: -1 : max(1, step)], *points[-1:]]


def _mixing(ordered: "Sequence[Result]") -> Iterator[Section]:
    known = [(one, found) for one in ordered if (found := _spread_of(one)) is not None]
    if not known:
        return
    values = [
        (one, spread, at, part)
        for one, spread in known
        for at, part in enumerate((spread.deff, spread.head, spread.middle, spread.tail))
    ]
    scale = deff_scale([*(part for *_, part in values), *((one.deff, 0.0) for one, _ in known)])
    shown = [Interval(one.order, *part, at, None if at else one.deff) for one, _, at, part in values]
    half = -(-len(known) // 2) * len(PARTS) if len(known) > MANY else len(shown)
    head = ("order", "predicted", "deff", "first tenth", "middle", "last tenth", "prefix")
    rows = [(one.order, f"{one.deff:.2f}", *spread_cells(spread), f"{spread.prefix:.2f}") for one, spread in known]
    charts = []
    for some in (shown[:half], shown[half:]):
        if some:
            drawn, height = intervals(some, scale, "deff", mark=1.0)
            said = "; ".join(
                f"{one.name}: {one.value:.2f}, predicted {one.expected:.2f}" for one in some if one.expected is not None
            )
            charts.append(Chart("deff of labels", said, drawn, height=height))
    lead = (
        "deff is how much labels vary from batch to batch: 1, the dashed line, as after a full shuffle; less is "
        "better. Predicted, the hollow diamond: the plan of one epoch, followed over row numbers. Measured: labels of "
        "another epoch as a loader gave them, with 95 % intervals, and parts of the epoch apart."
    )
    yield Section("How evenly batches mix", lead, [table("", head, rows), key(PARTS)], charts)


def _places(ordered: "Sequence[Result]") -> Iterator[Section]:
    charts = [
        chart
        for at, one in enumerate(ordered)
        if one.audit is not None and (chart := places(one.audit.epochs[0], one.order, at))
    ]
    if charts:
        lead = "Some rows: where they are stored, upwards, and when they come, along. A full shuffle is even noise."
        yield Section("Where rows come", lead, charts=charts, layout="small")


def _memory(ordered: "Sequence[Result]", of: Compared) -> Iterator[Section]:
    known = [one for one in ordered if one.peak_bytes]
    if not known:
        return
    size = 2.0**20
    shown = [Interval(one.order, one.peak_bytes / size, 0.0, at) for at, one in enumerate(ordered) if one.peak_bytes]
    scale: Scale = linear([one.value for one in shown], zero=True)
    drawn, height = intervals(shown, scale, "MB")
    rows = [(one.order, format_bytes(one.buffer_bytes), format_bytes(one.peak_bytes)) for one in known]
    said = "; ".join(f"{order}: {peak}, {rows_bytes} of rows" for order, rows_bytes, peak in rows)
    head = ("order", "rows in memory", "process")
    chart = Chart("Resident memory at most", said, drawn, head, rows, height=height)
    lead = f"The peak of the whole process, Python and its libraries included; the budget for rows was {of.memory}."
    yield Section("Memory", lead, charts=[chart])


def _faults(ordered: "Sequence[Result]") -> Iterator[Section]:
    audits = [(one.order, one.audit) for one in ordered if one.audit is not None]
    if not audits:
        return
    bad = [(name, found) for name, found in audits if found.faults]
    parts: list[Markup] = [faults_of(found.faults, f"{name}: ") for name, found in bad]
    good = ", ".join(name for name, found in audits if not found.faults)
    lead = f"No fault in two epochs of {good}." if good else ""
    if not bad:
        parts = [faults_of(())]
    yield Section("Faults", lead, parts)


def _score(one: "Result") -> str:
    return f"{100 * one.score:.2f}\N{NO-BREAK SPACE}%" if one.metric == "accuracy" else f"R² {one.score:.4f}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g}\N{NO-BREAK SPACE}s"
