"""Costs of candidates: a short run of an epoch by the real loader, and predictions from a device's probe."""

import contextlib
import logging
import math
import os
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from corgipile.arrow_memory import give_back
from corgipile.errors import BadValue, CorgiPileError
from corgipile.loader import Loader
from corgipile.orders import Order
from corgipile.planner.candidates import BLOCK_READS, Candidate, Setting
from corgipile.planner.probe import Probe
from corgipile.relayout.once import shuffled_once
from corgipile.resident import available_memory
from corgipile.sizes import parse_bytes
from corgipile.tables.io.files import File
from corgipile.tables.io.remote import RemoteFile, is_remote
from corgipile.tables.io.sources import files_read
from corgipile.tables.subset import Subset
from corgipile.tables.table import Table

__all__ = ["add_predictions", "estimate_shuffling", "run_trials", "stays_cached"]

TRIAL_BYTES, MIN_MEMORY = 16 << 20, 1 << 20  # bytes written for a trial; memory to write them
MAX_UNPACKED = 256 << 20  # bytes that a trial unpacks at most
ROUNDS, MAX_DURATION = 3, 3  # trials per candidate; a trial's duration at most, as a multiple of its share
FILLED_MARKS, MIN_MARKS = 2, 5  # marks until the buffer is full; marks per trial
MIN_MARK_SECONDS = 2e-3  # seconds between marks at least: a system query takes 25 us
MIN_COLD_SHARE = 0.9  # share of a trial's bytes from the device if uncached
PAGE = 4 << 10  # bytes that a device reads at least
HINTED_BYTES, MAX_HINTED_READS = 4 << 20, 64  # bytes of blocks announced to the device; announced reads at most
SERIAL_SHARE = 0.25  # share of copying that does not overlap with the device's reads
MAX_CACHED_SHARE = 0.8  # share of free memory that a cached table may take
log = logging.getLogger("corgipile")


def run_trials(found: list[Candidate], setting: Setting) -> list[Candidate]:
    """Measure the warm time of candidates that fit and need little unpacking; of an uncached table also the cold time.

    Candidates alternate, each time with other rows, and the median counts, since other programs run meanwhile.
    """
    if not setting.seconds:
        return found
    able = [plan.flaw is None and plan.unpacked <= MAX_UNPACKED for plan in found]
    try:
        rounds = [
            [_run_trial(plan, setting, epoch) if can else (0.0, None) for plan, can in zip(found, able, strict=True)]
            for epoch in range(ROUNDS)
        ]
    except BadValue as error:  # such as a null, which training may replace
        log.warning("skipped the trials: %s", error)
        return found
    results = []
    for plan, can, *spent in zip(found, able, *rounds, strict=True):
        cold = [seconds for _, seconds in spent if seconds is not None]
        warm = statistics.median(seconds for seconds, _ in spent)
        results.append(replace(plan, warm=warm, cold=statistics.median(cold) if cold else None) if can else plan)
    return results


def estimate_shuffling(setting: Setting) -> float | None:
    """Estimate the seconds to write the table once in random order, from a stretch of it.

    None without trials, or if the table cannot be written here.
    """
    table, share = setting.table, min(1.0, TRIAL_BYTES / max(1, setting.table.nbytes))
    rows = max(1, int(share * len(table)))
    stretch = table if rows == len(table) else Subset.of(table, [[0, rows]])
    room = max(MIN_MEMORY, int(share * parse_bytes(setting.memory, whole=table.nbytes)))
    with contextlib.suppress(CorgiPileError, OSError):
        if setting.seconds and not is_remote(table):
            with shuffled_once(stretch, room, setting.seed) as (_, seconds):
                return seconds * len(table) / rows
    return None


def add_predictions(found: list[Candidate], probe: Probe | None, setting: Setting, *, cached: bool) -> list[Candidate]:
    """Predict unmeasured cold times from the probe, and select the time that applies."""
    results = []
    for candidate in found:
        cold = candidate.cold
        if cold is None and probe is not None and candidate.flaw is None and not candidate.unpacked:
            device, warm = _cold(candidate, probe) / setting.world, candidate.warm or 0.0
            cold = max(device, warm) + SERIAL_SHARE * min(device, warm)
        results.append(replace(candidate, cold=cold, seconds=candidate.warm if cached or cold is None else cold))
    return results


def _cold(candidate: Candidate, probe: Probe) -> float:
    """Return the seconds that reads take at a loader's depth."""
    column_reads = candidate.reads / len(candidate.run_bytes)
    # Runs that share a page are read together.
    reads = sum(min(column_reads, max(1.0, column_reads * size / PAGE)) for size in candidate.run_bytes)
    run, depth = candidate.nbytes / reads, float(candidate.at_once)
    if candidate.at_once == BLOCK_READS:
        depth = max(depth, min(MAX_HINTED_READS, HINTED_BYTES / run))
    return candidate.nbytes / probe.rate(run, depth, sequential=candidate.order.sequential)


def stays_cached(table: Table) -> bool:
    """Return whether a table that was read once is still in the page cache in the next epoch.

    Example:
        >>> from corgipile.tables import open
        >>> stays_cached(open({"x": [1.0]}))
        True
    """
    return _share_cached(table) >= 1


def _share_cached(table: Table) -> float:
    """Return the share of a table that fits the page cache, at most 1."""
    return min(1.0, MAX_CACHED_SHARE * available_memory() / max(1, table.nbytes))


def _loader(order: Order, setting: Setting) -> Loader:
    return Loader(
        setting.table, batch_size=setting.batch_size, order=order, memory=setting.memory, seed=setting.seed,
        world=setting.world,
    )  # fmt: skip


