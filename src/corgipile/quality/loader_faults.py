"""Faults of loaders that several runs show: states, ranks of a group, mixtures, documents, memory."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from corgipile.quality.audited import AuditReport
from corgipile.quality.faults import MIN_ERRORS, Fault
from corgipile.quality.keys import Floats
from corgipile.quality.lives import ID, Lived

SOURCE, GOT, WHOLE = " source", " tokens", " tokens of its document"  # names of recorded fields
PARTS = 10  # parts of an epoch in which a mixture is checked, as well as the whole
MIN_GROWTH, MIN_ROW_GROWTH = 16 << 10, 8  # bytes of Python objects, in all and per row, that an epoch adds in a leak
MIN_PEAK_GROWTH = 4 << 20  # bytes of the process that an epoch adds in a leak
MEASURED_EPOCHS = 6  # epochs of a measurement of memory; the first two may fill caches
MIN_ALIKE = 0.9  # correlation of steps from which partitions are shuffled by one permutation
MIN_STEPS, MIN_BATCH = 64, 8  # rows of a rank and of a batch below which permutations are not compared

Ranks = Sequence[Lived]
Rows = Counter[Any]


def length_faults(ranks: Ranks) -> Iterator[Fault]:
    """Yield the faults of loaders whose ``len`` is not their number of batches."""
    for rank, lived in enumerate(ranks):
        for epoch, (length, batches) in enumerate(zip(lived.lengths, lived.epochs, strict=True)):
            if length is not None and length != len(batches):
                yield Fault("wrong length", f"len() is {length:,}, rank {rank} yields {len(batches):,} batches", epoch)


def group_faults(ranks: Ranks, tp: int, when: str = "") -> Iterator[Fault]:
    """Yield the faults of tensor-parallel ranks with different batches; a group is ``tp`` consecutive ranks."""
    for rank, lived in enumerate(ranks):
        first = rank - rank % tp
        for epoch, (batches, others) in enumerate(zip(lived.epochs, ranks[first].epochs, strict=True)):
            equal = [np.array_equal(one[ID], other[ID]) for one, other in zip(batches, others, strict=False)]
            if not all(equal) or len(batches) != len(others):
                detail = f"ranks {first} and {rank} of one group differ from batch {(*equal, False).index(False)}{when}"
                yield Fault("tensor-parallel ranks differ", detail, epoch)


def permutation_faults(ranks: Ranks) -> Iterator[Fault]:
    """Yield the faults of partitions that are shuffled by one permutation: steps recur beyond a batch."""
    for lived in ranks:
        ids, rows = np.array(lived.ids()), max((len(batch[ID]) for batch in lived.epochs[0]), default=0)
        if ids.dtype.kind in "iu" and len(ids) >= MIN_STEPS and rows >= MIN_BATCH:
            lag = int(np.argmax(_autocorrelation(np.diff(ids.astype(np.float64))) > MIN_ALIKE))
            if lag > rows:
                yield Fault("same permutation", f"rows {lag:,} apart move alike: partitions share a seed", 0)


def _autocorrelation(steps: Floats) -> Floats:
    """Return the correlation of steps by their distance, up to half of their number; 0 at distance 0."""
    half = len(steps) // 2
    power = np.abs(np.fft.rfft(steps - steps.mean(), 2 * len(steps))) ** 2
    sums: Floats = np.fft.irfft(power)[:half] / np.arange(len(steps), len(steps) - half, -1)
    return np.where(np.arange(half) > 0, sums, 0) / (sums[0] if sums[0] > 0 else 1)


def mixture_faults(ranks: Ranks, weights: Mapping[str, float], epoch: int) -> Iterator[Fault]:
    """Yield the faults of sources whose shares, of an epoch or a tenth of it, are not their weights."""
    sources = [(batch[SOURCE], PARTS * at // len(one.epochs[epoch]))
               for one in ranks for at, batch in enumerate(one.epochs[epoch])]  # fmt: skip
    rows, part = np.array([len(names) for names, _ in sources], np.float64), np.array([at for _, at in sources])
    for name, weight in weights.items():
        share = weight / sum(weights.values())
        counts = np.array([(names.astype(str) == name).sum() for names, _ in sources], np.float64)
        for which in (part >= 0, *(part == at for at in range(PARTS))):
            if text := _off(rows[which], counts[which], share):
                where = "the epoch" if which.all() else f"tenth {part[which][0] + 1} of the epoch"
                yield Fault("mixture off its weights", f"{name!r} has {text} of {where}, not {share:.1%}", epoch)


def _off(rows: Floats, counts: Floats, share: float) -> str:
    """Return a source's share of some batches as text if it is not the declared one, else nothing."""
    total = float(rows.sum()) or 1.0
    found = float(counts.sum()) / total
    spread = float(((counts - found * rows) ** 2).sum()) ** 0.5 / total  # if batches are independent
    error = max((share * (1 - share) / total) ** 0.5, spread)
    return f"{found:.1%}" if len(rows) and abs(found - share) > MIN_ERRORS * error + 1 / total else ""


