"""What a setting costs: a little of an epoch is run, by the loader that would run all of it; the device was probed."""

import contextlib
import os
import time
from dataclasses import replace
from pathlib import Path

from corgipile.loader import Loader
from corgipile.orders import Order
from corgipile.planner.candidates import BLOCK_READS, Candidate, Setting
from corgipile.planner.probe import Probe
from corgipile.tables.table import Table

__all__ = ["predicted", "stays_cached", "tried"]

UNPACKED = 256 << 20  # bytes that are not unpacked for a trial
SHARE, LEAST_BYTES = 0.02, 32 << 20  # of a table, that a trial reads at most: it should not warm what it measures
ROUNDS = 2
PAGE = 4 << 10  # bytes that a device reads at least
AHEAD, DEEPEST = 4 << 20, 64  # bytes of blocks that are announced to the device ahead of their reading; reads
BESIDE = 0.25  # of the time that reading and copying take, that is not beside the device's
CACHED = 0.8  # of the memory that is free, that a table may take and stay in the page cache


def tried(found: list[Candidate], setting: Setting) -> list[Candidate]:
    """Tell the warm time of those that fit, but not of those that would unpack much first.

    They take turns, and the better one counts: other programs run meanwhile.
    """
    if not setting.seconds:
        return found
    made = list(found)
    for _ in range(ROUNDS):
        for at, one in enumerate(made):
            if one.flaw is None and one.unpacked <= UNPACKED:
                spent = _epoch(one.order, setting)
                made[at] = replace(one, warm=spent if one.warm is None else min(spent, one.warm))
    return made


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


def _epoch(order: Order, setting: Setting) -> float:
    """Run the beginning of an epoch twice; return the seconds of all of it by the second time."""
    with _loader(order, setting) as loader:
        total = len(loader)
        most = max(SHARE * setting.table.nbytes, LEAST_BYTES) / max(1.0, loader.feeder.row_bytes * setting.batch_size)
        few = min(total, max(2, int(most)))
        share = setting.seconds / ROUNDS / 2
        _, done, _ = _run(loader, few, share)  # and so it is in the page cache
        first, done, spent = _run(loader, done + 1, 4 * share)
        return first + (total - 1) * spent / max(1, done)


def _run(loader: Loader, most: int, seconds: float) -> tuple[float, int, float]:
    """Take batches for so long, or so many; return how long the first took, how many came then, how long that took."""
    loader.set_epoch(0)
    batches = iter(loader)
    start = time.perf_counter()
    next(batches)
    begun, done = time.perf_counter(), 0
    while done < most - 1 and time.perf_counter() - begun < seconds and next(batches, None) is not None:
        done += 1
    return begun - start, done, time.perf_counter() - begun
