"""Chooses: of all ways that mix well enough within the memory, the one whose epoch takes least."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from corgipile.errors import BadArgument, BudgetTooSmall
from corgipile.loader.budget import DEFAULT_MEMORY
from corgipile.loader.default_order import LABEL, cheap
from corgipile.orders import CorgiPile, FullShuffle, NoShuffle, Order, Riffle
from corgipile.planner.trial import Candidate, Setting, candidate, tried
from corgipile.quality.keys import Keys
from corgipile.sizes import Size, parse_bytes, real, whole
from corgipile.tables import Table
from corgipile.tables import open as open_table
from corgipile.tables.columns import column
from corgipile.tables.io.remote import is_remote
from corgipile.tables.table import check_columns

__all__ = ["Choice", "choose"]

BLOCKS = ("16KB", "64KB", "256KB", "1MB")
NEAR = 1.1  # times as long is about as fast
MOST_LABELS = 1 << 23  # rows whose labels are read: each takes some 50 bytes meanwhile
PASSES = 4  # over a table, by which it is written anew in random order: read and written twice
log = logging.getLogger("corgipile")


@dataclass(frozen=True)
class Choice:
    """How a table is best read, and what else was considered.

    Attributes:
        best: The candidate chosen.
        others: The other ones, those that mix well enough first, then by their time.
        reason: Why it is.
        labels: The column by which deff was told; None: by no column, it is the worst there can be.
        advice: What would help where no candidate mixes well enough, and at what cost; else None.
    """

    best: Candidate
    others: list[Candidate]
    reason: str
    labels: str | None
    advice: str | None = None


def choose(
    table: Any,
    *,
    memory: Size | None = None,
    batch_size: int = 256,
    label: str | None = None,
    tolerance: float = 0.1,
    ranks: int = 1,
    seconds: float | None = None,
    seed: int = 0,
) -> Choice:
    """Choose order and blocks for a table, a memory budget and a batch size.

    Each candidate is followed over row numbers and labels, which tells its deff, and run for a moment in the middle of
    an epoch, which tells its speed on this machine, with as much of the table in its caches as is there now. Of those
    whose deff is at most ``1 + tolerance`` the fastest is chosen, and of those about as fast the one that mixes best.
    Labels are in memory meanwhile, some 50 bytes a row: ``memory`` is that of the loaders, not of choosing one. Of
    tables of more than 8 million rows they are not read, and deff is then that at worst.

    Args:
        table: Table, or what `corgipile.open` takes.
        memory: Budget of a process, as of `Loader`.
        batch_size: Rows of a batch.
        label: The label column; by default the one named "label", if there is one that is cheap to read.
        tolerance: How much more than a full shuffle's the variance of batches may be.
        ranks: Processes that share each epoch.
        seconds: How long each candidate is tried; 0: not. By default 0.3, and 0 for a table in a store, where each
            request is paid for.
        seed: Of the epoch that is tried.

    Raises:
        BadArgument: A setting is out of its bounds, or the table has no rows.
        BudgetTooSmall: No candidate fits the memory.
        MissingColumn: There is no such label.

    Example:
        >>> from corgipile.datasets import clustered
        >>> found = choose(clustered(20_000, classes=10), memory="256KB", batch_size=64)
        >>> found.best.deff <= 1.1, found.labels
        (True, 'label')
    """
    table = open_table(table)
    batch_size, ranks = whole(batch_size, "batch_size", 1), whole(ranks, "ranks", 1)
    tolerance = real(tolerance, "tolerance", 0)
    seconds = (0.0 if is_remote(table) else 0.3) if seconds is None else real(seconds, "seconds", 0)
    if not len(table):
        raise BadArgument(f"{table!r} has no rows, so there is nothing to plan")
    name, labels, keys = _labels(table, label)
    memory = DEFAULT_MEMORY if memory is None else parse_bytes(memory, whole=table.nbytes)
    setting = Setting(table, memory, batch_size, labels, keys, ranks, seconds, whole(seed, "seed"))
    found = _distinct(candidate(order, setting) for order in _orders(name if labels is not None else None))
    choice = _chosen(tried(found, setting), name, 1 + tolerance)
    if labels is None and name is not None:
        kind = table.schema.field(name).type
        return replace(choice, reason=f"{choice.reason}; none is balanced: {name!r} is {kind}, and numbers are needed")
    return choice


def _labels(table: Table, label: str | None) -> tuple[str | None, Table | None, Keys | None]:
    """Read the labels, once: their name, a table of them, and what is measured."""
    if label is not None:
        check_columns(table.schema, [label])
    elif not cheap(table, LABEL):
        return None, None, None
    name = LABEL if label is None else label
    if len(table) > MOST_LABELS:
        log.warning(
            "labels of %d rows are not read to plan: orders are not balanced, and deff is that at worst", len(table)
        )
        return None, None, None
    values = column(table, name)
    numbers = pa.types.is_integer(kind := table.schema.field(name).type) or pa.types.is_floating(kind)
    return name, open_table(pa.table({name: values})) if numbers else None, Keys(values)


def _orders(label: str | None) -> Iterator[Order]:
    """Yield what is considered; the defaults first."""
    balances = (label, None) if label is not None else (None,)
    for balance in balances:
        yield Riffle(balance=balance)
        yield from (Riffle(balance=balance, block=block) for block in BLOCKS)
    yield CorgiPile()
    yield FullShuffle()
    yield NoShuffle()


def _distinct(found: Iterable[Candidate]) -> list[Candidate]:
    """Leave out what turned out to be another candidate."""
    seen: dict[Any, Candidate] = {}
    for one in found:
        seen.setdefault((one.title, one.block_rows, one.memory, one.flaw), one)
    return list(seen.values())


def _chosen(found: list[Candidate], label: str | None, most: float) -> Choice:
    fitting = [one for one in found if one.flaw is None]
    if all(one.order.sequential for one in fitting):
        raise BudgetTooSmall(next(one.flaw for one in found if one.flaw is not None))
    mixed = sorted((one for one in fitting if one.deff <= most), key=_time)
    if not mixed:
        best, how = min(fitting, key=lambda one: one.deff), "no order mixes so well in this memory"
    elif mixed[0].seconds is None:
        best, how = mixed[0], f"the first of {len(mixed)} that mix so well, none was tried"
    else:
        near = [one for one in mixed if _time(one) <= NEAR * _time(mixed[0])]
        best = min(near, key=lambda one: one.deff)
        how = f"of {len(mixed)} that mix so well the fastest, and of those about as fast the best mixed"
    reason = f"{how} (deff {best.deff:.3g}, where {most:.3g} was asked for)"
    rest = (one for one in found if one is not best)
    others = sorted(rest, key=lambda one: (one.flaw is not None, one.deff > most, _time(one)))
    return Choice(best, others, reason, label, None if mixed else _advice(fitting))


def _time(one: Candidate) -> float:
    """Return the seconds of an epoch; those that were not tried keep their places behind."""
    return float("inf") if one.seconds is None else one.seconds


def _advice(fitting: list[Candidate]) -> str:
    """Say what a table written anew would cost."""
    plain = [one.seconds for one in fitting if one.order.sequential and one.seconds is not None]
    cost = f", in about {PASSES * plain[0]:.3g} s" if plain else ""
    return (
        f"more memory, or once `corgipile reshuffle`: it writes the table in random order{cost} and as large again on "
        "disk; any order mixes then"
    )
