"""What a setting costs: a little of an epoch is run, by the loader that would run all of it; the device was probed."""

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
from corgipile.sizes import parse_bytes
from corgipile.tables.io.files import File
from corgipile.tables.io.remote import RemoteFile, is_remote
from corgipile.tables.io.sources import files_read
from corgipile.tables.subset import Subset
from corgipile.tables.table import Table

__all__ = ["predicted", "shuffling", "stays_cached", "tried"]

TRIAL_BYTES, MIN_MEMORY = 16 << 20, 1 << 20  # bytes written for a trial; memory to write them
UNPACKED = 256 << 20  # bytes that are not unpacked for a trial
ROUNDS, MOST = 3, 3  # of trials; times as long as it should take a trial may take, to see a few buffers, or a device
FILLED, LEAST_MARKS = 2, 5  # marks until the buffer was full once; in a trial
APART = 2e-3  # seconds between marks at least: to ask the system takes 25 us
COLD = 0.9  # of what a trial reads, that comes from the device where nothing is cached
PAGE = 4 << 10  # bytes that a device reads at least
AHEAD, DEEPEST = 4 << 20, 64  # bytes of blocks that are announced to the device ahead of their reading; reads
BESIDE = 0.25  # of the time that reading and copying take, that is not beside the device's
CACHED = 0.8  # of the memory that is free, that a table may take and stay in the page cache
log = logging.getLogger("corgipile")


def tried(found: list[Candidate], setting: Setting) -> list[Candidate]:
    """Tell the warm time of those that fit, but not of those that would unpack much first; of a cold table both.

    They take turns, each with other rows, and the median counts: other programs run meanwhile.
    """
    if not setting.seconds:
        return found
    able = [one.flaw is None and one.unpacked <= UNPACKED for one in found]
    try:
        rounds = [
            [_epoch(one, setting, epoch) if can else (0.0, None) for one, can in zip(found, able, strict=True)]
            for epoch in range(ROUNDS)
        ]
    except BadValue as error:  # a null, which whoever trains may replace
        log.warning("no order is tried: %s", error)
        return found
    made = []
    for one, can, *spent in zip(found, able, *rounds, strict=True):
        cold = [seconds for _, seconds in spent if seconds is not None]
        warm = statistics.median(seconds for seconds, _ in spent)
        made.append(replace(one, warm=warm, cold=statistics.median(cold) if cold else None) if can else one)
    return made


def shuffling(setting: Setting) -> float | None:
    """Estimate the seconds to write the table once in random order, from a stretch of it.

    None if nothing is tried, or the table cannot be written here.
    """
    table, share = setting.table, min(1.0, TRIAL_BYTES / max(1, setting.table.nbytes))
    rows = max(1, int(share * len(table)))
    some = table if rows == len(table) else Subset.of(table, [[0, rows]])
    room = max(MIN_MEMORY, int(share * parse_bytes(setting.memory, whole=table.nbytes)))
    with contextlib.suppress(CorgiPileError, OSError):
        if setting.seconds and not is_remote(table):
            with shuffled_once(some, room, setting.seed) as (_, seconds):
                return seconds * len(table) / rows
    return None


def predicted(found: list[Candidate], probe: Probe | None, setting: Setting, *, cached: bool) -> list[Candidate]:
    """Tell the cold time where it was not seen and the place was probed, and which time applies."""
    made = []
    for one in found:
        cold = one.cold
        if cold is None and probe is not None and one.flaw is None and not one.unpacked:
            device, warm = _cold(one, probe) / setting.world, one.warm or 0.0
            cold = max(device, warm) + BESIDE * min(device, warm)
        made.append(replace(one, cold=cold, seconds=one.warm if cached or cold is None else cold))
    return made


def _cold(one: Candidate, probe: Probe) -> float:
    """Return the seconds that reads take, as many at a time as a loader has under way."""
    each = one.reads / len(one.run_bytes)
    # Of runs that share a page the first brings it for the others.
    reads = sum(min(each, max(1.0, each * size / PAGE)) for size in one.run_bytes)
    run, depth = one.nbytes / reads, float(one.at_once)
    if one.at_once == BLOCK_READS:
        depth = max(depth, min(DEEPEST, AHEAD / run))
    return one.nbytes / probe.rate(run, depth, sequential=one.order.sequential)


def stays_cached(table: Table) -> bool:
    """Say whether a table that was read once is in the page cache at the next epoch.

    Example:
        >>> from corgipile.tables import open
        >>> stays_cached(open({"x": [1.0]}))
        True
    """
    return _share_cached(table) >= 1


