"""``corgipile inspect``."""

from typing import TYPE_CHECKING, Annotated

import typer

import corgipile as cp
from corgipile.cli.console import command as guarded
from corgipile.cli.console import note, show_facts, show_json
from corgipile.cli.flags import Json, Tables
from corgipile.cli.info import lines_of, writable, write_page
from corgipile.cli.options import Overwrite, number_or_text
from corgipile.cli.pages import Html
from corgipile.cli.plan import choice_facts, order_text, price_of, show_choice
from corgipile.errors import BadArgument, BudgetTooSmall
from corgipile.lazy import lazy

if TYPE_CHECKING:
    from corgipile.description import About

description = lazy("corgipile.description")
unit_check = lazy("corgipile.tables.unit_check")

_MAX_COLUMNS = 12  # shown
MARGIN, STANDARD_ERRORS = 0.5, 3  # h_D is reported above 1 + MARGIN + STANDARD_ERRORS of its error


@guarded
def command(
    table: Tables,
    *,
    label: Annotated[str, typer.Option(help="Column to describe.")] = "label",
    block: Annotated[str, typer.Option(help="Block size for h_D: rows, bytes or share.")] = "256KB",
    memory: Annotated[str | None, typer.Option(help="Budget: bytes ('256MB') or share of the table.")] = None,
    batch_size: Annotated[int, typer.Option(help="Rows of a batch.")] = 256,
    seconds: Annotated[float | None, typer.Option(help="Seconds to measure each order; 0: do not measure.")] = None,
    price: Annotated[str | None, typer.Option(help="Price of store requests: '0.0004/1000GET'.")] = None,
    html: Html = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Show what `info` shows, and the layout, clustering columns, missing values and the cost of each order."""
    cost = price_of(price) if price is not None else None
    source = writable(html, table, overwrite=overwrite)
    opened = cp.open(source)
    unit_check.check_decoding(opened, opened.schema.names, memory)
    facts = description.about(opened, label=label, block=number_or_text(block), columns=True)
    column = label if label in facts.columns else None
    try:
        plan = cp.planner.choose(opened, memory=memory, batch_size=batch_size, label=column, seconds=seconds)
    except (BudgetTooSmall, BadArgument) as error:
        if facts.rows and not isinstance(error, BudgetTooSmall):
            raise
        plan, why = None, str(error)
    if html is not None:
        write_page(html, facts, table, label, source, overwrite=overwrite, choice=plan)
    if json:
        show_json({**vars(facts), "plan": {"error": why} if plan is None else choice_facts(plan, cost)})
        return
    ordered = [(f"sorted by {name}", f"{way} from row group to row group") for name, way in facts.sorted_by.items()]
    more = [*_few(ordered), *_clusters(facts), *_missing(facts)]
    show_facts(" ".join(table), [*lines_of(facts, block), ("layout", facts.layout), *more])
    if plan is None:
        note(f"No order fits: {why}")
        return
    show_choice(" ".join(table), plan, cost)
    note(f"`corgipile plan` would choose {order_text(plan.best)}.")


def _few(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    more = [("", f"and by {len(lines) - _MAX_COLUMNS} other columns")] if len(lines) > _MAX_COLUMNS else []
    return lines[:_MAX_COLUMNS] + more


def _clusters(facts: "About") -> list[tuple[str, str]]:
    """Return lines on the columns that cluster rows: h_D is significantly above 1."""
    measured = [(name, h_d, error) for name, (h_d, error) in facts.by_column.items()]
    clustered = [one for one in measured if one[1] > 1 + MARGIN + STANDARD_ERRORS * one[2]]
    lines = _few([(f"clustered by {name}", f"h_D {h_d:.3g} ± {error:.2g}") for name, h_d, error in clustered])
    if lines and facts.by_rows != facts.block_rows:
        lines.append(("", f"in blocks of {facts.by_rows:,} rows"))
    none = f"none of {len(facts.by_column)} measurable columns"
    return lines or [("clustered by", none if facts.by_column else "unknown: too few rows, or no measurable column")]


def _missing(facts: "About") -> list[tuple[str, str]]:
    """Return a line on missing values in the sampled rows."""
    if not facts.sampled:
        return []
    text = ", ".join(f"{name} {count:,}" for name, count in facts.missing.items()) or "nothing"
    return [(f"null or NaN in {facts.sampled:,} rows", text)]
