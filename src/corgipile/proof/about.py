"""The page of a table: what it holds, and by what its rows are clustered."""

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

LARGE = 100  # h_D that needs no fractions
DRAWN, ROWS = 24, 400  # columns or labels in a chart, in a table
MIXED = 1.5  # h_D of blocks that are about like random samples


def about_page(
    facts: "About", name: str, label: str = "label", command: str = "", choice: "Choice | None" = None
) -> Page:
    """Return the page of a table.

    Args:
        facts: What is known of it.
        name: What the user calls it.
        label: Its column of labels.
        command: How to get the page again.
        choice: What the planner found of orders and blocks; None if it was not asked.

    Example:
        >>> from corgipile.datasets import clustered
        >>> from corgipile.description import about
        >>> about_page(about(clustered(1000, classes=2), block=100), "rows").verdict
        'Rows lie clustered by label: h_D is 100 in blocks of 100 rows, of which random ones have 1.'
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
    """Return h_D by column and its standard error, highest first; the label's, of the same blocks, is exact."""
    exact = {label: (facts.h_d, 0.0)} if facts.h_d is not None and facts.blocks > 1 else {}
    if facts.by_column and facts.by_rows != facts.block_rows:
        exact = {}
    found = {**facts.by_column, **exact}
    return dict(sorted(found.items(), key=lambda one: -one[1][0]))


def _rows(facts: "About") -> int:
    """Return the rows of the blocks by which columns were measured."""
    return facts.by_rows or facts.block_rows


def _verdict(facts: "About", known: dict[str, tuple[float, float]]) -> str:
    if not known:
        return f"{facts.rows:,} rows of {len(facts.columns):,} columns, {format_bytes(facts.nbytes)}."
    name, (value, _) = next(iter(known.items()))
    if value <= MIXED:
        return f"Rows lie mixed: blocks of {_rows(facts):,} are like random ones by each of {len(known)} columns."
    h_d = f"{value:,.{0 if value >= LARGE else 1}f}"
    blocks = f"blocks of {_rows(facts):,} rows, of which random ones have 1"
    return f"Rows lie clustered by {name}: h_D is {h_d} in {blocks}."


def _clusters(facts: "About", found: dict[str, tuple[float, float]]) -> Iterator[Section]:
    if not found:
        return
    shown = [Interval(name, value, 2 * error) for name, (value, error) in list(found.items())[:DRAWN]]
    scale = log([0.5, float(_rows(facts)), *(one.value for one in shown)], least=0.5)
    drawn, height = intervals(shown, scale, "h_D", mark=1.0)
    cells = [(name, f"{value:.4g}", f"{error:.2g}") for name, (value, error) in found.items()][:ROWS]
    said = "; ".join(f"{name}: {value} ± {error}" for name, value, error in cells[:DRAWN])
    chart = Chart("h_D by column", said, drawn, ("column", "h_D", "standard error"), cells, height=height)
    lead = (
        f"h_D says how alike the rows of a block are: 1, the dashed line, for random ones, {_rows(facts):,} for "
        "blocks of one kind. Where it is above 1, reading in order is bad for SGD, and orders mix the more blocks."
    )
    lead += f" Drawn: the first {DRAWN} of {len(found):,} columns." * (len(found) > DRAWN)
    yield Section("What rows are clustered by", lead, charts=[chart])


def _labels(facts: "About") -> Iterator[Section]:
    if facts.label_range is not None:
        low, mean, high = (f"{one:.4g}" for one in facts.label_range)
        yield Section("Labels", f"Numbers from {low} to {high}, {mean} on average.")
    if not facts.classes:
        return
    shown = list(facts.classes.items())[:DRAWN]
    drawn, height = intervals(
        [Interval(name, count) for name, count in shown], linear(facts.classes.values(), zero=True), "rows"
    )
    cells = [(name, f"{count:,}", f"{count / facts.rows:.2%}") for name, count in list(facts.classes.items())[:ROWS]]
    said = "; ".join(f"{name}: {count} rows, {share}" for name, count, share in cells[:DRAWN])
    chart = Chart("Rows by label", said, drawn, ("label", "rows", "share"), cells, height=height)
    many = f"The {DRAWN} most frequent of {len(facts.classes):,}." if len(facts.classes) > DRAWN else ""
    yield Section("Labels", many, charts=[chart])


def _columns(facts: "About") -> Section:
    rows = list(facts.columns.items())
    caption = f"The first {ROWS} of {len(rows):,}" if len(rows) > ROWS else ""
    return Section("Columns", "", [table(caption, ("column", "type"), rows[:ROWS], text=True)])