def _share_cached(table: Table) -> float:
    """Return how much of a table the page cache holds, at most 1."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) << 10
    with contextlib.suppress(OSError, ValueError):  # "max" where there is none
        free = min(free, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(1.0, CACHED * free / max(1, table.nbytes))


def _loader(order: Order, setting: Setting) -> Loader:
    return Loader(
        setting.table, batch_size=setting.batch_size, order=order, memory=setting.memory, seed=setting.seed,
        world=setting.world,
    )  # fmt: skip


class _Mark(NamedTuple):
    """A moment of an epoch.

    Attributes:
        batches: That were taken.
        seconds: Since it began.
        nbytes: Of the device that were read since; of systems that do not say, NaN.
    """

    batches: int
    seconds: float
    nbytes: float


class _Begun(NamedTuple):
    """The beginning of an epoch.

    Attributes:
        marks: One or more, the last when it was left.
        read: Share of its bytes that the device was read for; of systems that do not say, NaN.
    """

    marks: list[_Mark]
    read: float

    def seconds(self, total: int) -> float:
        """Return those of all of its batches: what was taken to fill the buffer, and then as fast as after that.

        Example:
            >>> jerks = (1, 2.0), (2, 3.0), (3, 4.0), (5, 4.5), (7, 5.0)
            >>> _Begun([_Mark(batches, seconds, 0.0) for batches, seconds in jerks], 0.0).seconds(11)
            6.0
        """
        start, stop = self._since(0.0)
        return stop.seconds + (total - stop.batches) * (stop.seconds - start.seconds) / (stop.batches - start.batches)

    def cold(self, total: int, nbytes: float, share: float) -> float:
        """Return the seconds of all of its batches, as fast as in the second half of what was seen.

        A device's first requests are its slowest. Blocks do not end where pages do: the first to be read brings the
        page that it has in common with its neighbour, which need not be read for that. So an epoch begins with more
        bytes a row than it ends with, and goes on by bytes of the device, not by rows.

        Args:
            total: Its batches.
            nbytes: Bytes that the device is read for in all, if each page is once.
            share: Of pages that are still cached when their other rows come.

        Example:
            >>> begun = _Begun([_Mark(done, done + 1.0, 10.0 * (done + 2)) for done in (1, 2, 3, 4)], 1.0)
            >>> begun.cold(10, 100.0, 1.0), begun.cold(10, 100.0, 0.0)
            (9.0, 14.0)
        """
        (start, stop), rows = self._since(0.5), self.seconds(total)
        if stop.nbytes <= start.nbytes:
            return rows
        pace = (stop.seconds - start.seconds) / (stop.nbytes - start.nbytes)
        again = stop.nbytes * total / stop.batches
        nbytes = again - (again - nbytes) * share * (2 - share)  # what was read last is cached, more and more of it
        return stop.seconds + max(0.0, nbytes - stop.nbytes) * pace

    def _since(self, part: float) -> tuple[_Mark, _Mark]:
        """Return the marks between which it went evenly: of this part of its time, once the buffer was full."""
        stop, least = self.marks[-1], max(0, min(FILLED, len(self.marks) - 2))
        rest = (mark for mark in self.marks[least:-1] if mark.seconds >= part * stop.seconds)
        start = next(rest, self.marks[least])
        return (_Mark(0, 0.0, 0.0) if start.batches == stop.batches else start), stop


def _epoch(one: Candidate, setting: Setting, epoch: int) -> tuple[float, float | None]:
    """Run the beginning of an epoch; return the seconds of all of it, if cached, and if not, where that was seen.

    What came from the device is run again, and let go of if all came from there: the next one is to find the same.
    """
    give_back()  # what the last one took is the next one's budget now
    share, seen = setting.seconds / ROUNDS, None
    before = _from_device()
    with _loader(one.order, setting) as loader:
        nbytes = (one.nbytes - (_from_device() - before)) / setting.world  # without labels, which are read by then
        begun = _run(loader, epoch, share)
        total = -(-loader.feeder.visits(epoch) // setting.batch_size)
        if begun.read != 0:
            seen = begun if begun.read >= COLD else None
            begun = _run(loader, epoch, MOST * share, begun.marks[-1].batches)
    warm = begun.seconds(total)
    if seen is None:
        return warm, None
    _let_go(setting.table)
    return warm, max(warm, seen.cold(total, nbytes, _share_cached(setting.table)))


def _run(loader: Loader, epoch: int, seconds: float, most: int | None = None) -> _Begun:
    """Take batches for so long, and of a few buffers, or so many; of a device for longer, which is slow at first.

    Some orders fill a buffer and then visit it, so that batches come by jerks: a mark is made at each half of it.
    """
    loader.set_epoch(epoch)
    every, marks, done, cold = max(1, loader.feeder.slots // 2 // loader.batch_size), list[_Mark](), 0, False
    nbytes, since, start = loader.feeder.bytes_read, _from_device(), time.perf_counter()
    for done, _ in enumerate(loader, 1):
        spent = time.perf_counter() - start
        if (done % every == 1 or every == 1) and (not marks or spent - marks[-1].seconds >= APART):
            marks.append(_Mark(done, spent, _from_device() - since))
            cold = marks[-1].nbytes >= COLD * (loader.feeder.bytes_read - nbytes)
        long = spent - marks[0].seconds >= MOST * seconds  # the first batch may fill a buffer that holds all rows
        if done == most or (spent >= seconds and len(marks) > LEAST_MARKS and not cold) or long:
            break
    read = _from_device() - since
    if marks[-1].batches < done:
        marks.append(_Mark(done, spent, read))
    return _Begun(marks, read / max(1.0, loader.feeder.bytes_read - nbytes))


def _let_go(table: Table) -> None:
    """Let go of what trials have brought into the page cache."""
    if hasattr(os, "posix_fadvise"):
        for file in files_read(table):
            if isinstance(file, File) and not isinstance(file, RemoteFile):
                with contextlib.suppress(OSError), Path(file.path).open("rb") as opened:
                    os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _from_device() -> float:
    """Return the bytes that this process made the device read so far, NaN where the system does not say."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
        return float(next(line for line in lines if line.startswith("read_bytes:")).split()[1])
    return math.nan
