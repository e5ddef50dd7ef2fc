"""Faults of an epoch, by name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from corgipile.quality.correlation import common, correlation, shared_again, units
from corgipile.quality.keyed import Spread
from corgipile.quality.keys import Floats
from corgipile.quality.visits import Sample, VisitWatch

MIN_ERRORS = 6  # standard errors from which a correlation is no accident
MIN_SORTED_CORRELATION = 0.97  # correlation with storage that a tenth of shuffled blocks does not reach
MIN_RUN = 32  # rows in storage order, or repeated row pairs, that are no accident
MAX_REPEATS = 3  # repeated row pairs, as a multiple of chance, at most


@dataclass(frozen=True)
class Fault:
    """A named fault.

    Attributes:
        name: One of `corgipile.verdicts.FAULTS`, or of its `LOADER_FAULTS`.
        detail: The observation and its most frequent cause.
        epoch: The epoch in which it was observed.
    """

    name: str
    detail: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.name} (epoch {self.epoch}): {self.detail}"


def coverage_faults(seen: VisitWatch, rows: int | None, epoch: int) -> Iterator[Fault]:
    """Yield faults of lost, repeated and foreign rows. ``rows``: the expected number of rows."""
    rows, ranks = rows or seen.distinct, max(1, len(seen.by_rank))
    times = seen.each(rows)
    if times == 1:
        return
    if times > 1:
        detail = f"every row came {times} times: each of {times} workers or ranks gives the whole table"
        yield Fault("worker copies", detail, epoch)
        return
    if seen.foreign:
        yield Fault("foreign rows", f"{seen.foreign:,} visits of rows outside 0 to {rows - 1:,}", epoch)
    missing, repeated = rows - seen.distinct, seen.visits - seen.foreign - seen.distinct
    if repeated >= ranks:
        yield Fault("repeated rows", f"{repeated:,} visits of rows that had come before", epoch)
    if not missing:
        return
    size, lost = max(seen.sizes), f"{missing:,} of {rows:,} rows never came"
    if len(seen.sizes) == 1 and not repeated and not seen.foreign and missing < min(64 * ranks * size, rows // 2):
        detail = f"{lost}; every batch is full: a short last batch is dropped, perhaps by each worker"
        yield Fault("dropped tail", detail, epoch)
    else:
        yield Fault("missing rows", lost, epoch)


def rank_faults(seen: VisitWatch, epoch: int) -> Iterator[Fault]:
    """Yield the fault of ranks with unequal work."""
    if len(seen.by_rank) > 1 and seen.sizes:
        least, max_share = min(seen.by_rank), max(seen.by_rank)
        if max_share - least > max(*seen.sizes, 0.01 * max_share):
            yield Fault("rank imbalance", f"one rank has {max_share:,} rows, another {least:,}", epoch)


def storage_faults(seen: VisitWatch, epoch: int) -> Iterator[Fault]:
    """Yield faults of rows that come in storage order or close to it."""
    sample, points = seen.sample(), seen.runs.sums
    by_id = np.argsort(sample.ids, kind="stable")
    related = correlation(sample.ids[by_id], sample.at[by_id])
    share = points[:, 1].sum() / points[:, 0].sum()
    follow = f"{share:.0%} of the visits follow the row before them in storage"
    if share > 0.5 and abs(related.value) > 0.99:
        yield Fault("not shuffled", follow, epoch)
        return
    if share > 0.5:
        yield Fault("not shuffled within blocks", f"blocks come in random order, but {follow}", epoch)
    else:
        ends = list(_ends(points[:, 0], points[:, 1], epoch))
        yield from ends
        if not related.sure:
            names = {fault.name for fault in ends}
            yield from (fault for fault in _sorted_ends(sample, epoch) if fault.name not in names)
    if not seen.named and related.value > 0.3 and related.sure:
        detail = f"correlate by {related.value:.2f}: rows pass through a small buffer"
        yield Fault("biased window", f"places in storage and in the epoch {detail}", epoch)


def _ends(rows: Floats, along: Floats, epoch: int) -> Iterator[Fault]:
    for name, way in (("unshuffled head", 1), ("unshuffled tail", -1)):
        ordered = along[::way] > 0.5 * rows[::way]
        length = len(ordered) if ordered.all() else int(np.argmin(ordered))
        run = int(rows[::way][:length].sum())
        if length >= 2 and run >= MIN_RUN:
            yield Fault(name, f"about {run:,} rows come as they are stored", epoch)


def _sorted_ends(sample: Sample, epoch: int) -> Iterator[Fault]:
    """Yield faults of a tenth at an end whose rows are sorted as in storage, though not adjacent."""
    last = int(sample.at.max(initial=0))
    for name, which in (("unshuffled head", sample.at < 0.1 * last), ("unshuffled tail", sample.at > 0.9 * last)):
        some = sample.select(np.flatnonzero(which))
        by_id = np.argsort(some.ids, kind="stable")
        related = correlation(some.ids[by_id], some.at[by_id])
        if related.sure and abs(related.value) > MIN_SORTED_CORRELATION:
            detail = f"correlate by {related.value:.2f}: its rows are sorted"
            yield Fault(name, f"places in storage and in a tenth of the epoch {detail}", epoch)


def worker_faults(spreads: Sequence[Spread], batches: int, epoch: int) -> Iterator[Fault]:
    """Yield the fault of workers with separate buffers: distant batches correlate, neighbours do not."""
    for spread in spreads:
        lags = spread.lags
        for at in range(1, len(lags) - 1):
            neighbours = max(lags[at - 1], lags[at + 1])
            pairs = max(1, batches - at - 1)  # one odd batch matters more among few pairs
            if lags[at] > max(0.2, neighbours + 0.15, MIN_ERRORS / pairs**0.5):
                detail = (
                    f"by {spread.key!r}, batches {at + 1} apart are similar (correlation {lags[at]:.2f}, neighbours"
                    f" {lags[0]:.2f}): {at + 1} workers each shuffle a part of the table"
                )
                yield Fault("worker-local buffers", detail, epoch)
                return


def compare_epochs(one: Sample, other: Sample, epoch: int, what: str, *, named: bool = False) -> Iterator[Fault]:
    """Yield faults that two epochs share; ``what``: "epochs" of one run, or "seeds"; ``named``: rows lack numbers."""
    a, b = common(one, other)
    if len(a.ids) < 2:
        return
    if (a.at == b.at).all():
        name = "identical epochs" if what == "epochs" else "correlated seeds"
        hint = "the loader's epoch is not set (`set_epoch`), or its seed is fixed" if what == "epochs" else "same order"
        yield Fault(name, f"all rows come in the same places: {hint}", epoch)
        return
    related = correlation(a.at, b.at)
    free = max(0.0, min(units(a.at), units(b.at)) - 3)  # degrees of freedom of Fisher's transformation
    strength = abs(related.value)
    if related.sure and strength > 0.5 and np.arctanh(min(strength, 0.9999)) * free**0.5 > MIN_ERRORS:
        yield Fault(f"correlated {what}", f"the places of rows correlate by {related.value:.2f}", epoch)
    pairs, share, chance = shared_again(a, b)
    max_share = (1 + chance) / 2 if named else min(MAX_REPEATS * chance, (1 + chance) / 2)
    if pairs * share >= MIN_RUN and share > max_share:
        detail = f"{share:.1%} of the rows that shared a batch share one again, by chance {chance:.2%}"
        yield Fault("same batches", detail, epoch)
