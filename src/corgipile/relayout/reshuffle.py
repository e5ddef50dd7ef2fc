"""Re-layout methods by name."""

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile import random, scratch, tables
from corgipile.arrow_memory import Tidy, frugal, give_back
from corgipile.conversion.convert import Progress
from corgipile.conversion.sources import table_stream
from corgipile.errors import BadArgument, BudgetTooSmall
from corgipile.loader.materialize import bring
from corgipile.outputs import writing
from corgipile.relayout.external import External, write_in_order
from corgipile.relayout.plans import BLOCK_COLUMN, Shuffle, Split
from corgipile.sizes import Size, format_bytes, parse_bytes, to_rows, whole
from corgipile.suggestions import did_you_mean
from corgipile.tables import Table
from corgipile.tables.formats.arrow.writer import TABLE, Writer, batch_bytes, conform, plain
from corgipile.tables.inputs import check_target
from corgipile.tables.io.arriving import in_flight_of, limit_requests
from corgipile.tables.io.files import PathLike
from corgipile.tables.io.pieces import join, pick_rows
from corgipile.tables.io.remote import is_remote
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.spans import array_of
from corgipile.tables.table import even_cuts

_MIN_ROWS = 32
_TWO_PASS, _CORGI2, _BMF = 101, 102, 103


@dataclass(frozen=True)
class Job:
    """A re-layout's input and output, and its temporary folder; memory and ``width`` (of a row) are in bytes.

    ``write`` receives ordered rows, ``dealt`` the number of rows dealt to a first pile.
    """

    table: Table
    memory: int
    width: int
    block: int
    seed: int
    folder: Path
    write: Callable[[pa.RecordBatch], None]
    dealt: Callable[[int], None]

    def external(self) -> External:
        """Return the external sorter."""
        return External(self.folder, self.memory, self.width, self.write, self.dealt)


