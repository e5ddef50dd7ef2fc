"""What a setting costs: a little of an epoch is run, by the loader that would run all of it; the device was probed."""

import contextlib
import math
import os
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from corgipile.loader import Loader
from corgipile.orders import Order
from corgipile.planner.candidates import BLOCK_READS, Candidate, Setting
from corgipile.planner.probe import Probe
from corgipile.tables.table import Table

__all__ = ["predicted", "stays_cached", "tried"]

UNPACKED = 256 << 20  # bytes that are not unpacked for a trial
SHARE, LEAST_BYTES = 0.02, 32 << 20  # of a table, that a trial reads at most: it should not warm what it measures
ROUNDS, MOST = 3, 3  # of trials; times as long as it should take a trial may take, to see a few buffers
FILLED, LEAST_MARKS = 2, 5  # marks until the buffer was full once; in a trial
LOOK = 32  # batches after which the device is looked at
PAGE = 4 << 10  # bytes that a device reads at least
AHEAD, DEEPEST = 4 << 20, 64  # bytes of blocks that are announced to the device ahead of their reading; reads
BESIDE = 0.25  # of the time that reading and copying take, that is not beside the device's
CACHED = 0.8  # of the memory that is free, that a table may take and stay in the page cache


def tried(found: list[Candidate], setting: Setting) -> list[Candidate]:
    """Tell the warm time of those that fit, but not of those that would unpack much first.

    They take turns, each with other rows, and the median counts: other programs run meanwhile.
    """
    if not setting.seconds:
        return found
    able = [one.flaw is None and one.unpacked <= UNPACKED for one in found]
    rounds = [
        [_epoch(one.order, setting, epoch) if can else None for one, can in zip(found, able, strict=True)]
        for epoch in range(ROUNDS)
    ]
    return [
        replace(one, warm=statistics.median(spent)) if can else one
        for one, can, *spent in zip(found, able, *rounds, strict=True)
    ]


def predicted(found: list[Candidate], probe: Probe | None, setting: Setting, *, cached: bool) -> list[Candidate]:
    """Tell the cold time of those whose rows come from a place that was probed, and which time applies."""
    made = []
    for one in found:
        cold = None
        if probe is not None and one.flaw is None and not one.unpacked:
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
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) << 10
    with contextlib.suppress(OSError, ValueError):  # "max" where there is none
        free = min(free, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return table.nbytes < CACHED * free


def _loader(order: Order, setting: Setting) -> Loader:
    return Loader(
        setting.table, batch_size=setting.batch_size, order=order, memory=setting.memory, seed=setting.seed,
        world=setting.world,
    )  # fmt: skip


class _Begun(NamedTuple):
    """The beginning of an epoch.

    Attributes:
        marks: Batches, and seconds since it began; one or more, the last when it was left.
        read: Bytes that the device was read for; of systems that do not say, all.
    """

    marks: list[tuple[int, float]]
    read: float

    def seconds(self, total: int) -> float:
        """Return those of all of its batches: what was taken to fill the buffer, and then as fast as after that.

        Example:
            >>> _Begun([(1, 2.0), (2, 3.0), (3, 4.0), (5, 4.5), (7, 5.0)], 0.0).seconds(11)
            6.0
        """
        since, until = self.marks[max(0, min(FILLED, len(self.marks) - 2))], self.marks[-1]
        (before, start), (done, stop) = since if len(self.marks) > 1 else (0, 0.0), until
        return stop + (total - done) * (stop - start) / max(1, done - before)


def _epoch(order: Order, setting: Setting, epoch: int) -> float:
    """Run the beginning of an epoch, again if it came from the device; return the seconds of all of it, if cached."""
    share = setting.seconds / ROUNDS
    with _loader(order, setting) as loader:
        begun = _run(loader, epoch, share, max(SHARE * setting.table.nbytes, LEAST_BYTES))
        if begun.read:
            begun = _run(loader, epoch, MOST * share, math.inf, begun.marks[-1][0])
        loader.set_epoch(epoch)
        return begun.seconds(len(loader))


def _run(loader: Loader, epoch: int, seconds: float, nbytes: float, most: int | None = None) -> _Begun:
    """Take batches for so long, and of a few buffers; no more where the device is read for so much, nor than ``most``.

    Some orders fill a buffer and then visit it, so that batches come by jerks: a mark is made at each half of it.
    """
    loader.set_epoch(epoch)
    every = max(1, loader.feeder.slots // 2 // loader.batch_size)
    size, since, start = loader.feeder.row_bytes * loader.batch_size, _from_device(), time.perf_counter()
    marks, read, spent = [], 0.0, 0.0
    for done, _ in enumerate(loader, 1):
        spent = time.perf_counter() - start
        if done % every == 1 or every == 1:
            marks.append((done, spent))
        if done % LOOK == 1:
            read = done * size if since is None else (_from_device() or 0) - since
        enough = len(marks) > LEAST_MARKS or spent >= MOST * seconds
        if (spent >= seconds and enough) or read >= nbytes or done == most:
            break
    return _Begun([*marks, (done, spent)] if marks[-1][0] < done else marks, read)


def _from_device() -> int | None:
    """Return the bytes that this process made the device read so far, None where the system does not say."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("read_bytes:")).split()[1])
    return None
