"""What is wrong with an epoch, by name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from corgipile.quality.correlation import batches_again, common, correlation, units
from corgipile.quality.keyed import Spread
from corgipile.quality.keys import Floats
from corgipile.quality.visits import Sample, VisitWatch

NAMES = (
    "missing rows", "repeated rows", "foreign rows", "dropped tail", "worker copies", "rank imbalance",
    "identical epochs", "correlated epochs", "correlated seeds", "same batches", "not shuffled",
    "not shuffled within blocks", "unshuffled head", "unshuffled tail", "biased window", "worker-local buffers",
)  # fmt: skip
LEAST_ERRORS = 6  # standard errors of a correlation of independent places that are no accident
SORTED = 0.97  # correlation with storage of a tenth of an epoch that a few shuffled blocks in a row do not have
LEAST_RUN = 32  # rows in storage order, or pairs of rows in one batch again, that are no accident
MAX_REPEATS = 3  # times as many row pairs as by chance share a batch again


@dataclass(frozen=True)
class Fault:
    """Something that is wrong.

    Attributes:
        name: One of `NAMES`.
        detail: What was seen, and what it comes from most often.
        epoch: The epoch it was seen in.
    """

    name: str
    detail: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.name} (epoch {self.epoch}): {self.detail}"


def of_coverage(seen: VisitWatch, rows: int | None, epoch: int) -> Iterator[Fault]:
    """Name rows that are lost, that come again, and that are none of the table's. ``rows``: those there should be."""
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
        detail = f"{lost}; every batch is full: a last one that is short is dropped, perhaps by each worker"
        yield Fault("dropped tail", detail, epoch)
    else:
        yield Fault("missing rows", lost, epoch)


def of_ranks(seen: VisitWatch, epoch: int) -> Iterator[Fault]:
    """Name ranks that have more to do than others."""
    if len(seen.by_rank) > 1 and seen.sizes:
        least, most = min(seen.by_rank), max(seen.by_rank)
        if most - least > max(*seen.sizes, 0.01 * most):
            yield Fault("rank imbalance", f"one rank has {most:,} rows, another {least:,}", epoch)


def of_storage(seen: VisitWatch, epoch: int) -> Iterator[Fault]:
    """Name rows that come as they are stored, or do not get far from there."""
    sample, points = seen.sample(), seen.runs.sums
    by_id = np.argsort(sample.ids, kind="stable")
    found = correlation(sample.ids[by_id], sample.at[by_id])
    share = points[:, 1].sum() / points[:, 0].sum()
    follow = f"{share:.0%} of the visits follow the row before them in storage"
    if share > 0.5 and abs(found.value) > 0.99:
        yield Fault("not shuffled", follow, epoch)
        return
    if share > 0.5:
        yield Fault("not shuffled within blocks", f"blocks come in random order, but {follow}", epoch)
    else:
        ends = list(_ends(points[:, 0], points[:, 1], epoch))
        yield from ends
        if not found.sure:
            told = {fault.name for fault in ends}
            yield from (fault for fault in _sorted_ends(sample, epoch) if fault.name not in told)
    if not seen.named and found.value > 0.3 and found.sure:
        detail = f"places in storage and in the epoch correlate by {found.value:.2f}: rows pass through a small buffer"
        yield Fault("biased window", detail, epoch)


def _ends(rows: Floats, along: Floats, epoch: int) -> Iterator[Fault]:
    for name, way in (("unshuffled head", 1), ("unshuffled tail", -1)):
        ordered = along[::way] > 0.5 * rows[::way]
        length = len(ordered) if ordered.all() else int(np.argmin(ordered))
        run = int(rows[::way][:length].sum())
        if length >= 2 and run >= LEAST_RUN:
            yield Fault(name, f"about {run:,} rows come as they are stored", epoch)


def _sorted_ends(sample: Sample, epoch: int) -> Iterator[Fault]:
    """Name a tenth at an end whose rows come as they are stored, though not each after its neighbour."""
    last = int(sample.at.max(initial=0))
    for name, which in (("unshuffled head", sample.at < 0.1 * last), ("unshuffled tail", sample.at > 0.9 * last)):
        some = sample.chosen(np.flatnonzero(which))
        by_id = np.argsort(some.ids, kind="stable")
        found = correlation(some.ids[by_id], some.at[by_id])
        if found.sure and abs(found.value) > SORTED:
            detail = (
                f"places in storage and in a tenth of the epoch correlate by {found.value:.2f}: its rows are sorted"
            )
            yield Fault(name, detail, epoch)


def of_workers(spreads: Sequence[Spread], batches: int, epoch: int) -> Iterator[Fault]:
    """Name workers that take turns with buffers of their own: batches some apart are alike, neighbours are not."""
    for spread in spreads:
        lags = spread.lags
        for at in range(1, len(lags) - 1):
            beside = max(lags[at - 1], lags[at + 1])
            pairs = max(1, batches - at - 1)  # few of batches far apart, where one odd batch makes much
            if lags[at] > max(0.2, beside + 0.15, LEAST_ERRORS / pairs**0.5):
                detail = (
                    f"by {spread.key!r}, batches {at + 1} apart are alike (correlation {lags[at]:.2f}, neighbours"
                    f" {lags[0]:.2f}): {at + 1} workers shuffle parts of the table of their own"
                )
                yield Fault("worker-local buffers", detail, epoch)
                return


def of_two(one: Sample, other: Sample, epoch: int, what: str, *, named: bool = False) -> Iterator[Fault]:
    """Yield faults that two epochs share; ``what``: "epochs" of one run, or "seeds"; ``named``: rows lack numbers."""
    a, b = common(one, other)
    if len(a.ids) < 2:
        return
    if (a.at == b.at).all():
        name = "identical epochs" if what == "epochs" else "correlated seeds"
        hint = (
            "the loader is not told the epoch (`set_epoch`), or its seed is fixed" if what == "epochs" else "same order"
        )
        yield Fault(name, f"all rows come in the same places: {hint}", epoch)
        return
    found = correlation(a.at, b.at)
    free = max(0.0, min(units(a.at), units(b.at)) - 3)  # Fisher's transformation of a correlation
    if found.sure and abs(found.value) > 0.5 and np.arctanh(min(abs(found.value), 0.9999)) * free**0.5 > LEAST_ERRORS:
        yield Fault(f"correlated {what}", f"the places of rows correlate by {found.value:.2f}", epoch)
    pairs, share, chance = batches_again(a, b)
    most = (1 + chance) / 2 if named else min(MAX_REPEATS * chance, (1 + chance) / 2)
    if pairs * share >= LEAST_RUN and share > most:
        detail = f"{share:.1%} of the rows that shared a batch share one again, by chance {chance:.2%}"
        yield Fault("same batches", detail, epoch)
