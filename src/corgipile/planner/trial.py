"""What a setting costs: a little of an epoch is run, by the loader that would run all of it."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

from corgipile.errors import BudgetTooSmall
from corgipile.loader import Loader
from corgipile.loader.budget import columns_of, fit, sketched
from corgipile.orders import Key, Order
from corgipile.planner.mixing import followed
from corgipile.quality.keys import Keys
from corgipile.sizes import Size
from corgipile.tables.io.remote import is_remote
from corgipile.tables.sketch import sketch
from corgipile.tables.table import Table

__all__ = ["Candidate", "Setting", "candidate", "tried"]

UNPACKED = 256 << 20  # bytes that are not unpacked for a trial
SHARE, LEAST_BYTES = 0.02, 32 << 20  # of a table, that a trial reads at most: it should not warm what it measures
ROUNDS = 2
REQUEST = 1 << 20  # bytes of a request to a store, where a table is fetched as it lies


@dataclass(frozen=True)
class Setting:
    """What is the same for all candidates.

    Attributes:
        table: The table.
        memory: The budget of a process.
        batch_size: Rows of a batch.
        labels: The column that balanced orders look at, as a table in memory; None without one.
        keys: Its values; None: deff is what it is at worst.
        world: Ranks that share the table.
        seconds: How long each candidate is tried.
        seed: Of the epoch.
    """

    table: Table
    memory: Size
    batch_size: int
    labels: Table | None
    keys: Keys | None
    world: int
    seconds: float
    seed: int


@dataclass(frozen=True)
class Candidate:
    """A way to read a table.

    Attributes:
        order: What is given to a loader as its order.
        title: Its name.
        block_rows: Rows of a block.
        blocks: Blocks in memory at most, rows of any others there counted as such.
        memory: Bytes of rows in memory at most.
        deff: Design effect of a batch's labels, as they lie; at worst where none are known.
        seconds: Of an epoch of one rank, as long as reading and batches take; None: not tried.
        reads: Runs of bytes that an epoch of all ranks reads; of a table in a store, requests.
        nbytes: Bytes that it reads.
        unpacked: Bytes that are unpacked once, before the first epoch.
        flaw: Why it cannot be, None if it can.
    """

    order: Order
    title: str
    block_rows: int = 0
    blocks: float = 0.0
    memory: int = 0
    deff: float = 1.0
    seconds: float | None = None
    reads: int = 0
    nbytes: int = 0
    unpacked: int = 0
    flaw: str | None = None


def candidate(order: Order, setting: Setting) -> Candidate:
    """Fit an order to the memory and follow it over row numbers; nothing of the table is read, or fetched."""
    title, table = getattr(order, "title", order.name), setting.table
    columns = columns_of(table)
    try:
        fitted = fit(table, order, setting.memory, columns)
    except BudgetTooSmall as error:
        return Candidate(order, title, flaw=str(error))
    labels, way = setting.labels, fitted.way
    blocks = sketched(
        table, fitted.order, fitted.blocks, lambda _, cuts, name: sketch(cast("Table", labels), cuts, name)
    )
    key = Key(setting.seed, 0, 0, setting.world)
    mixing = followed(fitted.order, blocks, key, setting.keys, setting.batch_size)
    unpacked = int(way.units.total) if way.spilled and way.units is not None else 0
    reads = mixing.runs * len(table) * (len(columns.sources) if table.layout(columns.sources) is not None else 1)
    nbytes = int(columns.row_bytes * len(table))
    if unpacked and is_remote(table):  # fetched as it lies
        reads, nbytes = -(-table.nbytes // REQUEST), table.nbytes
    return Candidate(
        order, title, blocks.widest, fitted.order.slots(blocks) / max(1, blocks.widest),
        int(fitted.order.resident(blocks) * columns.row_bytes), mixing.deff, None, int(reads), nbytes, unpacked,
    )  # fmt: skip


def tried(found: list[Candidate], setting: Setting) -> list[Candidate]:
    """Tell the time of those that fit, but not of those that would unpack much first.

    They take turns, and the better one counts: the machine may do other things meanwhile.
    """
    if not setting.seconds:
        return found
    made = list(found)
    for _ in range(ROUNDS):
        for at, one in enumerate(made):
            if one.flaw is None and one.unpacked <= UNPACKED:
                spent = _epoch(one.order, setting)
                made[at] = replace(one, seconds=spent if one.seconds is None else min(spent, one.seconds))
    return made


def _loader(order: Order, setting: Setting) -> Loader:
    return Loader(
        setting.table, batch_size=setting.batch_size, order=order, memory=setting.memory, seed=setting.seed,
        world=setting.world,
    )  # fmt: skip


def _epoch(order: Order, setting: Setting) -> float:
    """Run a little of the middle of an epoch; return the seconds of all of it, the first rows' wait included."""
    with _loader(order, setting) as loader:
        total = len(loader)
        most = max(SHARE * setting.table.nbytes, LEAST_BYTES) / max(1.0, loader.feeder.row_bytes * setting.batch_size)
        few = min(total, max(2, int(most)))
        loader.seek((total - few) // 2)
        start = time.perf_counter()
        batches = iter(loader)
        next(batches)
        first = time.perf_counter() - start
        done, spent = _run(batches, few - 1, setting.seconds / ROUNDS)
    return first + (total - 1) * spent / max(1, done)


def _run(batches: Iterator[Any], most: int, seconds: float) -> tuple[int, float]:
    """Take batches for so long, or so many; return how many came, and how long that took."""
    start, done = time.perf_counter(), 0
    while done < most and time.perf_counter() - start < seconds and next(batches, None) is not None:
        done += 1
    return done, time.perf_counter() - start
