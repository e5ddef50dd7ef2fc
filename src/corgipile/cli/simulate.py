"""``corgipile simulate``."""

from typing import TYPE_CHECKING, Annotated

import typer

from corgipile.cli.console import command as guarded
from corgipile.cli.flags import Json
from corgipile.cli.options import Overwrite, Seed, number_or_text

if TYPE_CHECKING:
    from corgipile.exchange import Simulation


@guarded
def command(
    *,
    ranks: Annotated[str, typer.Option(help="Ranks, M.")],
    rows: Annotated[str, typer.Option(help="Rows of the table, N, such as 1e12.")],
    fraction: Annotated[float, typer.Option(help="Share of its rows, Q, that a rank sends an epoch.")] = 0.1,
    row_bytes: Annotated[str, typer.Option(help="Bytes of a row.")] = "4KB",
    block: Annotated[
        str | None, typer.Option(help="What is sent as a whole: rows, bytes or share; 1MB by default.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Rows of a batch of one rank.")] = 256,
    epochs: Annotated[int, typer.Option(help="How far to look.")] = 10,
    classes: Annotated[int, typer.Option(help="Labels, as many rows of each.")] = 10,
    staging: Annotated[str, typer.Option(help="What ranks begin with: sorted or random blocks.")] = "sorted",
    request: Annotated[str, typer.Option(help="Bytes that a request to an object store brings.")] = "8MB",
    seed: Seed = 0,
    plot: Annotated[str | None, typer.Option(help="Draw it into this PNG file.")] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Show what an exchange of rows among ranks would send, store, mix and read; no rank is started."""
    from corgipile.cli.console import show_json  # noqa: PLC0415
    from corgipile.exchange import simulate  # noqa: PLC0415

    found = simulate(
        _count(ranks, "ranks"), _count(rows, "rows"), fraction, row_bytes=number_or_text(row_bytes),
        block=None if block is None else number_or_text(block), batch=batch, epochs=epochs, classes=classes,
        staging=staging, request=number_or_text(request), seed=seed,  # type: ignore[arg-type]  # which it checks
    )  # fmt: skip
    if plot is not None:
        from corgipile.exchange.picture import draw  # noqa: PLC0415

        draw(found, plot, overwrite=overwrite)
    if json:
        show_json(found)
    else:
        _show(found)


def _count(text: str, what: str) -> int:
    """Read a whole number, which may be written as 1e12."""
    from contextlib import suppress  # noqa: PLC0415
    from decimal import Decimal, InvalidOperation  # noqa: PLC0415

    from corgipile.errors import BadArgument  # noqa: PLC0415

    with suppress(InvalidOperation):
        number = Decimal(text.replace("_", ""))
        if number.is_finite() and number.adjusted() < 30 and number == int(number):
            return int(number)
    raise BadArgument(f"{what} must be a whole number such as 4096 or 1e12, got {text!r}")


def _span(both: tuple[int, int]) -> str:
    return f"{both[0]:,}" if both[0] == both[1] else f"{both[0]:,} to {both[1]:,}"


def _show(found: "Simulation") -> None:
    from corgipile.cli.console import show_facts, show_table  # noqa: PLC0415
    from corgipile.sizes import format_bytes  # noqa: PLC0415

    plan = found.plan
    title = f"{plan.world:,} ranks, fraction {plan.fraction:g}, {plan.units:,} blocks of {found.block:,} rows of "
    show_facts(
        title + format_bytes(found.row_bytes),
        [
            ("a rank's rows", f"{_span(found.rows)}: {found.steps:,} batches of {found.batch:,} an epoch"),
            ("it sends", f"{_span(found.moved)} blocks, {format_bytes(found.sent)} an epoch"),
            ("", f"{format_bytes(found.sent_per_step)} a step"),
            ("it receives", f"as much; {found.unbalanced:,} of the blocks counted do not balance"),
            ("to one other", f"{_span(found.peer)} blocks an epoch"),
            ("it stores", f"{format_bytes(found.storage)} at most: (1 + Q) N/M rows"),
        ],
    )
    typer.echo("")
    show_table(
        "Rows on the rank they began on, and deff of batches (1: a full shuffle):",
        ["epoch", "at home", "counted", "(1-Q)^e", "deff of a rank", "counted", "of all ranks", "counted"],
        [
            [
                f"{one.epoch:,}", f"{one.home:.4f}", f"{one.home_counted:.4f}", f"{one.paper:.4f}",
                f"{one.local:.4g}", f"{one.local_counted:.4g}", f"{one.everywhere:.3f}",
                "-" if one.everywhere_counted is None else f"{one.everywhere_counted:.3f}",
            ]
            for one in found.mixing
        ],
    )  # fmt: skip
    typer.echo("")
    show_table(
        "Read from shared storage, an epoch:",
        ["table read as", "requests of a rank", "bytes of a rank", "requests of all", "bytes of all"],
        [
            [
                one.way, f"{one.gets:,}", format_bytes(one.nbytes), f"{one.gets * plan.world:,}",
                format_bytes(one.nbytes * plan.world),
            ]
            for one in found.reading
        ],
    )  # fmt: skip