def document_faults(ranks: Ranks, epoch: int) -> Iterator[Fault]:
    """Yield the fault of rows that have fewer tokens than their documents."""
    short = [int((batch[GOT] < batch[WHOLE]).sum()) for lived in ranks for batch in lived.epochs[epoch]]
    if sum(short):
        yield Fault("documents cut", f"{sum(short):,} rows have fewer tokens than their documents", epoch)


def mixing_faults(report: AuditReport, max_deff: float) -> Iterator[Fault]:
    """Yield the faults of batches that vary more than declared, beyond the estimate's error."""
    for epoch, measured in enumerate(report.epochs):
        for key, (value, half) in ((spread.key, spread.deff) for spread in measured.spreads):
            if value - half > max_deff:
                detail = f"deff of {key} is {value:.2f} ± {half:.2f}, declared is at most {max_deff:g}"
                yield Fault("uneven batches", detail, epoch)


def memory_faults(ranks: Ranks, rows: int) -> Iterator[Fault]:
    """Yield the faults of memory that grows in every epoch but the first two."""
    limits = (("Python objects take", max(MIN_GROWTH, MIN_ROW_GROWTH * rows)), ("the process takes", MIN_PEAK_GROWTH))
    for lived in ranks:
        for (what, least), grown in zip(limits, np.diff(np.array(lived.memory), axis=0)[1:].T, strict=True):
            if grown.min() > least:
                yield Fault("memory grows", f"{what} {int(grown.mean()) >> 10:,} KB more after each epoch", 2)


def rows_of(ranks: Ranks, tp: int, epoch: int = 0) -> Rows:
    """Count the rows that a run visits in an epoch, once for each tensor-parallel group."""
    return Counter(row for lived in ranks[::tp] for row in lived.ids(epoch))


def resume_faults(parts: Sequence[Rows], expected: Rows, slack: int, how: str) -> Iterator[Fault]:
    """Yield faults of rows lost and repeated by one epoch in several parts. ``slack``: rows that may be either."""
    found = sum(parts, Rows())
    lost, repeated = (expected - found).total(), (found - expected).total()
    if lost > slack:
        yield Fault("rows lost on resume", f"{lost:,} of {expected.total():,} rows never came{how}", 0)
    if repeated > slack:
        yield Fault("rows repeated on resume", f"{repeated:,} rows came again{how}", 0)


def next_epoch_faults(ranks: Ranks, epoch: int, usual: Sequence[list[Any]], slack: int, how: str) -> Iterator[Fault]:
    """Yield faults of the epoch after a resumed one. ``usual``: rows of epochs 0 and 1 of a run without a stop."""
    came = [row for lived in ranks for row in lived.ids(epoch)]
    missing = (Rows(usual[1]) - Rows(came)).total()
    if missing > slack:
        detail = f"the next epoch has {len(came):,} of {len(usual[1]):,} rows{how}"
        yield Fault("short epoch after resume" if came else "empty epoch after resume", detail, 1)
    elif came == usual[0] != usual[1]:
        yield Fault("wrong epoch after resume", f"the next epoch is epoch 0 again{how}", 1)
