"""Report page of a comparison of orders."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from corgipile.proof.audit import PARTS, deff_scale, fault_list, parts_of, places, spread_cells
from corgipile.proof.charts import Chart, Interval, Line, intervals, key, lines
from corgipile.proof.costs import speeds
from corgipile.proof.page import Page, Section, table
from corgipile.proof.scales import Scale, linear, log
from corgipile.repayment import repays
from corgipile.sizes import format_bytes
from corgipile.verdicts import MAX_EVEN_DEFF

if TYPE_CHECKING:
    from corgipile.comparison import Result
    from corgipile.planner import Choice
    from corgipile.proof.markup import Markup
    from corgipile.quality.keyed import Spread

__all__ = ["Compared", "comparison_page", "repaid"]

SCORE_TOLERANCES = {"accuracy": 0.005, "r2": 0.01}  # differences of scores that count as equal
REFERENCES = ("shuffle_once", "full")
MAX_CHART_POINTS, MAX_TABLE_POINTS = 200, 32  # points of a line in a chart, and in its table
MAX_CHART_ORDERS = 4  # orders in one deff chart at most
MAX_SCORE_GAP = 0.02  # distance from the best score for the extra chart
MIN_LOG_RATIO = 20  # ratio of losses that needs a logarithmic scale


@dataclass(frozen=True)
class Compared:
    """Subject of a comparison.

    Attributes:
        table: The user's name for the table.
        rows: Rows of the table.
        nbytes: Bytes of the table.
        model: The model that was trained.
        epochs: Passes over the table.
        memory: The budget, as given.
        held_out: Whether scores are of the validation set.
        choice: The plan for the table; None without one.
        command: Command that makes the page.
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
    r"""Return the report page of a comparison.

    Example:
        >>> from corgipile.comparison import Result
        >>> fast = Result("riffle", scores=(0.9,), losses=(0.2,), elapsed=(1.0,), seconds=1.0)
        >>> slow = Result("full", scores=(0.901,), losses=(0.2,), elapsed=(3.0,), seconds=3.0)
        >>> comparison_page([slow, fast], Compared("a.arrow", 1000, 9000, "logistic", 1, "1MB")).verdict
        'riffle trains to 90.00\xa0% in 1\xa0s, 3.0 times as fast as full, which reaches 90.10\xa0%.'
    """
    ran = [run for run in results if not run.failure and run.scores]
    ordered = _winner_first(ran)
    rows = "the validation set" if of.held_out else "the training rows"
    metric = ran[0].metric if ran else "accuracy"
    lead = (
        f"One {of.model} model was trained with {len(results)} order{'s' * (len(results) != 1)} on {of.table}: "
        f"{of.rows:,} rows, {format_bytes(of.nbytes)}, {of.memory} of memory, {of.epochs} epochs each. "
        f"The {'R²' if metric == 'r2' else metric} is that of {rows}."
    )
    named = [(run.order, at) for at, run in enumerate(ordered)]
    sections = [_results_table(results, ordered)]
    if ordered:
        sections.append(_learning(ordered, named))
        sections += [*_mixing(ordered), *_places(ordered), *speeds(of.choice, of.nbytes / max(1, of.rows))]
        sections += [*_memory(ordered, of), *_faults(ordered)]
    return Page("corgipile compare", _verdict(results, ordered), lead, _facts(ordered), sections, of.command)


def _winner_first(ran: "Sequence[Result]") -> "list[Result]":
    """Return results, first the winner: the fastest well-mixed order whose score equals the best."""
    if not ran:
        return []
    best = max((run.score for run in ran if math.isfinite(run.score)), default=math.nan)
    close_results = [run for run in ran if run.score >= best - SCORE_TOLERANCES.get(run.metric, 0.0)]
    winner = min([run for run in close_results if run.deff <= MAX_EVEN_DEFF] or close_results or ran, key=_spent)
    return [winner, *(run for run in ran if run is not winner)]


def _spent(run: "Result") -> float:
    return run.elapsed[-1] if run.elapsed else math.inf


def _verdict(results: "Sequence[Result]", ordered: "Sequence[Result]") -> str:
    if not ordered:
        why = next((run.failure for run in results if run.failure), "no order was run")
        return f"No order has a result: {why}."
    winner, others = ordered[0], ordered[1:]
    reached = f"{winner.order} trains to {_score(winner)} in {_seconds(_spent(winner))}"
    other = next((run for name in REFERENCES for run in ordered if run.order == name), None)
    if other is None:
        other = max(others, key=lambda run: run.score, default=None)
    if other is winner and others:
        return f"{reached}; none of {len(ordered)} orders reaches as much in less time."
    if other is None or other is winner:
        return f"{reached}."
    if other.setup_seconds:
        epochs = f"{len(other.scores)} epoch{'s' * (len(other.scores) > 1)}"
        once = f"including {_seconds(other.setup_seconds)} to write the table once, {repaid(other, results)}"
        return f"{reached}; {other.order} reaches {_score(other)} in {_seconds(_spent(other))} and {epochs}, {once}."
    times = _times(_spent(other) / max(_spent(winner), 1e-9))
    return f"{reached}, {times} {other.order}, which reaches {_score(other)}."


