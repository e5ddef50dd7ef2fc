"""Chooses: of all ways that mix well enough within the memory, the one whose epoch takes least."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from corgipile.errors import BadArgument, BudgetTooSmall
from corgipile.loader.budget import DEFAULT_MEMORY, columns_of
from corgipile.loader.default_order import LABEL, Reading, cheap, chosen
from corgipile.orders import CorgiPile, FullShuffle, NoShuffle, Order, Riffle
from corgipile.planner.candidates import Candidate, Setting, candidates
from corgipile.planner.measure import measured
from corgipile.planner.places import place_of, recall, remember
from corgipile.planner.probe import Probe
from corgipile.planner.trial import predicted, shuffling, stays_cached, tried
from corgipile.quality import h_d_of_columns
from corgipile.repayment import repays
from corgipile.sizes import Size, parse_bytes, real, whole
from corgipile.tables import Table
from corgipile.tables import open as open_table
from corgipile.tables.encoded import is_encoded
from corgipile.tables.io.remote import is_remote
from corgipile.tables.table import check_columns

__all__ = ["Choice", "choose", "probed"]

BLOCKS = ("16KB", "64KB", "256KB", "1MB")
BLOCK, FEWEST = 64 << 10, 1024  # bytes of the blocks of which it is told what they have in common; rows, for that
SOME = 16  # blocks at least, for that
NEAR = 1.1  # times as long is about as fast
MIN_SPEEDUP = 1.5  # speedup over the default for which another order is chosen
log = logging.getLogger("corgipile")


@dataclass(frozen=True)
class Choice:
    """How a table is best read, and what else was considered.

    Attributes:
        best: The candidate chosen.
        others: The other ones, those that mix well enough first, then by their time.
        reason: Why it is.
        labels: The column by which deff was told; None: by no column, it is the worst there can be.
        advice: The alternative: writing the table once in random order, its cost and when it pays off; if no
            candidate mixes well enough, a remedy. None: unknown.
        probe: What is known of the device or the bucket; None: nothing.
        cached: Whether a table like this one stays in the page cache, so that epochs after the first are warm.
    """

    best: Candidate
    others: list[Candidate]
    reason: str
    labels: str | None
    advice: str | None = None
    probe: Probe | None = None
    cached: bool = True


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
    probe: bool | None = None,
) -> Choice:
    """Choose order and blocks for a table, a memory budget and a batch size.

    Each candidate is followed over row numbers, and labels are read for what it visits, which tells its deff: exactly
    for epochs of up to half a million rows, else of 64 stretches of one. Three epochs of it are then begun, which tells
    its speed with the table in the page cache, and of a table that is not cached the one without; how fast the device
    or the bucket is, is measured once in a few seconds and remembered. Where the table does not stay in the page cache
    the slower of both counts. What other columns have in common within blocks is told from a few rows of 300 of them.
    Among candidates whose deff, by label and by these, is at most ``1 + tolerance`` the default order ``"auto"`` is
    chosen, unless another takes less than two thirds of its time. Then the fastest is chosen, and among about equally
    fast ones the one that mixes best. ``memory`` is that of the loaders; choosing takes about 150 MB for any table.

    Args:
        table: Table, or what `corgipile.open` takes.
        memory: Budget of a process, as of `Loader`.
        batch_size: Rows of a batch.
        label: The label column; by default the one named "label", if there is one that is cheap to read.
        tolerance: How much more than a full shuffle's the variance of batches may be.
        ranks: Processes that share each epoch.
        seconds: How long each candidate is tried, of a table that is not cached three times as long; 0: not. By default
            0.3, and 0 for a table in a store, where each request is paid for.
        seed: Of the epoch that is tried.
        probe: Whether the device or the bucket is measured: True: anew; False: not, and what is remembered is not used.
            None: if it was not yet, and where candidates are tried.

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
    name = _label(table, label)
    memory = DEFAULT_MEMORY if memory is None else parse_bytes(memory, whole=table.nbytes)
    alike = None if name is None else _alike(table, name)
    setting = Setting(table, memory, batch_size, name, ranks, seconds, whole(seed, "seed"), alike)
    default = chosen("auto", table, name, batch_size, Reading(columns_of(table), memory))
    found = candidates([default, *_orders(name, batch_size)], setting)
    _check_room(found)
    known, cached = probed(table, anew=probe, may=seconds > 0), stays_cached(table) and not is_remote(table)
    found = predicted(tried(found, setting), known, setting, cached=cached)
    return replace(_chosen(found, name, 1 + tolerance, shuffling(setting)), probe=known, cached=cached)


