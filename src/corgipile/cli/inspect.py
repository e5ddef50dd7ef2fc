"""``corgipile inspect``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from corgipile.cli.console import command as guarded
from corgipile.cli.console import note, show_facts, show_json
from corgipile.cli.flags import Json, Tables
from corgipile.cli.info import lines_of, writable, write_page
from corgipile.cli.options import Overwrite
from corgipile.cli.pages import Html
from corgipile.cli.plan import price_of, said, shown, told

if TYPE_CHECKING:
    from corgipile.description import About

_MOST_SHOWN = 12
MARGIN, SURE = 0.5, 3  # how far above 1 is worth a word, and how many standard errors


@guarded
def command(
    table: Tables,
    *,
    label: Annotated[str, typer.Option(help="Column to describe.")] = "label",
    block: Annotated[str, typer.Option(help="Block that h_D is measured for: rows, bytes or share.")] = "256KB",
    memory: Annotated[str | None, typer.Option(help="Budget: bytes ('256MB') or share of the table.")] = None,
    batch_size: Annotated[int, typer.Option(help="Rows of a batch.")] = 256,
    seconds: Annotated[float | None, typer.Option(help="How long each order is tried; 0: not.")] = None,
    price: Annotated[str | None, typer.Option(help="Of requests to a store: '0.0004/1000GET'.")] = None,
    html: Html = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Show what `info` does, and how rows lie, what clusters them, what is missing, what each order costs."""
    from corgipile.cli.options import number_or_text  # noqa: PLC0415
    from corgipile.description import about  # noqa: PLC0415
    from corgipile.errors import BadArgument, BudgetTooSmall  # noqa: PLC0415
    from corgipile.planner import choose  # noqa: PLC0415
    from corgipile.tables import open as open_table  # noqa: PLC0415
    from corgipile.tables.unit_check import check_decoding  # noqa: PLC0415

    cost = price_of(price) if price is not None else None
    source = writable(html, table, overwrite=overwrite)
    opened = open_table(source)
    check_decoding(opened, opened.schema.names, memory)
    facts = about(opened, label=label, block=number_or_text(block), columns=True)
    column = label if label in facts.columns else None
    try:
        plan = choose(opened, memory=memory, batch_size=batch_size, label=column, seconds=seconds)
    except (BudgetTooSmall, BadArgument) as error:
        if facts.rows and not isinstance(error, BudgetTooSmall):
            raise
        plan, why = None, str(error)
    if html is not None:
        write_page(html, facts, table, label, source, overwrite=overwrite, choice=plan)
    if json:
        show_json({**vars(facts), "plan": {"error": why} if plan is None else shown(plan, cost)})
        return
    lines = [*lines_of(facts, block), ("layout", facts.layout), *_sorted(facts), *_clusters(facts), *_missing(facts)]
    show_facts(" ".join(table), lines)
    if plan is None:
        note(f"No order can be planned: {why}")
        return
    told(" ".join(table), plan, cost)
    note(f"{said(plan.best)} is what `corgipile plan` would choose.")


def _sorted(facts: "About") -> list[tuple[str, str]]:
    """Say by which columns the file is sorted, as far as its footer says."""
    found = [(f"sorted by {name}", f"{way} from row group to row group") for name, way in facts.sorted_by.items()]
    more = [("", f"and by {len(found) - _MOST_SHOWN} other columns")] if len(found) > _MOST_SHOWN else []
    return found[:_MOST_SHOWN] + more


def _clusters(facts: "About") -> list[tuple[str, str]]:
    """Say by which columns neighbouring rows are alike: h_D above 1 by more than chance."""
    above = {name: found for name, found in facts.by_column.items() if found[0] > 1 + MARGIN + SURE * found[1]}
    lines = [(f"clustered by {name}", f"h_D {value:.3g} ± {error:.2g}") for name, (value, error) in above.items()]
    if len(lines) > _MOST_SHOWN:
        lines = [*lines[:_MOST_SHOWN], ("", f"and by {len(lines) - _MOST_SHOWN} other columns")]
    if lines and facts.by_rows != facts.block_rows:
        lines.append(("", f"in blocks of {facts.by_rows:,} rows"))
    none = f"none of {len(facts.by_column)} columns that can be measured"
    return lines or [
        ("clustered by", none if facts.by_column else "unknown: too few rows, or none that can be measured")
    ]


def _missing(facts: "About") -> list[tuple[str, str]]:
    """Say what is missing in the rows that were looked at."""
    if not facts.sampled:
        return []
    found: Any = facts.missing.items()
    text = ", ".join(f"{name} {count:,}" for name, count in found) or "nothing"
    return [(f"null or NaN in {facts.sampled:,} rows", text)]
