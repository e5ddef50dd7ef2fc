"""Report page of a table: its content, and the columns that its rows are clustered by."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from corgipile.proof.charts import Chart, Interval, intervals
from corgipile.proof.costs import costs, speeds
from corgipile.proof.page import Page, Section, table
from corgipile.proof.scales import linear, log
from corgipile.sizes import format_bytes

if TYPE_CHECKING:
    from corgipile.description import About
    from corgipile.planner import Choice

__all__ = ["about_page"]

MIN_WHOLE_H_D = 100  # h_D that is written without decimals
MAX_DRAWN, MAX_TABLE_ROWS = 24, 400  # columns or labels in a chart and in a table at most
MAX_MIXED_H_D = 1.5  # h_D up to which blocks count as random samples


def about_page(
    facts: "About", name: str, label: str = "label", command: str = "", choice: "Choice | None" = None
) -> Page:
    """Return the report page of a table.

    Args:
        facts: Description of the table.
        name: The user's name for the table.
        label: Name of the label column.
        command: Command that makes the page.
        choice: The plan for the table; None without one.

    Example:
        >>> from corgipile.datasets import clustered
        >>> from corgipile.description import about
        >>> about_page(about(clustered(1000, classes=2), block=100), "rows").verdict
        'Rows are clustered by label: h_D is 100 in blocks of 100 rows; random blocks have 1.'
    """
    figures = [
        ("rows", f"{facts.rows:,}"),
        ("bytes", format_bytes(facts.nbytes)),
        ("bytes a row", f"{facts.nbytes / max(1, facts.rows):.4g}"),
        ("columns", f"{len(facts.columns):,}"),
        ("rows read together", f"{facts.unit:,}"),
        ("blocks", f"{facts.blocks:,} of {facts.block_rows:,} rows"),
    ]
    known = _known(facts, label)
    planned = [*costs(choice), *speeds(choice, facts.nbytes / max(1, facts.rows))]
    sections = [*_clusters(facts, known), *_labels(facts), *planned, _columns(facts)]
    return Page("A table", _verdict(facts, known), f"{name}. {facts.advice or ''}".strip(), figures, sections, command)


def _known(facts: "About", label: str) -> dict[str, tuple[float, float]]:
    """Return h_D and its standard error by column, highest first; the label's is exact for the same blocks."""
    exact = {label: (facts.h_d, 0.0)} if facts.h_d is not None and facts.blocks > 1 else {}
    if facts.by_column and facts.by_rows != facts.block_rows:
        exact = {}
    h_d = {**facts.by_column, **exact}
    return dict(sorted(h_d.items(), key=lambda column: -column[1][0]))


def _rows(facts: "About") -> int:
    """Return the rows per block of the columns' h_D."""
    return facts.by_rows or facts.block_rows


def _verdict(facts: "About", known: dict[str, tuple[float, float]]) -> str:
    if not known:
        return f"{facts.rows:,} rows of {len(facts.columns):,} columns, {format_bytes(facts.nbytes)}."
    name, (value, _) = next(iter(known.items()))
    if value <= MAX_MIXED_H_D:
        return f"Rows are mixed: blocks of {_rows(facts):,} rows are like random ones by each of {len(known)} columns."
    h_d = f"{value:,.{0 if value >= MIN_WHOLE_H_D else 1}f}"
    blocks = f"blocks of {_rows(facts):,} rows; random blocks have 1"
    return f"Rows are clustered by {name}: h_D is {h_d} in {blocks}."


def _clusters(facts: "About", h_d: dict[str, tuple[float, float]]) -> Iterator[Section]:
    if not h_d:
        return
    shown = [Interval(name, value, 2 * error) for name, (value, error) in list(h_d.items())[:MAX_DRAWN]]
    scale = log([0.5, float(_rows(facts)), *(interval.value for interval in shown)], least=0.5)
    drawn, height = intervals(shown, scale, "h_D", mark=1.0)
    cells = [(name, f"{value:.4g}", f"{error:.2g}") for name, (value, error) in h_d.items()][:MAX_TABLE_ROWS]
    alt = "; ".join(f"{name}: {value} ± {error}" for name, value, error in cells[:MAX_DRAWN])
    chart = Chart("h_D by column", alt, drawn, ("column", "h_D", "standard error"), cells, height=height)
    lead = (
        f"h_D measures how similar a block's rows are: 1, the dashed line, for random blocks, {_rows(facts):,} for "
        "blocks of a single kind. Above 1, reading in storage order hurts SGD, and orders need to mix more blocks."
    )
    lead += f" Shown: the first {MAX_DRAWN} of {len(h_d):,} columns." * (len(h_d) > MAX_DRAWN)
    yield Section("Columns that rows are clustered by", lead, charts=[chart])


def _labels(facts: "About") -> Iterator[Section]:
    if facts.label_range is not None:
        low, mean, high = (f"{value:.4g}" for value in facts.label_range)
        yield Section("Labels", f"Numbers from {low} to {high}, {mean} on average.")
    if not facts.classes:
        return
    counts = list(facts.classes.items())
    shown = [Interval(name, count) for name, count in counts[:MAX_DRAWN]]
    drawn, height = intervals(shown, linear(facts.classes.values(), zero=True), "rows")
    cells = [(name, f"{count:,}", f"{count / facts.rows:.2%}") for name, count in counts[:MAX_TABLE_ROWS]]
    alt = "; ".join(f"{name}: {count} rows, {share}" for name, count, share in cells[:MAX_DRAWN])
    chart = Chart("Rows by label", alt, drawn, ("label", "rows", "share"), cells, height=height)
    many = f"The {MAX_DRAWN} most frequent of {len(facts.classes):,}." if len(facts.classes) > MAX_DRAWN else ""
    yield Section("Labels", many, charts=[chart])


def _columns(facts: "About") -> Section:
    rows = list(facts.columns.items())
    caption = f"The first {MAX_TABLE_ROWS} of {len(rows):,}" if len(rows) > MAX_TABLE_ROWS else ""
    return Section("Columns", "", [table(caption, ("column", "type"), rows[:MAX_TABLE_ROWS], text=True)])
