"""A table shuffled by the tasks of an engine, such as Ray or Spark: the first round dealt by many, each pile by one."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.arrow_memory import frugal
from corgipile.conversion.tasks import Engine, Put, Target, Written, settings_of
from corgipile.outputs import PathLike
from corgipile.relayout.external import External, chunks
from corgipile.relayout.piles import Piles, apart
from corgipile.relayout.plans import Shuffle
from corgipile.relayout.reshuffle import budget_of, rows_of, two_pass, width_of
from corgipile.sizes import Size, whole
from corgipile.tables import Table
from corgipile.tables import open as open_table
from corgipile.tables.arrow.writer import plain
from corgipile.tables.io.arriving import few_requests, within
from corgipile.tables.io.remote import is_remote

__all__ = ["reshuffle"]


def reshuffle(
    engine: Engine,
    table: Any,
    out: PathLike,
    *,
    memory: Size = "1GB",
    seed: int = 0,
    to: str | None = None,
    record_batch: int | str | None = None,
    shard_size: Size | None = None,
    compression: str | None = None,
    overwrite: bool = False,
) -> int:
    """Write the rows of a table in an order of which each is equally likely, by tasks.

    Tasks deal spans of rows to random piles, the engine brings together what belongs to a pile, and a task for each
    orders it and writes it to files of its own. With the same ``memory`` and ``seed`` rows come in the order in which
    `corgipile.reshuffle` writes them on one machine, whatever runs where.

    Args:
        engine: What runs the tasks.
        table: What `corgipile.open` takes; files that every machine reaches.
        out: A folder that every machine reaches, or ``rows-%05d.arrow`` for the files of one; Arrow else.
        memory: Bytes that a task may hold: it decides how many rows a task deals, and how many piles there are.
        seed: The same seed gives the same files.
        to: The format, as for `corgipile.convert`, and so are those that follow.
        record_batch: As there.
        shard_size: Bytes of a file at most; None: as there, and 512 MB of Arrow. A pile has a file at least.
        compression: As there.
        overwrite: Replace what is there, but never a file of the table.

    Returns:
        The number of rows written.

    Raises:
        BadArgument: The output is one file, or a setting is wrong.
        BudgetTooSmall: Memory holds no sensible number of rows.
        WouldOverwrite: Files are there.
        WriteFailed: What a task wrote is not to be found here.
    """
    target = Target.of(out, to, settings_of(shard_size, record_batch, compression), overwrite=overwrite)
    seed, opened = whole(seed, "seed"), open_table(table)
    width = width_of(opened)
    job = _Shuffling(opened, budget_of(memory, opened, width), width, two_pass(seed))
    with target.filled((table, opened), job.schema, len(opened)) as (there, done):
        done(engine.dealt(job.deal, job.spans, partial(job.merge, there), job.piles))
    return len(opened)


@dataclass(frozen=True)
class _Shuffling:
    """What the tasks of a shuffle do."""

    table: Table
    memory: int
    width: int
    plan: Shuffle

    def _external(self, folder: Path, write: Put) -> External:
        return External(folder, self.memory, self.width, write, lambda _: None)

    @property
    def _sizes(self) -> External:
        return self._external(Path(), lambda _: None)

    @property
    def schema(self) -> pa.Schema:
        """Return the columns, without dictionaries."""
        return plain(self.table.schema)

    @property
    def spans(self) -> int:
        """Return how many spans of rows are dealt, each as a whole."""
        return max(1, -(-len(self.table) // self._sizes.chunk))

    @property
    def piles(self) -> int:
        """Return how many piles there are: one where all rows fit into memory."""
        rows = len(self.table)
        return 1 if self._sizes.fits(rows) else self._sizes.count(rows, self.plan)

    def deal(self, span: int) -> Iterator[tuple[int, pa.Buffer]]:
        """Yield the rows of a span for each pile that gets any."""
        rows, most, piles = len(self.table), self._sizes.chunk, self.piles
        start, stop = span * most, min(rows, (span + 1) * most)
        with (
            frugal(),
            within(self.memory),
            few_requests(self.memory // 8) if is_remote(self.table) else nullcontext(),
        ):
            for batch in chunks(rows_of(self.table, self.memory, self.width, start, stop), most):
                parts = [(0, batch)] if piles == 1 else apart(batch, self.plan.piles(batch, start, piles))
                yield from ((pile, part.serialize()) for pile, part in parts)
        if not rows:  # then a file tells the columns
            yield 0, pa.RecordBatch.from_pylist([], self.schema).serialize()

    def merge(self, target: Target, pile: int, dealt: Iterable[pa.Buffer]) -> Written:
        """Order a pile, and write it."""
        schema, piles = self.schema, self.piles
        batches = (pa.ipc.read_record_batch(buffer, schema) for buffer in dealt)
        plan = self.plan if piles == 1 else self.plan.within(pile, piles)

        def fill(folder: Path, put: Put) -> None:
            external = self._external(folder, put)
            with Piles(folder / "whole", 1) as waiting:
                found, rows = _counted(batches, external.fits, waiting)
                external.run(found, rows, plan)

        with frugal():
            return target.write(schema, fill)


def _counted(
    batches: Iterator[pa.RecordBatch], fits: Callable[[int], bool], waiting: Piles
) -> tuple[Iterator[pa.RecordBatch], int]:
    """Count rows before they are ordered: those that do not fit into memory wait on disk."""
    kept: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        kept.append(batch)
        if not fits(rows):
            for one in kept:
                waiting.deal(one, np.zeros(one.num_rows, np.int64))
            kept.clear()
    waiting.finish()
    return (waiting.take_up(0) if waiting.rows[0] else iter(kept)), rows