def repaid(run: "Result", results: "Sequence[Result]") -> str:
    """Return when an order with a setup pays off against the best order without one."""
    ran = [other for other in results if not other.failure and other.scores and not other.setup_seconds]
    best = next(iter(_winner_first(ran)), None)
    return f"{repays(run.setup_seconds, run.seconds, best.seconds)} against {best.order}" if best else "the only order"


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times as fast as" if ratio >= 1.05 else "about as fast as" if ratio > 0.95 else "slower than"


def _facts(ordered: "Sequence[Result]") -> list[tuple[str, str]]:
    if not ordered:
        return []
    run = ordered[0]
    return [
        ("fastest of the best", run.order),
        ("R²" if run.metric == "r2" else run.metric, _score(run).removeprefix("R² ")),
        ("seconds per epoch", _seconds(run.seconds)),
        ("deff", f"{run.deff:.2f}"),
        ("rows in memory", format_bytes(run.buffer_bytes)),
    ]


def _results_table(results: "Sequence[Result]", ordered: "Sequence[Result]") -> Section:
    score = "R²" if ordered and ordered[0].metric == "r2" else "accuracy"
    head = ("order", score, "loss", "s per epoch", "s in all", "rows/s", "read per epoch", "deff predicted", "measured")
    rows = [(run.order, *_cells(run)) for run in ordered]
    notes = [(run.order, run.failure or run.warning) for run in results if run.failure or run.warning]
    parts = [table("", head, rows)] if rows else []
    accuracy = not ordered or ordered[0].metric == "accuracy"
    if notes:
        parts.append(table("Warnings and failures", ("order", "message"), notes, text=True))
    lead = (
        "Scores and losses are those after the last epoch. The first order is the fastest within "
        f"{'half a point' if accuracy else '0.01'} of the best score; those with deff <= {MAX_EVEN_DEFF:g} come first."
    )
    return Section("Results by order", lead, parts)


def _cells(run: "Result") -> tuple[str, ...]:
    audited, share = _label_spread(run), run.metric == "accuracy"
    spread = f" ± {100 * run.spread if share else run.spread:.2f}" if run.seeds > 1 else ""
    return (
        _score(run).removeprefix("R² ") + spread,
        f"{run.loss:.4g}", f"{run.seconds:.3g}", f"{_spent(run):.3g}", f"{run.rows_per_second:,.0f}",
        format_bytes(run.bytes_read), f"{run.deff:.2f}", "" if audited is None else f"{audited.deff[0]:.2f}",
    )  # fmt: skip


def _label_spread(run: "Result") -> "Spread | None":
    """Return the spread of labels in the last epoch, not the one that deff was predicted for."""
    return run.audit.epochs[-1].spreads[0] if run.audit is not None else None


def _learning(ordered: "Sequence[Result]", named: Sequence[tuple[str, int]]) -> Section:
    share = ordered[0].metric == "accuracy"
    name, scale = ("accuracy, %", 100.0) if share else ("R²", 1.0)
    whole = list(range(len(ordered)))
    close = [at for at in whole if ordered[at].score >= max(run.score for run in ordered) - MAX_SCORE_GAP]
    scores = [[scale * value for value in run.scores] for run in ordered]
    kinds = [(name, "", scores, whole), ("loss", "", [list(run.losses) for run in ordered], whole)]
    if 1 < len(close) < len(ordered):
        kinds.insert(1, (name, ", best orders", scores, close))
    charts = []
    for title, which, values, shown in kinds:
        for along in ("epochs", "seconds"):
            when = [run.elapsed if along == "seconds" else range(1, len(run.scores) + 1) for run in ordered]
            points = [list(zip(map(float, when[at]), values[at], strict=True)) for at in whole]
            charts.append(_curves(title, which, along, [Line(ordered[at].order, points[at], at) for at in shown]))
    lead = "By epochs, and by seconds of training, including a setup's writing but not the measurements."
    return Section("Learning curves, by epochs and by seconds", lead, [key(named)], charts, "pairs")