def probed(table: Table, *, anew: bool | None = None, may: bool = True) -> Probe | None:
    """Return how fast what holds a table is read; see ``probe`` of `choose`. ``may``: measure what is not known."""
    place = None if anew is False else place_of(table)
    if place is None:
        return None
    found = None if anew else recall(place)
    if found is None and (anew or (may and not is_remote(table))):
        found = measured(table)
        if found is not None:
            remember(found)
    return found


def _label(table: Table, label: str | None) -> str | None:
    """Return the column of labels, None if none was named and the usual one is not cheap to read."""
    if label is not None:
        check_columns(table.schema, [label])
        return label
    return LABEL if cheap(table, LABEL) else None


def _alike(table: Table, label: str) -> float | None:
    """Return how much of its variance the blocks of the most clustered column but the label differ by.

    None where it takes more than a few hundred reads to tell.
    """
    names = [name for name in table.schema.names if name != label]
    if not names or is_remote(table) or is_encoded(table, names) or len(table) < FEWEST:
        return None
    rows = max(2, min(len(table) // SOME, int(BLOCK * len(table) / max(1, table.nbytes))))
    try:
        found = h_d_of_columns(table, rows).items()
    except BadArgument:  # too few rows
        return None
    above = [(one.value - 2 * one.error - 1) / (rows - 1) for name, one in found if name != label]
    return min(1.0, max([0.0, *above])) if above else None


def _orders(label: str | None, batch: int) -> Iterator[Order]:
    """Yield the alternatives to the default."""
    for balance in (label, None) if label is not None else (None,):
        yield from (Riffle(balance=balance, block=block, batch=batch) for block in (None, *BLOCKS))
    yield CorgiPile()
    yield FullShuffle()
    yield NoShuffle()


def _check_room(found: list[Candidate]) -> None:
    """Raise BudgetTooSmall where nothing fits that mixes."""
    if all(one.flaw is not None or one.order.sequential for one in found):
        raise BudgetTooSmall(next(one.flaw for one in found if one.flaw is not None))


def _chosen(found: list[Candidate], label: str | None, most: float, setup: float | None = None) -> Choice:
    """Choose a candidate; the first is the default. ``setup``: seconds to write the table once in random order."""
    fitting, default = [one for one in found if one.flaw is None], found[0]
    mixed = sorted((one for one in fitting if one.most <= most), key=_time)
    if default in mixed and (default.seconds is None or default.seconds <= MIN_SPEEDUP * _time(mixed[0])):
        faster = "none was tried" if default.seconds is None else f"none is {MIN_SPEEDUP:g} times as fast"
        best, how = default, f"the default order: of {len(mixed)} that mix so well {faster}"
    elif not mixed:
        best, how = min(fitting, key=lambda one: one.most), "no order mixes so well in this memory"
    elif mixed[0].seconds is None:
        best, how = mixed[0], f"the first of {len(mixed)} that mix so well, none was tried"
    else:
        near = [one for one in mixed if _time(one) <= NEAR * _time(mixed[0])]
        best = min(near, key=lambda one: one.most)
        how = f"of {len(mixed)} that mix so well the fastest, and of those about as fast the best mixed"
        how = how if len(mixed) > 1 else "the only one that mixes so well"
    reason = f"{how} (deff {best.most:.3g}, where {most:.3g} was asked for)"
    rest = (one for one in found if one is not best)
    others = sorted(rest, key=lambda one: (one.flaw is not None, one.most > most, _time(one)))
    return Choice(best, others, reason, label, _advice(fitting, best if mixed else None, setup))


def _time(one: Candidate) -> float:
    """Return the seconds of an epoch; those of which nothing is known keep their places behind."""
    return float("inf") if one.seconds is None else one.seconds


def _advice(fitting: list[Candidate], best: Candidate | None, setup: float | None) -> str | None:
    """Return the cost of writing the table once in random order, and when it pays off; None if unknown."""
    plain = min((one for one in fitting if one.order.sequential), key=_time, default=None)
    cost = "" if setup is None else f" in about {setup:.3g} s"
    anew = f"once `corgipile reshuffle`: it writes the table in random order{cost}, and as large again on disk"
    if best is None:
        return f"more memory, or {anew}; any order mixes then"
    if setup is None or plain is None or plain.seconds is None or best.seconds is None:
        return None
    return (
        f"{anew}; epochs in its order then take {plain.seconds:.3g} s, not {best.seconds:.3g} s, "
        f"{repays(setup, plain.seconds, best.seconds)}"
    )
