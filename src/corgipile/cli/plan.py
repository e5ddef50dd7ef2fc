"""``corgipile plan``."""

import math
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from corgipile.cli.console import command as guarded
from corgipile.cli.console import note, show_json, show_table
from corgipile.cli.flags import Json, Tables
from corgipile.cli.opening import source_of

if TYPE_CHECKING:
    from corgipile.planner import Candidate, Choice

HEAD = ("order", "rows a block", "blocks held", "memory", "deff", "rest", "s warm", "s cold", "reads", "bytes")
SPARE = ("bytes", "reads", "blocks held", "memory", "s cold", "rows a block", "rest")
PRICE = re.compile(r"([$€£¥]?)\s*(\d+(?:\.\d+)?(?:e-?\d+)?)(?:/(\d+)?\s*(?:GETs?|requests?)?)?", re.IGNORECASE)


class Price(NamedTuple):
    """What requests cost.

    Attributes:
        each: One of them.
        sign: Of the currency, if it was given.
    """

    each: float
    sign: str = ""

    def of(self, requests: int) -> str:
        """Say what so many cost: to the hundredth, or with two figures of what is less.

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
    memory: Annotated[str | None, typer.Option(help="Budget: bytes ('256MB') or share of the table.")] = None,
    batch_size: Annotated[int, typer.Option(help="Rows of a batch.")] = 256,
    label: Annotated[str | None, typer.Option(help="Label column; else 'label', if it is cheap to read.")] = None,
    tolerance: Annotated[float, typer.Option(help="deff may be 1 and so much.")] = 0.1,
    ranks: Annotated[int, typer.Option(help="Processes that share the table.")] = 1,
    seconds: Annotated[
        float | None,
        typer.Option(help="How long each candidate is tried, three times as long where nothing is cached; 0: not."),
    ] = None,
    price: Annotated[str | None, typer.Option(help="Of requests to a store: '0.0004/1000GET'.")] = None,
    probe: Annotated[
        bool | None,
        typer.Option(help="Measure the device or bucket anew, or not at all; else once, and it is remembered."),
    ] = None,
    json: Json = False,
) -> None:
    """Choose order and blocks: what mixes well enough, and reads fastest, in this memory."""
    from corgipile.planner import choose  # noqa: PLC0415

    cost = price_of(price) if price is not None else None
    found = choose(
        source_of(table), memory=memory, batch_size=batch_size, label=label, tolerance=tolerance, ranks=ranks,
        seconds=seconds, probe=probe,
    )  # fmt: skip
    if json:
        show_json(shown(found, cost))
    else:
        told(" ".join(table), found, cost)


def shown(found: "Choice", price: Price | None) -> dict[str, Any]:
    """Return a choice for JSON."""
    facts = {name: value for name, value in vars(found).items() if name not in ("best", "others")}
    candidates = [_facts(one, price) for one in (found.best, *found.others)]
    return {**facts, "best": candidates[0], "others": candidates[1:]}


def told(title: str, found: "Choice", price: Price | None) -> None:
    """Print a choice."""
    rows = [_cells(one) for one in (found.best, *found.others) if one.flaw is None]
    known = [at for at in range(len(HEAD)) if at != HEAD.index("rest") or found.best.rest is not None]
    show_table(title, [HEAD[at] for at in known], [[row[at] for at in known] for row in rows], spare=SPARE)
    by = f"by {found.labels!r}" if found.labels is not None else "at worst: no label is known"
    note(f"Chosen: the first, {said(found.best)}: {found.reason}. deff is told {by}; 1 is a full shuffle.")
    if found.best.rest is not None:
        note(f"Of the column that is clustered most beside it deff is {found.best.rest:.3g} at most (rest).")
    for one in (found.best, *found.others):
        if one.flaw is not None:
            note(f"{said(one)} does not fit: {one.flaw}", indent="  ")
    if found.probe is not None:
        applies = "warm: the table stays in the page cache" if found.cached else "cold"
        deep = found.probe.deep(found.best.nbytes / found.best.reads)
        note(f"{found.probe}. Reads like those chosen are fastest from {deep} at a time on. Epochs count as {applies}.")
    if found.best.unpacked:
        note(f"{_size(found.best.unpacked)} are unpacked once, before the first epoch.")
    note(_reads(found.best, price))
    if found.advice is not None:
        note(f"Instead: {found.advice}.")


def price_of(text: str) -> Price:
    """Read the price of requests.

    Raises:
        BadArgument: It is none.

    Example:
        >>> price_of("$0.4/1000GET"), price_of("1e-6")
        (Price(each=0.0004, sign='$'), Price(each=1e-06, sign=''))
    """
    found = PRICE.fullmatch(text.strip())
    if found is None or int(found[3] or 1) == 0:
        from corgipile.errors import BadArgument  # noqa: PLC0415

        raise BadArgument(f"price is {text!r}; a number for so many requests is right: '0.0004/1000GET'")
    return Price(float(found[2]) / int(found[3] or 1), found[1])


def said(one: "Candidate") -> str:
    """Return how an order is asked for, in Python."""
    given = {name: getattr(one.order, name, None) for name in ("block", "balance", "batch")}
    words = ", ".join(f"{name}={value!r}" for name, value in given.items() if value)
    return f"orders.{type(one.order).__name__}({words})"


def _cells(one: "Candidate") -> tuple[str, ...]:
    rest, warm, cold = ("" if one is None else f"{one:.3g}" for one in (one.rest, one.warm, one.cold))
    numbers = (f"{one.block_rows:,}", f"{one.blocks:,.0f}", _size(one.memory), f"{one.deff:.3g}", rest, warm, cold)
    return (one.title, *numbers, f"{one.reads:,}", _size(one.nbytes))


def _reads(one: "Candidate", price: Price | None) -> str:
    """Say what an epoch reads, and what that costs."""
    kind = ("read" if price is None else "request") + "s" * (one.reads != 1)
    cost = "" if price is None else f", for {price.of(one.reads)}"
    return f"An epoch takes {one.reads:,} {kind}, {_size(one.nbytes)} in all{cost}."


def _size(count: int) -> str:
    from corgipile.sizes import format_bytes  # noqa: PLC0415

    return format_bytes(count)


def _facts(one: "Candidate", price: Price | None) -> dict[str, Any]:
    facts = {name: value for name, value in asdict(one).items() if name != "order"}
    return {**facts, "order": said(one), **({} if price is None else {"price": price.each * one.reads})}
