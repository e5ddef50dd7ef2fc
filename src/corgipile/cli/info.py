"""``corgipile info``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from corgipile.cli.console import command as guarded
from corgipile.cli.console import show_facts, show_json
from corgipile.cli.flags import Json, Tables
from corgipile.cli.opening import source_of
from corgipile.cli.options import Overwrite, number_or_text
from corgipile.cli.pages import Html, check_page, command_text, without_secrets
from corgipile.lazy import lazy
from corgipile.sizes import format_bytes

if TYPE_CHECKING:
    from corgipile.description import About
    from corgipile.planner import Choice

description = lazy("corgipile.description")
proof = lazy("corgipile.proof")

_MAX_LABELS = 12  # shown


@guarded
def command(
    table: Tables,
    *,
    label: Annotated[str, typer.Option(help="Column to describe.")] = "label",
    block: Annotated[str, typer.Option(help="Block size for h_D: rows, bytes or share.")] = "256KB",
    html: Html = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Show rows, columns and bytes of a table, and how clustered its labels are."""
    source = writable(html, table, overwrite=overwrite)
    facts = description.about(source, label=label, block=number_or_text(block), columns=html is not None)
    if html is not None:
        write_page(html, facts, table, label, source, overwrite=overwrite)
    if json:
        show_json(facts)
        return
    show_facts(" ".join(table), lines_of(facts, block))


def writable(html: str | None, table: list[str], *, overwrite: bool) -> Any:
    """Check that the page can be written, if requested; return the table's source."""
    if html is not None:
        check_page(html, [table], overwrite=overwrite)
    return source_of(table)


def write_page(
    html: str, facts: "About", table: list[str], label: str, source: Any, *, overwrite: bool,
    choice: "Choice | None" = None,
) -> None:  # fmt: skip
    """Write the HTML page of a table."""
    page = proof.about_page(facts, " ".join(map(without_secrets, table)), label, command_text(), choice)
    page.save(html, inputs=[source], overwrite=overwrite)


def lines_of(facts: "About", block: str) -> list[tuple[str, str]]:
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
