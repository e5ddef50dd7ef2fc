"""Shuffle of a table by tasks of an engine, such as Ray or Spark: tasks deal spans of rows, then order piles."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.arrow_memory import frugal
from corgipile.conversion.tasks import Engine, Put, Target, Written
from corgipile.conversion.writers.form import Settings
from corgipile.outputs import PathLike
from corgipile.relayout.external import External, chunks
from corgipile.relayout.piles import Piles, split_by_pile
from corgipile.relayout.plans import Shuffle
from corgipile.relayout.reshuffle import budget_of, rows_of, two_pass, width_of
from corgipile.sizes import Size, whole
from corgipile.tables import Table
from corgipile.tables import open as open_table
from corgipile.tables.formats.arrow.writer import plain
from corgipile.tables.io.arriving import limit_requests
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
    """Write the rows of a table in uniformly random order, by tasks; return the number of rows.

    Tasks deal spans of rows to random piles, the engine groups the piles, and a task per pile orders it and writes its
    own files. The same ``memory`` of a task and ``seed`` give the order of `corgipile.reshuffle` on one machine,
    wherever the tasks run. Other arguments are those of `corgipile.conversion.tasks.convert`; a pile has at least one
    file.
    """
    target = Target.of(out, to, Settings.of(shard_size, record_batch, compression), overwrite=overwrite)
    seed, opened = whole(seed, "seed"), open_table(table)
    width = width_of(opened)
    job = _Shuffling(opened, budget_of(memory, opened, width), width, two_pass(seed), engine.largest)
    with target.filled((table, opened), job.schema, len(opened)) as (target_folder, done):
        done(engine.dealt(job.deal, job.spans, partial(job.merge, target_folder), job.piles))
    return len(opened)


@dataclass(frozen=True)
class _Shuffling:
    """The tasks of a shuffle."""

    table: Table
    memory: int
    width: int
    plan: Shuffle
    largest: int

    def _external(self, folder: Path, write: Put) -> External:
        return External(folder, self.memory, self.width, write, lambda _: None)

    @property
    def _sizes(self) -> External:
        return self._external(Path(), lambda _: None)

    @property
    def schema(self) -> pa.Schema:
        """Return the schema, without dictionaries."""
        return plain(self.table.schema)

    @property
    def span(self) -> int:
        """Return the rows dealt by a task."""
        return max(1, min(self._sizes.chunk, self.largest // self.width))

    @property
    def spans(self) -> int:
        """Return the number of dealing tasks."""
        return max(1, -(-len(self.table) // self.span))

    @property
    def piles(self) -> int:
        """Return the number of piles: one if all rows fit in memory."""
        rows = len(self.table)
        return 1 if self._sizes.fits(rows) else self._sizes.count(rows, self.plan)

    def deal(self, number: int) -> Iterator[tuple[int, pa.Buffer]]:
        """Yield the rows of a span for each nonempty pile."""
        rows, most, piles = len(self.table), self.span, self.piles
        start, stop = number * most, min(rows, (number + 1) * most)
        with (
            frugal(),
            limit_requests(self.memory // 8) if is_remote(self.table) else nullcontext(),
        ):
            for batch in chunks(rows_of(self.table, self.memory, self.width, start, stop), most):
                parts = [(0, batch)] if piles == 1 else split_by_pile(batch, self.plan.piles(batch, start, piles))
                yield from ((pile, part.serialize()) for pile, part in parts)
        if not rows:  # an empty file still has the columns
            yield 0, pa.RecordBatch.from_pylist([], self.schema).serialize()

    def merge(self, target: Target, pile: int, dealt: Iterable[pa.Buffer]) -> Written:
        """Order and write a pile."""
        schema, piles = self.schema, self.piles
        batches = (pa.ipc.read_record_batch(buffer, schema) for buffer in dealt)
        plan = self.plan if piles == 1 else self.plan.within(pile, piles)

        def fill(folder: Path, put: Put) -> None:
            external = self._external(folder, put)
            with Piles(folder / "whole", 1) as spilled:
                pile_batches, rows = _count_rows(batches, external.fits, spilled)
                external.run(pile_batches, rows, plan)

        with frugal():
            return target.write(schema, fill)


def _count_rows(
    batches: Iterator[pa.RecordBatch], fits: Callable[[int], bool], spilled: Piles
) -> tuple[Iterator[pa.RecordBatch], int]:
    """Count rows before ordering; rows that do not fit in memory wait on disk."""
    buffered: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        buffered.append(batch)
        if not fits(rows):
            for pending in buffered:
                spilled.deal(pending, np.zeros(pending.num_rows, np.int64))
            buffered.clear()
    spilled.finish()
    return (spilled.drain(0) if spilled.rows[0] else iter(buffered)), rows
