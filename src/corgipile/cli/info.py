"""``corgipile info``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

import corgipile as cp
from corgipile.cli.console import command as guarded
from corgipile.cli.console import note, show_facts, show_json
from corgipile.cli.flags import Json, Tables
from corgipile.cli.opening import source_of
from corgipile.cli.options import Overwrite, number_or_text
from corgipile.cli.pages import Html, check_page, command_text, without_secrets
from corgipile.cli.plan import choice_facts, order_text, price_of, show_choice
from corgipile.errors import BadArgument, BudgetTooSmall
from corgipile.lazy import lazy
from corgipile.sizes import format_bytes

if TYPE_CHECKING:
    from corgipile.description import About
    from corgipile.planner import Choice

description = lazy("corgipile.description")
proof = lazy("corgipile.proof")
unit_check = lazy("corgipile.tables.unit_check")

_MAX_LABELS = _MAX_COLUMNS = 12  # shown
MARGIN, STANDARD_ERRORS = 0.5, 3  # h_D is reported above 1 + MARGIN + STANDARD_ERRORS of its error


@guarded
def command(
    table: Tables,
    *,
    label: Annotated[str, typer.Option(help="Column to describe.")] = "label",
    block: Annotated[str, typer.Option(help="Block size for h_D: rows, bytes or share.")] = "256KB",
    full: Annotated[
        bool, typer.Option("--full", help="Add layout, clustering columns, missing values and the cost of each order.")
    ] = False,
    memory: Annotated[str | None, typer.Option(help="--full: budget, bytes ('256MB') or share of the table.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="--full: rows of a batch.  [default: 256]")] = None,
    seconds: Annotated[float | None, typer.Option(help="--full: seconds to measure each order; 0: none.")] = None,
    price: Annotated[str | None, typer.Option(help="--full: price of store requests, '0.0004/1000GET'.")] = None,
    html: Html = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Show rows, columns and bytes of a table, and how clustered it is; --full: also the cost of each order."""
    full = full or any(one is not None for one in (memory, batch_size, seconds, price))
    cost = price_of(price) if price is not None else None
    if html is not None:
        check_page(html, [table], overwrite=overwrite)
    opened = cp.open(source_of(table))
    if full:
        unit_check.check_decoding(opened, opened.schema.names, memory)
    facts = description.about(opened, label=label, block=number_or_text(block), columns=full or html is not None)
    plan, why = _plan(opened, facts, label, memory, batch_size or 256, seconds) if full else (None, "")
    if html is not None:
        name = " ".join(map(without_secrets, table))
        proof.about_page(facts, name, label, command_text(), plan).save(html, inputs=[opened], overwrite=overwrite)
    if json:
        plans = {"plan": {"error": why} if plan is None else choice_facts(plan, cost)} if full else {}
        show_json({**vars(facts), **plans})
        return
    show_facts(" ".join(table), [*_lines(facts, block), *(_more(facts) if full else ())])
    if plan is not None:
        show_choice(" ".join(table), plan, cost)
        note(f"`corgipile plan` would choose {order_text(plan.best)}.")
    elif full:
        note(f"No order fits: {why}")


def _plan(
    opened: Any, facts: "About", label: str, memory: str | None, batch_size: int, seconds: float | None
) -> tuple["Choice | None", str]:
    """Return the chosen order, or None and the reason."""
    column = label if label in facts.columns else None
    try:
        return cp.planner.choose(opened, memory=memory, batch_size=batch_size, label=column, seconds=seconds), ""
    except (BudgetTooSmall, BadArgument) as error:
        if facts.rows and not isinstance(error, BudgetTooSmall):
            raise
        return None, str(error)


def _lines(facts: "About", block: str) -> list[tuple[str, str]]:
    """Return the facts as names and formatted values."""
    lines = [
        ("rows", f"{facts.rows:,}"),
        ("bytes", f"{facts.nbytes:,} ({format_bytes(facts.nbytes)}; {facts.nbytes / max(1, facts.rows):.1f} a row)"),
        ("natural unit", f"{facts.unit:,} row{'s' * (facts.unit != 1)}"),
        (f"blocks of {block}", f"{facts.blocks:,} of {facts.block_rows:,} rows"),
        *((f"column {name}", kind) for name, kind in facts.columns.items()),
    ]
    if facts.h_d is not None and facts.blocks > 1:
        lines.append(("h_D of the label", f"{facts.h_d:.4g} (1: random blocks, {facts.block_rows:,}: constant ones)"))
    if facts.label_range is not None:
        low, mean, high = facts.label_range
        lines.append(("labels", f"{low:.4g} to {high:.4g}, mean {mean:.4g}"))
    elif facts.h_d is not None and not facts.classes:
        lines.append(("labels", "more than 1,024 different texts"))
    for value, count in list(facts.classes.items())[:_MAX_LABELS]:
        lines.append((f"label {value}", f"{count:,} rows ({100 * count / facts.rows:.1f} %)"))
    if len(facts.classes) > _MAX_LABELS:
        lines.append(("", f"and {len(facts.classes) - _MAX_LABELS} other labels"))
    if facts.unmeasured:
        lines.append(("not measured", f"{', '.join(facts.unmeasured)}: a stored unit exceeds the default budget"))
    if facts.advice is not None:
        lines.append(("reading", facts.advice))
    return lines


def _more(facts: "About") -> list[tuple[str, str]]:
    """Return lines on the layout, the columns that sort or cluster rows, and missing values."""
    ordered = [(f"sorted by {name}", f"{way} from row group to row group") for name, way in facts.sorted_by.items()]
    return [("layout", facts.layout), *_few(ordered), *_clusters(facts), *_missing(facts)]


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
