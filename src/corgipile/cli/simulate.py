"""``corgipile simulate``."""

from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Annotated

import typer

from corgipile.cli.console import command as guarded
from corgipile.cli.console import show_facts, show_json, show_table
from corgipile.cli.flags import Json
from corgipile.cli.options import Overwrite, Seed, number_or_text
from corgipile.errors import BadArgument
from corgipile.lazy import lazy
from corgipile.sizes import format_bytes

if TYPE_CHECKING:
    from corgipile.exchange import Simulation

exchange = lazy("corgipile.exchange")
plot_file = lazy("corgipile.exchange.plot")


@guarded
def command(
    *,
    ranks: Annotated[str, typer.Option(help="Number of ranks M.")],
    rows: Annotated[str, typer.Option(help="Rows of the table N, such as 1e12.")],
    fraction: Annotated[float, typer.Option(help="Share Q of its rows that a rank sends each epoch.")] = 0.1,
    row_bytes: Annotated[str, typer.Option(help="Bytes of a row.")] = "4KB",
    block: Annotated[str | None, typer.Option(help="Unit that is sent: rows, bytes or share; default: 1MB.")] = None,
    batch: Annotated[int, typer.Option(help="Rows of a rank's batch.")] = 256,
    epochs: Annotated[int, typer.Option(help="Epochs to simulate.")] = 10,
    classes: Annotated[int, typer.Option(help="Number of equally frequent labels.")] = 10,
    staging: Annotated[str, typer.Option(help="Initial parts: sorted or random blocks.")] = "sorted",
    request: Annotated[str, typer.Option(help="Bytes of an object store request.")] = "8MB",
    seed: Seed = 0,
    plot: Annotated[str | None, typer.Option(help="PNG file for a plot.")] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Simulate an exchange of rows among ranks: what it sends, stores, mixes and reads."""
    simulation = exchange.simulate(
        _count(ranks, "ranks"), _count(rows, "rows"), fraction, row_bytes=number_or_text(row_bytes),
        block=None if block is None else number_or_text(block), batch=batch, epochs=epochs, classes=classes,
        staging=staging, request=number_or_text(request), seed=seed,
    )  # fmt: skip
    if plot is not None:
        plot_file.draw(simulation, plot, overwrite=overwrite)
    if json:
        show_json(simulation)
    else:
        _show(simulation)


def _count(text: str, what: str) -> int:
    """Parse an integer, also written as 1e12."""
    with suppress(InvalidOperation):
        number = Decimal(text.replace("_", ""))
        if number.is_finite() and number.adjusted() < 30 and number == int(number):
            return int(number)
    raise BadArgument(f"{what} must be a whole number such as 4096 or 1e12, got {text!r}")


def _span(both: tuple[int, int]) -> str:
    return f"{both[0]:,}" if both[0] == both[1] else f"{both[0]:,} to {both[1]:,}"


def _show(simulation: "Simulation") -> None:
    plan = simulation.plan
    batches = f"{simulation.steps:,} batches of {simulation.batch:,}"
    title = f"{plan.world:,} ranks, fraction {plan.fraction:g}, {plan.units:,} blocks of {simulation.block:,} rows of "
    show_facts(
        title + format_bytes(simulation.row_bytes),
        [
            ("a rank's rows", f"{_span(simulation.rows)}: {batches} an epoch"),
            ("it sends", f"{_span(simulation.moved)} blocks, {format_bytes(simulation.sent)} an epoch"),
            ("", f"{format_bytes(simulation.sent_per_step)} a step"),
            ("it receives", f"as much; {simulation.unbalanced:,} of the blocks counted do not balance"),
            ("to one other", f"{_span(simulation.peer)} blocks an epoch"),
            ("it stores", f"{format_bytes(simulation.storage)} at most: (1 + Q) N/M rows"),
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
            for one in simulation.mixing
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
            for one in simulation.reading
        ],
    )  # fmt: skip