def reshuffle(
    table: Any,
    out: PathLike,
    method: str = "two-pass",
    *,
    memory: int | str = "64MB",
    seed: int = 0,
    block: Size | None = None,
    record_batch: int | str | None = None,
    compression: str | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
) -> int:
    """Write the rows of a table in a better order, as an Arrow IPC file, within a memory budget.

    - ``"two-pass"``: an exactly uniform shuffle of all rows. Rows are dealt to random piles on disk, and each pile is
      shuffled in memory (Rao 1961); piles that do not fit are dealt again. Reading the result in storage order is the
      papers' *Shuffle Once*.
    - ``"corgi2"``: one pass of CorgiPile written out, so that blocks of the result are nearly random samples:
      ``h_D' <= 1 + (1/n - 1/(nb)) h_D`` for a buffer of n blocks (arXiv 2309.01640). One read, one write.
    - ``"bmf"``: rows split at random into blocks of equal length, in storage order within a block (KDD'10).

    Temporary files lie next to ``out``, take as much space as the rows, and are always removed.

    Args:
        table: A table, or a source for ``corgipile.open``.
        out: The file to write; replaces an earlier table of ours, but never a file of the table.
        method: "two-pass", "corgi2" or "bmf".
        memory: Memory budget in bytes.
        seed: The same seed gives the same file.
        block: Size of a block, not for "two-pass": by default 1/64 of the memory but at most 256 KB for "corgi2", 1/8
            of it for "bmf".
        record_batch: Size of a record batch, in rows or bytes; by default 4 MB, or 1 MB if it must be read whole, less
            if memory is small, and one block for "bmf".
        compression: None, "lz4" or "zstd".
        progress: Called with rows moved and rows to move; rows that pass through piles count twice.
        overwrite: Replace a file of any kind, but never one of the table.

    Returns:
        The number of rows written.

    Raises:
        BadArgument: The method is unknown.
        WouldOverwrite: ``out`` is a file of the table, or of another kind.
        BudgetTooSmall: Memory holds less than two blocks or 32 rows.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> reshuffle(pa.table({"label": range(100)}), folder / "shuffled.arrow", seed=7)
        100
        >>> labels = tables.open(folder / "shuffled.arrow").read(0, 100)["label"].to_pylist()
        >>> labels == list(range(100)), sorted(labels) == list(range(100))
        (False, True)
    """
    _check_method(method, block)
    seed, opened = whole(seed, "seed"), tables.open(table)
    inputs = (table, opened)
    goal = check_target(out, TABLE, inputs=inputs, overwrite=overwrite)
    width = width_of(opened)
    budget = budget_of(memory, opened, width)
    rows, default = len(opened), {"bmf": budget // 8}.get(method, min(budget // 64, 1 << 18))
    length = to_rows(f"{default}B" if block is None else block, rows, width, "block")
    schema = plain(opened.schema)
    if record_batch is None:
        record_batch = length if method == "bmf" else f"{min(batch_bytes(schema, compression), budget // 16)}B"
    report = _Report(progress, rows, Tidy(budget))
    with (
        frugal(),
        limit_requests(budget // 8) if is_remote(opened) else nullcontext(),
        writing(goal),
        scratch.folder(goal.parent, goal.name) as folder,
        Writer(goal, schema, record_batch, compression, inputs=inputs, overwrite=overwrite) as writer,
    ):
        job = Job(opened, budget, width, length, seed, folder, report.writing(writer), report.dealt)
        METHODS[method](job)
    return writer.rows


def _check_method(method: str, block: Size | None) -> None:
    if method not in METHODS:
        near = did_you_mean(method, METHODS)
        raise BadArgument(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}{near}")
    if block is not None and method == "two-pass":
        raise BadArgument(f"block is not for two-pass, which moves single rows, got {block!r}: leave it out")


def width_of(table: Table) -> int:
    """Return the average bytes per row in memory.

    Example:
        >>> width_of(tables.open(pa.table({"x": [1.0, 2.0]})))
        8
    """
    return max(1, math.ceil(max(row_bytes(table), table.nbytes / max(1, len(table)))))


def budget_of(memory: Size, table: Table, width: int) -> int:
    """Return the memory in bytes, checked to hold some rows of that width."""
    budget = parse_bytes(memory, whole=table.nbytes)
    if budget < (least := max(1 << 16, _MIN_ROWS * width)):
        raise BudgetTooSmall(
            f"memory must be at least {format_bytes(least)} for rows of {width} bytes, got {format_bytes(budget)}"
        )
    return budget


def _two_pass(job: Job) -> None:
    job.external().run(_rows(job), len(job.table), two_pass(job.seed))


def two_pass(seed: int) -> Shuffle:
    """Return the plan of a full shuffle."""
    return Shuffle(random.derive(seed, _TWO_PASS))


def _bmf(job: Job) -> None:
    rows = len(job.table)
    key = random.derive(job.seed, _BMF)

    def marked() -> Iterator[pa.RecordBatch]:
        start = 0
        for batch in _rows(job):
            places = random.permute(rows, key, start, start + batch.num_rows)
            start += batch.num_rows
            yield batch.append_column(BLOCK_COLUMN, array_of(places // job.block))

    external = job.external()
    external.write = lambda batch: job.write(batch.drop_columns([BLOCK_COLUMN]))
    external.run(marked(), rows, Split(0, -(-rows // job.block)))


def _corgi2(job: Job) -> None:
    cuts = even_cuts(len(job.table), job.block)
    buffer = job.memory // (3 * job.block * (job.width + 8))
    if buffer < 2 and len(cuts) > 2:
        least = 6 * job.block * (job.width + 8)
        raise BudgetTooSmall(
            f"memory must hold 2 blocks of {job.block} rows, {format_bytes(least)}, got {format_bytes(job.memory)}"
        )
    bring(job.table, job.table.schema.names, job.memory)  # blocks are parts of encoded units
    give_back()
    schema, key = plain(job.table.schema), random.derive(job.seed, _CORGI2)
    blocks = np.arange(len(cuts) - 1, dtype=np.int64)
    random.shuffle(blocks, key)
    tidy = Tidy(job.memory)
    for start in range(0, len(blocks), buffer):
        runs = [(int(cuts[k]), int(cuts[k + 1])) for k in blocks[start : start + buffer]]
        joined = join([_copy_if_part(conform(job.table.read(*run), schema)) for run in runs])
        order = np.arange(joined.num_rows, dtype=np.int64)
        random.shuffle(order, random.derive(key, start))
        write_in_order(joined, order, max(1, job.memory // (16 * job.width)), job.write)
        tidy.passed(joined.nbytes)


def _copy_if_part(block: pa.RecordBatch) -> pa.RecordBatch:
    """Copy a block that is a small part of a decoded unit, to free the unit."""
    part = block.get_total_buffer_size() > 2 * block.nbytes
    return pick_rows(block, np.arange(block.num_rows)) if part else block


METHODS: dict[str, Callable[[Job], None]] = {"two-pass": _two_pass, "corgi2": _corgi2, "bmf": _bmf}


def _rows(job: Job) -> Iterator[pa.RecordBatch]:
    return rows_of(job.table, job.memory, job.width, 0, len(job.table))


def rows_of(table: Table, memory: int, width: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
    """Read a span of rows piecewise, without dictionaries."""
    schema = plain(table.schema)
    run = max(1, min(1 << 20, memory // 16) // width)
    tidy = Tidy(memory)
    for batch in table_stream(table, run, start, stop, in_flight=in_flight_of(memory)).batches:
        yield conform(batch, schema)
        tidy.passed(batch.nbytes)


class _Report:
    """Counts rows moved, to piles or to the file, and returns their memory to the system."""

    def __init__(self, progress: Progress | None, rows: int, tidy: Tidy) -> None:
        self._progress, self._tidy = progress, tidy
        self._done, self._all, self._rows = 0, rows, rows

    def dealt(self, rows: int) -> None:
        self._all = 2 * self._rows
        self._move(rows)

    def writing(self, writer: Writer) -> Callable[[pa.RecordBatch], None]:
        def write(batch: pa.RecordBatch) -> None:
            writer.write(batch)
            self._tidy.passed(batch.nbytes)
            self._move(batch.num_rows)

        return write

    def _move(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None:
            self._progress(self._done, self._all)
