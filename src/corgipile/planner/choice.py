"""Choice of the fastest order that mixes well enough within the memory."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from corgipile.errors import BadArgument, BudgetTooSmall
from corgipile.loader.budget import DEFAULT_MEMORY, columns_of
from corgipile.loader.default_order import LABEL, cheap, chosen
from corgipile.orders import CorgiPile, FullShuffle, NoShuffle, Order, Riffle
from corgipile.planner.candidates import Candidate, Setting, candidates
from corgipile.planner.measure import measure_rates
from corgipile.planner.places import place_of, recall, remember
from corgipile.planner.probe import Probe
from corgipile.planner.trial import add_predictions, estimate_shuffling, run_trials, stays_cached
from corgipile.quality import h_d_of_columns
from corgipile.repayment import repays
from corgipile.sizes import Size, parse_bytes, real, whole
from corgipile.tables import Table
from corgipile.tables import open as open_table
from corgipile.tables.io.remote import is_remote
from corgipile.tables.table import check_columns

__all__ = ["Choice", "choose", "probed"]

BLOCK_SIZES = ("16KB", "64KB", "256KB", "1MB")
H_D_BLOCK_BYTES, MIN_H_D_ROWS = 64 << 10, 1024  # bytes per block, and rows of the table at least, to estimate h_D
MIN_H_D_BLOCKS = 16  # blocks at least, to estimate h_D
MAX_NEAR_RATIO = 1.1  # ratio of times that counts as equally fast
MIN_SPEEDUP = 1.5  # speedup over the default for which another order is chosen
log = logging.getLogger("corgipile")


@dataclass(frozen=True)
class Choice:
    """The recommended order for a table, and its alternatives.

    Attributes:
        best: The recommended candidate.
        others: Other candidates: first those that mix well enough, then by time.
        reason: Why ``best`` was chosen.
        labels: The column that deff is based on; None: deff is the worst case.
        advice: The alternative: writing the table once in random order, its cost and when it pays off; if no
            candidate mixes well enough, a remedy. None: unknown.
        probe: Read rates of the device or bucket; None: unknown.
        cached: Whether such a table stays in the page cache, so that epochs after the first are warm.
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

    Each candidate is simulated over row numbers, and the labels of its visits give deff: exactly for epochs of up to
    half a million rows, else from 64 stretches. Then three epochs of it are begun, which gives the speed with the table
    in the page cache, and for an uncached table also without. The speed of the device or bucket is measured once, in a
    few seconds, and stored. If the table does not stay in the page cache the slower speed counts. Clustering by other
    columns is estimated from a few rows of 300 blocks. Among candidates whose deff, by the label and by these, is at
    most ``1 + tolerance``, the default order ``"auto"`` wins unless another takes less than two thirds of its time.
    Otherwise the fastest wins, and among about equally fast ones the one that mixes best. ``memory`` is that of the
    loaders; choosing takes about 150 MB for any table.

    Args:
        table: A table, or a source for `corgipile.open`.
        memory: Memory budget of a process, as in `Loader`.
        batch_size: Rows per batch.
        label: The label column; by default the one named "label", if it is cheap to read.
        tolerance: Allowed excess of batch variance over a full shuffle's.
        ranks: Processes that share each epoch.
        seconds: Duration of each candidate's trial, three times as long for an uncached table; 0: no trials. By
            default 0.3, and 0 for a remote table, where each request costs money.
        seed: Seed of the trial epochs.
        probe: Whether to measure the device or bucket. True: measure anew; False: neither measure nor use stored rates;
            None: measure if there are no stored rates and candidates are tried.

    Raises:
        BadArgument: A setting is out of range, or the table has no rows.
        BudgetTooSmall: No candidate fits the memory.
        MissingColumn: The table lacks the label column.

    Example:
        >>> from corgipile.datasets import clustered
        >>> choice = choose(clustered(20_000, classes=10), memory="256KB", batch_size=64)
        >>> choice.best.deff <= 1.1, choice.labels
        (True, 'label')
    """
    table = open_table(table)
    batch_size, ranks = whole(batch_size, "batch_size", 1), whole(ranks, "ranks", 1)
    tolerance = real(tolerance, "tolerance", 0)
    seconds = (0.0 if is_remote(table) else 0.3) if seconds is None else real(seconds, "seconds", 0)
    if not len(table):
        raise BadArgument(f"{table!r} must have rows to plan for")
    name = _label(table, label)
    memory = DEFAULT_MEMORY if memory is None else parse_bytes(memory, whole=table.nbytes)
    shared = None if name is None else _shared_variance(table, name)
    setting = Setting(table, memory, batch_size, name, ranks, seconds, whole(seed, "seed"), shared)
    default = chosen("auto", table, name, batch_size, columns_of(table), memory)
    plans = candidates([default, *_orders(name, batch_size)], setting)
    _check_memory(plans)
    known, cached = probed(table, fresh=probe, may=seconds > 0), stays_cached(table) and not is_remote(table)
    plans = add_predictions(run_trials(plans, setting), known, setting, cached=cached)
    return replace(_choose(plans, name, 1 + tolerance, estimate_shuffling(setting)), probe=known, cached=cached)


def probed(table: Table, *, fresh: bool | None = None, may: bool = True) -> Probe | None:
    """Return the read rates of a table's device; see ``probe`` of `choose`. ``may``: measure unknown rates."""
    place = None if fresh is False else place_of(table)
    if place is None:
        return None
    probe = None if fresh else recall(place)
    if probe is None and (fresh or (may and not is_remote(table))):
        probe = measure_rates(table)
        if probe is not None:
            remember(probe)
    return probe


