"""``corgipile plan``."""

import math
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

import corgipile as cp
from corgipile.cli.console import command as guarded
from corgipile.cli.console import note, show_json, show_table
from corgipile.cli.flags import Json, Tables
from corgipile.cli.opening import source_of
from corgipile.errors import BadArgument
from corgipile.sizes import format_bytes

if TYPE_CHECKING:
    from corgipile.planner import Candidate, Choice

HEAD = ("order", "rows a block", "blocks held", "memory", "deff", "rest", "s warm", "s cold", "reads", "bytes")
SPARE = ("bytes", "reads", "blocks held", "memory", "s cold", "rows a block", "rest")
PRICE = re.compile(r"([$€£¥]?)\s*(\d+(?:\.\d+)?(?:e-?\d+)?)(?:/(\d+)?\s*(?:GETs?|requests?)?)?", re.IGNORECASE)


class Price(NamedTuple):
    """The price of a store request, with a currency sign if given."""

    each: float
    sign: str = ""

    def of(self, requests: int) -> str:
        """Format the price of requests: two decimals, or two significant digits below 1.

        Example:
            >>> Price(4e-7, "$").of(1), Price(4e-7).of(120_000), Price(4e-7, "$").of(5_000_000_000)
            ('$0.0000004', '0.048', '$2,000.00')
        """
        cost = requests * self.each
        decimals = 2 if cost >= 1 or not cost else 1 - math.floor(math.log10(cost))
        text = f"{cost:,.{decimals}f}"
        return self.sign + (text if cost >= 1 else text.rstrip("0").rstrip("."))


@guarded
def command(
    table: Tables,
    *,
    memory: Annotated[str | None, typer.Option(help="Memory budget: bytes ('256MB') or share of the table.")] = None,
    batch_size: Annotated[int, typer.Option(help="Rows of a batch.")] = 256,
    label: Annotated[str | None, typer.Option(help="Label column; default: 'label' if it is cheap to read.")] = None,
    tolerance: Annotated[float, typer.Option(help="Accept deff up to 1 plus this.")] = 0.1,
    ranks: Annotated[int, typer.Option(help="Processes that share the table.")] = 1,
    seconds: Annotated[
        float | None,
        typer.Option(help="Seconds to measure each candidate, tripled if nothing is cached; 0: do not measure."),
    ] = None,
    price: Annotated[str | None, typer.Option(help="Price of store requests: '0.0004/1000GET'.")] = None,
    probe: Annotated[
        bool | None, typer.Option(help="Measure the device or bucket again, or never; default: once, then cached.")
    ] = None,
    json: Json = False,
) -> None:
    """Choose the order and block size that read fastest among those that mix well enough in this memory."""
    cost = price_of(price) if price is not None else None
    choice = cp.planner.choose(
        source_of(table), memory=memory, batch_size=batch_size, label=label, tolerance=tolerance, ranks=ranks,
        seconds=seconds, probe=probe,
    )  # fmt: skip
    if json:
        show_json(choice_facts(choice, cost))
    else:
        show_choice(" ".join(table), choice, cost)


def choice_facts(choice: "Choice", price: Price | None) -> dict[str, Any]:
    """Return the facts of a choice for JSON."""
    facts = {name: value for name, value in vars(choice).items() if name not in ("best", "others")}
    candidates = [_facts(one, price) for one in (choice.best, *choice.others)]
    return {**facts, "best": candidates[0], "others": candidates[1:]}


def show_choice(title: str, choice: "Choice", price: Price | None) -> None:
    """Print a choice."""
    rows = [_cells(one) for one in (choice.best, *choice.others) if one.flaw is None]
    known = [at for at in range(len(HEAD)) if at != HEAD.index("rest") or choice.best.rest is not None]
    show_table(title, [HEAD[at] for at in known], [[row[at] for at in known] for row in rows], spare=SPARE)
    by = f"measured by {choice.labels!r}" if choice.labels is not None else "the worst case: no label is known"
    note(f"Chosen: the first, {order_text(choice.best)}: {choice.reason}. deff is {by}; 1 is a full shuffle.")
    if choice.best.rest is not None:
        note(f"For the most clustered other column, deff is at most {choice.best.rest:.3g} (rest).")
    for one in (choice.best, *choice.others):
        if one.flaw is not None:
            note(f"{order_text(one)} does not fit: {one.flaw}", indent="  ")
    if choice.probe is not None:
        applies = "warm: the table stays in the page cache" if choice.cached else "cold"
        deep = choice.probe.deep(choice.best.nbytes / choice.best.reads)
        note(f"{choice.probe}. Such reads need {deep} in flight for full speed. Epochs count as {applies}.")
    if choice.best.unpacked:
        note(f"{format_bytes(choice.best.unpacked)} are unpacked once before the first epoch.")
    note(_reads(choice.best, price))
    if choice.advice is not None:
        note(f"Instead: {choice.advice}.")


def price_of(text: str) -> Price:
    """Parse the price of requests; raise BadArgument if it is none.

    Example:
        >>> price_of("$0.4/1000GET"), price_of("1e-6")
        (Price(each=0.0004, sign='$'), Price(each=1e-06, sign=''))
    """
    price_match = PRICE.fullmatch(text.strip())
    if price_match is None or int(price_match[3] or 1) == 0:
        raise BadArgument(f"price must be an amount per requests, such as '0.0004/1000GET', got {text!r}")
    return Price(float(price_match[2]) / int(price_match[3] or 1), price_match[1])


def order_text(one: "Candidate") -> str:
    """Return the Python expression of an order."""
    given = {name: getattr(one.order, name, None) for name in ("block", "balance", "batch")}
    words = ", ".join(f"{name}={value!r}" for name, value in given.items() if value)
    return f"orders.{type(one.order).__name__}({words})"


def _cells(one: "Candidate") -> tuple[str, ...]:
    rest, warm, cold = ("" if one is None else f"{one:.3g}" for one in (one.rest, one.warm, one.cold))
    sizes = (f"{one.block_rows:,}", f"{one.blocks:,.0f}", format_bytes(one.memory), f"{one.deff:.3g}")
    return (one.title, *sizes, rest, warm, cold, f"{one.reads:,}", format_bytes(one.nbytes))


def _reads(one: "Candidate", price: Price | None) -> str:
    """Return a sentence on an epoch's reads and their price."""
    kind = ("read" if price is None else "request") + "s" * (one.reads != 1)
    cost = "" if price is None else f", for {price.of(one.reads)}"
    return f"An epoch takes {one.reads:,} {kind}, {format_bytes(one.nbytes)} in total{cost}."


def _facts(one: "Candidate", price: Price | None) -> dict[str, Any]:
    facts = {name: value for name, value in asdict(one).items() if name != "order"}
    return {**facts, "order": order_text(one), **({} if price is None else {"price": price.each * one.reads})}