class _Mark(NamedTuple):
    """A moment of an epoch: batches taken and seconds so far, and bytes read from the device, NaN if unknown."""

    batches: int
    seconds: float
    nbytes: float


class _Beginning(NamedTuple):
    """The beginning of an epoch: one or more marks, and the share of its bytes from the device, NaN if unknown."""

    marks: list[_Mark]
    read: float

    def seconds(self, total: int) -> float:
        """Return the seconds of all batches: filling the buffer, then the rate after that.

        Example:
            >>> jerks = (1, 2.0), (2, 3.0), (3, 4.0), (5, 4.5), (7, 5.0)
            >>> _Beginning([_Mark(batches, seconds, 0.0) for batches, seconds in jerks], 0.0).seconds(11)
            6.0
        """
        start, stop = self._since(0.0)
        return stop.seconds + (total - stop.batches) * (stop.seconds - start.seconds) / (stop.batches - start.batches)

    def cold(self, total: int, nbytes: float, share: float) -> float:
        """Return the seconds of all batches at the rate of the second half of the run.

        A device's first requests are its slowest. Blocks do not end at pages: the first block read brings the page it
        shares with its neighbour. So an epoch begins with more bytes per row than it ends with, and progresses by bytes
        of the device, not by rows. ``nbytes`` are those read from the device in all, if each page is read once;
        ``share`` of the pages are still cached when their other rows are needed.

        Example:
            >>> begun = _Beginning([_Mark(done, done + 1.0, 10.0 * (done + 2)) for done in (1, 2, 3, 4)], 1.0)
            >>> begun.cold(10, 100.0, 1.0), begun.cold(10, 100.0, 0.0)
            (9.0, 14.0)
        """
        (start, stop), rows = self._since(0.5), self.seconds(total)
        if stop.nbytes <= start.nbytes:
            return rows
        pace = (stop.seconds - start.seconds) / (stop.nbytes - start.nbytes)
        again = stop.nbytes * total / stop.batches
        nbytes = again - (again - nbytes) * share * (2 - share)  # the cached share grows during the epoch
        return stop.seconds + max(0.0, nbytes - stop.nbytes) * pace

    def _since(self, part: float) -> tuple[_Mark, _Mark]:
        """Return the marks of an even rate: after this part of the time, once the buffer was full."""
        stop, least = self.marks[-1], max(0, min(FILLED_MARKS, len(self.marks) - 2))
        later = (mark for mark in self.marks[least:-1] if mark.seconds >= part * stop.seconds)
        start = next(later, self.marks[least])
        return (_Mark(0, 0.0, 0.0) if start.batches == stop.batches else start), stop


def _run_trial(candidate: Candidate, setting: Setting, epoch: int) -> tuple[float, float | None]:
    """Run the beginning of an epoch; return the seconds of a whole one, cached and, if observed, uncached.

    Bytes from the device are read again. If all came from the device, they are then dropped for the next trial.
    """
    give_back()  # return the last trial's memory to the budget
    share, seen = setting.seconds / ROUNDS, None
    before = _device_bytes()
    with _loader(candidate.order, setting) as loader:
        nbytes = (candidate.nbytes - (_device_bytes() - before)) / setting.world  # labels are read already
        begun = _run(loader, epoch, share)
        total = -(-loader.feeder.visits(epoch) // setting.batch_size)
        if begun.read != 0:
            seen = begun if begun.read >= MIN_COLD_SHARE else None
            begun = _run(loader, epoch, MAX_DURATION * share, begun.marks[-1].batches)
    warm = begun.seconds(total)
    if seen is None:
        return warm, None
    _drop_pages(setting.table)
    return warm, max(warm, seen.cold(total, nbytes, _share_cached(setting.table)))


def _run(loader: Loader, epoch: int, seconds: float, most: int | None = None) -> _Beginning:
    """Take batches for ``seconds`` and a few buffers, or ``most`` batches; longer from a device, which starts slowly.

    Some orders fill a buffer and then visit it, so batches come in bursts: each half of a buffer gets a mark.
    """
    loader.set_epoch(epoch)
    every, marks, done, cold = max(1, loader.feeder.slots // 2 // loader.batch_size), list[_Mark](), 0, False
    nbytes, since, start = loader.feeder.bytes_read, _device_bytes(), time.perf_counter()
    for done, _ in enumerate(loader, 1):
        spent = time.perf_counter() - start
        if (done % every == 1 or every == 1) and (not marks or spent - marks[-1].seconds >= MIN_MARK_SECONDS):
            marks.append(_Mark(done, spent, _device_bytes() - since))
            cold = marks[-1].nbytes >= MIN_COLD_SHARE * (loader.feeder.bytes_read - nbytes)
        long = spent - marks[0].seconds >= MAX_DURATION * seconds  # the first batch may fill a buffer of all rows
        if done == most or (spent >= seconds and len(marks) > MIN_MARKS and not cold) or long:
            break
    read = _device_bytes() - since
    if marks[-1].batches < done:
        marks.append(_Mark(done, spent, read))
    return _Beginning(marks, read / max(1.0, loader.feeder.bytes_read - nbytes))


def _drop_pages(table: Table) -> None:
    """Drop pages that trials brought into the page cache."""
    if hasattr(os, "posix_fadvise"):
        for file in files_read(table):
            if isinstance(file, File) and not isinstance(file, RemoteFile):
                with contextlib.suppress(OSError), Path(file.path).open("rb") as opened:
                    os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _device_bytes() -> float:
    """Return the bytes that this process has read from devices; NaN if the system does not report them."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
        return float(next(line for line in lines if line.startswith("read_bytes:")).split()[1])
    return math.nan