def _curves(title: str, which: str, along: str, curves: Sequence[Line]) -> Chart:
    points = [point for curve in curves for point in curve.points]
    ups = [b for _, b in points if math.isfinite(b)]
    steep = title == "loss" and ups and min(ups) > 0 and max(ups) > MIN_LOG_RATIO * median(ups)
    x = linear([a for a, _ in points], zero=True, whole=along == "epochs")
    y = log(ups) if steep else linear(ups)
    what = title.partition(",")[0]
    last = [(curve.name, *(f"{value:.4g}" for value in curve.points[-1])) for curve in curves if curve.points]
    alt = "; ".join(f"{name}: {up} after {when} {along}" for name, when, up in last)
    listed = ((curve.name, *point) for curve in curves for point in _thin_out(curve.points, MAX_TABLE_POINTS))
    rows = [(name, f"{a:.4g}", f"{b:.5g}") for name, a, b in listed]
    curves = [curve._replace(points=_thin_out(curve.points, MAX_CHART_POINTS)) for curve in curves]
    head = f"{what[0].upper()}{what[1:]} by {along}{which}"
    return Chart(head, alt, lines(curves, x, y, (along, title)), ("order", along, title), rows)


def _thin_out(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Return evenly spaced points, and the last one."""
    step = -(-len(points) // most)
    return [*points[: -1 : max(1, step)], *points[-1:]]


def _mixing(ordered: "Sequence[Result]") -> Iterator[Section]:
    known = [(run, spread) for run in ordered if (spread := _label_spread(run)) is not None]
    if not known:
        return
    values = [(run, at, part) for run, spread in known for at, part in enumerate(parts_of(spread))]
    scale = deff_scale([*(part for *_, part in values), *((run.deff, 0.0) for run, _ in known)])
    shown = [Interval(run.order, *part, at, None if at else run.deff) for run, at, part in values]
    half = -(-len(known) // 2) * len(PARTS) if len(known) > MAX_CHART_ORDERS else len(shown)
    head = ("order", "predicted", "deff", "first tenth", "middle", "last tenth", "prefix")
    rows = [(run.order, f"{run.deff:.2f}", *spread_cells(spread), f"{spread.prefix:.2f}") for run, spread in known]
    charts = []
    for some in (shown[:half], shown[half:]):
        if some:
            drawn, height = intervals(some, scale, "deff", mark=1.0)
            predicted = (run for run in some if run.expected is not None)
            alt = "; ".join(f"{run.name}: {run.value:.2f}, predicted {run.expected:.2f}" for run in predicted)
            charts.append(Chart("deff of labels", alt, drawn, height=height))
    lead = (
        "deff measures how much labels vary from batch to batch: 1, the dashed line, is a full shuffle; less is "
        "better. Predicted (hollow diamond): one epoch, simulated over row numbers. Measured: labels of another "
        "epoch from the loader, with 95 % intervals, for the epoch and its parts."
    )
    yield Section("How evenly batches mix", lead, [table("", head, rows), key(PARTS)], charts)


def _places(ordered: "Sequence[Result]") -> Iterator[Section]:
    drawn = (places(run.audit.epochs[0], run.order, at) for at, run in enumerate(ordered) if run.audit is not None)
    charts = list(filter(None, drawn))
    if charts:
        lead = "Some rows: place in storage (vertical) and in the epoch (horizontal). A full shuffle is even noise."
        yield Section("Row places", lead, charts=charts, layout="small")


def _memory(ordered: "Sequence[Result]", of: Compared) -> Iterator[Section]:
    known = [run for run in ordered if run.peak_bytes]
    if not known:
        return
    size = 2.0**20
    shown = [Interval(run.order, run.peak_bytes / size, 0.0, at) for at, run in enumerate(ordered) if run.peak_bytes]
    scale: Scale = linear([run.value for run in shown], zero=True)
    drawn, height = intervals(shown, scale, "MB")
    rows = [(run.order, format_bytes(run.buffer_bytes), format_bytes(run.peak_bytes)) for run in known]
    alt = "; ".join(f"{order}: {peak}, {rows_bytes} of rows" for order, rows_bytes, peak in rows)
    head = ("order", "rows in memory", "process")
    chart = Chart("Peak resident memory", alt, drawn, head, rows, height=height)
    lead = f"The peak of the whole process, including Python and libraries; the budget for rows was {of.memory}."
    yield Section("Memory", lead, charts=[chart])


def _faults(ordered: "Sequence[Result]") -> Iterator[Section]:
    audits = [(run.order, run.audit) for run in ordered if run.audit is not None]
    if not audits:
        return
    bad = [(name, audit) for name, audit in audits if audit.faults]
    parts: list[Markup] = [fault_list(audit.faults, f"{name}: ") for name, audit in bad]
    good = ", ".join(name for name, audit in audits if not audit.faults)
    lead = f"No fault in two epochs of {good}." if good else ""
    if not bad:
        parts = [fault_list(())]
    yield Section("Faults", lead, parts)


def _score(run: "Result") -> str:
    return f"{100 * run.score:.2f}\N{NO-BREAK SPACE}%" if run.metric == "accuracy" else f"R² {run.score:.4f}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g}\N{NO-BREAK SPACE}s"