def _label(table: Table, label: str | None) -> str | None:
    """Return the label column; None if none is named and the usual one is not cheap to read."""
    if label is not None:
        check_columns(table.schema, [label])
        return label
    return LABEL if cheap(table, LABEL) else None


def _shared_variance(table: Table, label: str) -> float | None:
    """Return the variance share between blocks of the most clustered column, without the label.

    None if measuring it takes more than a few hundred reads.
    """
    names = [name for name in table.schema.names if name != label]
    if not names or is_remote(table) or table.units(names) is not None or len(table) < MIN_H_D_ROWS:
        return None
    rows = max(2, min(len(table) // MIN_H_D_BLOCKS, int(H_D_BLOCK_BYTES * len(table) / max(1, table.nbytes))))
    try:
        estimates = h_d_of_columns(table, rows).items()
    except BadArgument:  # too few rows
        return None
    above = [(h_d.value - 2 * h_d.error - 1) / (rows - 1) for name, h_d in estimates if name != label]
    return min(1.0, max([0.0, *above])) if above else None


def _orders(label: str | None, batch: int) -> Iterator[Order]:
    """Yield the alternatives to the default order."""
    for balance in (label, None) if label is not None else (None,):
        yield from (Riffle(balance=balance, block=block, batch=batch) for block in (None, *BLOCK_SIZES))
    yield CorgiPile()
    yield FullShuffle()
    yield NoShuffle()


def _check_memory(found: list[Candidate]) -> None:
    """Raise BudgetTooSmall if no mixing order fits."""
    if all(candidate.flaw is not None or candidate.order.sequential for candidate in found):
        raise BudgetTooSmall(next(candidate.flaw for candidate in found if candidate.flaw is not None))


def _choose(found: list[Candidate], label: str | None, most: float, setup: float | None = None) -> Choice:
    """Choose a candidate; the first is the default. ``setup``: seconds to write the table once in random order."""
    fitting, default = [candidate for candidate in found if candidate.flaw is None], found[0]
    mixed = sorted((candidate for candidate in fitting if candidate.most <= most), key=_time)
    if default in mixed and (default.seconds is None or default.seconds <= MIN_SPEEDUP * _time(mixed[0])):
        faster = "none was tried" if default.seconds is None else f"none is {MIN_SPEEDUP:g} times as fast"
        best, how = default, f"the default order: of {len(mixed)} orders that mix well enough {faster}"
    elif not mixed:
        best, how = min(fitting, key=lambda candidate: candidate.most), "no order mixes well enough in this memory"
    elif mixed[0].seconds is None:
        best, how = mixed[0], f"the first of {len(mixed)} orders that mix well enough, none was tried"
    else:
        near = [candidate for candidate in mixed if _time(candidate) <= MAX_NEAR_RATIO * _time(mixed[0])]
        best = min(near, key=lambda candidate: candidate.most)
        how = f"the best mixed of the fastest among {len(mixed)} orders that mix well enough"
        how = how if len(mixed) > 1 else "the only order that mixes well enough"
    reason = f"{how} (deff {best.most:.3g}, at most {most:.3g} allowed)"
    rest = (candidate for candidate in found if candidate is not best)
    others = sorted(rest, key=lambda candidate: (candidate.flaw is not None, candidate.most > most, _time(candidate)))
    return Choice(best, others, reason, label, _advice(fitting, best if mixed else None, setup))


def _time(candidate: Candidate) -> float:
    """Return the seconds of an epoch; infinity if unknown."""
    return float("inf") if candidate.seconds is None else candidate.seconds


def _advice(fitting: list[Candidate], best: Candidate | None, setup: float | None) -> str | None:
    """Return the cost of writing the table once in random order, and when it pays off; None if unknown."""
    plain = min((candidate for candidate in fitting if candidate.order.sequential), key=_time, default=None)
    cost = "" if setup is None else f" in about {setup:.3g} s"
    relayout = f"run `corgipile reshuffle` once: it writes the table in random order{cost} and takes its size on disk"
    if best is None:
        return f"give more memory, or {relayout}; any order mixes then"
    if setup is None or plain is None or plain.seconds is None or best.seconds is None:
        return None
    return (
        f"{relayout}; epochs in its order then take {plain.seconds:.3g} s, not {best.seconds:.3g} s, "
        f"{repays(setup, plain.seconds, best.seconds)}"
    )
