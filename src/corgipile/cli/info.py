"""``corgipile info``."""

from typing import TYPE_CHECKING, Annotated

import typer

from corgipile.cli.console import command as guarded
from corgipile.cli.console import show_facts, show_json
from corgipile.cli.flags import Json, Tables
from corgipile.cli.opening import source_of
from corgipile.cli.options import Overwrite
from corgipile.cli.pages import Html, check_page, shown, typed

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
    columns: Annotated[
        bool, typer.Option("--columns", help="Say which columns rows are clustered by, from a few rows of some blocks.")
    ] = False,
    html: Html = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Show rows, columns and bytes of a table, and how its labels lie."""
    from corgipile.cli.options import number_or_text  # noqa: PLC0415
    from corgipile.description import about  # noqa: PLC0415
    from corgipile.proof import about_page  # noqa: PLC0415
    from corgipile.sizes import format_bytes  # noqa: PLC0415

    if html is not None:
        check_page(html, [table], overwrite=overwrite)
    source = source_of(table)
    facts = about(source, label=label, block=number_or_text(block), columns=columns or html is not None)
    if html is not None:
        page = about_page(facts, " ".join(map(shown, table)), label, typed())
        page.save(html, inputs=[source], overwrite=overwrite)
    if json:
        show_json(facts)
        return
    lines = [
        ("rows", f"{facts.rows:,}"),
        (
            "bytes",
            f"{facts.nbytes:,} ({format_bytes(facts.nbytes)}; {facts.nbytes / max(1, facts.rows):.1f} a row)",
        ),
        ("natural unit", f"{facts.unit:,} row{'s' * (facts.unit != 1)}"),
        (f"blocks of {block}", f"{facts.blocks:,} of {facts.block_rows:,} rows"),
        *((f"column {name}", kind) for name, kind in facts.columns.items()),
    ]
    if facts.h_d is not None and facts.blocks > 1:
        lines.append(("h_D of the label", f"{facts.h_d:.4g} (1: random blocks, {facts.block_rows:,}: constant ones)"))
    if facts.label_range is not None:
        low, mean, high = facts.label_range
        lines.append(("labels", f"{low:.4g} to {high:.4g}, mean {mean:.4g}"))
    for value, count in list(facts.classes.items())[:_MOST_SHOWN]:
        lines.append((f"label {value}", f"{count:,} rows ({100 * count / facts.rows:.1f} %)"))
    if len(facts.classes) > _MOST_SHOWN:
        lines.append(("", f"and {len(facts.classes) - _MOST_SHOWN} other labels"))
    if columns:
        lines += _clusters(facts)
    if facts.advice is not None:
        lines.append(("reading", facts.advice))
    show_facts(" ".join(table), lines)


def _clusters(facts: "About") -> list[tuple[str, str]]:
    """Say by which columns neighbouring rows are alike: h_D above 1 by more than chance."""
    above = {name: found for name, found in facts.by_column.items() if found[0] > 1 + MARGIN + SURE * found[1]}
    lines = [(f"clustered by {name}", f"h_D {value:.3g} ± {error:.2g}") for name, (value, error) in above.items()]
    if len(lines) > _MOST_SHOWN:
        lines = [*lines[:_MOST_SHOWN], ("", f"and by {len(lines) - _MOST_SHOWN} other columns")]
    none = f"none of {len(facts.by_column)} columns that can be measured"
    return lines or [
        ("clustered by", none if facts.by_column else "unknown: too few rows, or none that can be measured")
    ]
