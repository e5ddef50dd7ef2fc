"""The loader: batches of a table in any order, read nearly sequentially, resumable at any batch."""

import logging
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from corgipile.arguments import documented, init_takes
from corgipile.errors import RaggedRows, StateMismatch
from corgipile.features import Encoding
from corgipile.loader.array_pool import ArrayPool, Make
from corgipile.loader.batches import Format, Unseen, cutter
from corgipile.loader.budget import readable_alone
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.loader.checkpoint import Position, check_place, find_place, identity_of, restore_part
from corgipile.loader.groups import BatchGatherer, BatchSource, Group, Place, position_after
from corgipile.loader.null_rows import NullRow
from corgipile.loader.one_thread import OneThread
from corgipile.loader.options import Options
from corgipile.loader.prefetch import Overfull
from corgipile.loader.rewind import Rewind, Rewindable
from corgipile.loader.segments import EpochSegment
from corgipile.loader.select import select
from corgipile.loader.selection import Selection
from corgipile.loader.shutdown import closed_at_exit
from corgipile.loader.skips import Skipped, Skips, cut_without
from corgipile.loader.stats import LoaderStats, Meter
from corgipile.loader.wide_rows import WideRows
from corgipile.orders import GlobalBatches, Order, Shard
from corgipile.sizes import MAX_EPOCH, whole
from corgipile.tables import open as open_table

__all__ = ["Loader"]

REUSED_BATCHES = 2  # reusable batches of sparse rows: the one in use, and the next
log = logging.getLogger("corgipile")


@dataclass(frozen=True, kw_only=True)
class LoaderArguments(Options):
    """Arguments of `Loader`.

    Attributes:
        table: A table from `corgipile.open`, a source that it takes, or an object that satisfies the Table protocol.
        format: ``"numpy"`` (dictionary of arrays), ``"torch"`` (dictionary of tensors) or ``"arrow"`` (record batch).
            Numbers keep their stored type, labels too: functions that need int64, such as PyTorch's cross-entropy,
            take ``batch["label"].long()``. Labels of image folders are int64. With ``"arrow"`` no widths are inferred.
        worker: This worker's number among the ``workers`` of a rank, which take its batches in turn.
        workers: Number of workers of the rank, which divide its memory.
    """

    table: Any = field(kw_only=False)
    batch_size: int = 256
    format: Format = "numpy"
    rank: int = 0
    world: int = 1
    worker: int = 0
    workers: int = 1


@documented(LoaderArguments)
class Loader(Rewindable):
    """Iterates over batches of a table: one pass is one epoch, each row once.

    Attributes:
        epoch: Epoch of the next iteration, set by `set_epoch`; it advances after a whole pass.

    Raises:
        BudgetTooSmall: The memory does not hold the smallest buffer.
        MissingColumn: The table lacks a column.
        RaggedRows: While iterating: a row of a list column has another length than the sampled rows.

    Example:
        >>> import corgipile as cp, pyarrow as pa
        >>> table = cp.open(pa.table({"x": pa.array(range(10), pa.int32())}))
        >>> loader = cp.Loader(table, batch_size=4, order="corgipile", seed=1)
        >>> [len(batch["x"]) for batch in loader], loader.epoch
        ([4, 4, 2], 1)
    """

    @init_takes(LoaderArguments)
    def __init__(self, given: LoaderArguments) -> None:
        table, selection = select(open_table(given.table), given, arrow=given.format == "arrow")
        self.drop_last, batch_size = given.drop_last, given.batch_size
        order: Any = given.order
        if given.global_batches is not None:
            order = given.order_of(table, selection)
            batch_size = order.batch_rows(Shard.checked(given.rank, given.world).world)
        self.batch_size = batch_size
        shard = Shard.checked(
            given.rank, given.world, disjoint=given.drop_last, worker=given.worker, workers=given.workers,
            batch=batch_size,
        )  # fmt: skip
        self.feeder = BufferedReader(
            table, selection, order=order, memory=given.memory, seed=given.seed, prefetch=given.prefetch, shard=shard,
            unbuffered=True, embed=given.sketch,
        )  # fmt: skip
        if (coarser := self.feeder.coarser) is not None:
            log.warning(coarser)
        self._selection, self._settings = selection, {**vars(given), "features": selection}
        del self._settings["table"]
        self._size = min(batch_size, max(1, self.feeder.visits(0)))
        self._unseen = False
        self._cut, self._source = cutter(given.format), self._make_source()
        self._pool = ArrayPool(REUSED_BATCHES)
        self._position: list[Place] = []
        self._lock, self._skips, self._left_out = OneThread(), Skips(given.skip), Skipped()
        self._whole_epoch: tuple[Rewind, int] | None = None
        self._skips.check(len(table))
        self.set_epoch(0)
        self._meter = Meter(0, 0, batch_size, 0, 0)
        self._meter.end(LoaderStats(0))

    def __len__(self) -> int:
        """Return the number of batches of the epoch; the same on every rank."""
        return self._total() - len(self._skipped().batches)

    def _total(self) -> int:
        rows = self.feeder.visits(self.epoch)
        return rows // self.batch_size if self.drop_last else -(-rows // self.batch_size)

    def _skipped(self) -> Skipped:
        """Return this worker's batches and rows of the epoch that ``skip`` leaves out."""
        skips, shard, epoch = self._skips, self.feeder.shard, self.epoch
        if not skips:
            return Skipped()
        totals = self._segment().totals(self.feeder.fitted, self.feeder.seed, epoch)
        rewind, first = self._whole_epoch or (self.rewind(), 0)
        return skips.of(rewind, epoch, totals, shard.rank, shard.worker, first)

    def __repr__(self) -> str:
        order, rows = self.order, self.batch_size
        return f"Loader({self.feeder.table!r}, batch_size={rows}, order={getattr(order, 'title', order.name)})"

    @property
    def order(self) -> Order:
        """Return the running order, with sizes in rows."""
        return self.feeder.order

    @property
    def encoding(self) -> Encoding | None:
        """Return the encoding of features and label, to pass as ``features=`` to a loader of another table."""
        return self._selection.encoding

    @property
    def classes(self) -> Any:
        """Return the label's classes by code, an array; None for numeric labels."""
        return self.encoding.classes if self.encoding else None

    @property
    def settings(self) -> dict[str, Any]:
        """Return the loader's arguments without the table, inferred features and widths included."""
        return dict(self._settings)

    @property
    def repeated(self) -> int:
        """Return the rows that all ranks together visit twice per epoch, so that their batch counts agree."""
        rows, world = len(self.feeder.table), self.feeder.shard.world
        rows = rows % self.order.rows if isinstance(self.order, GlobalBatches) else rows
        return 0 if self.drop_last else -(-rows // world) * world - rows

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration and end a running one."""
        self._lock.end()
        self._begin(epoch)

    def _begin(self, epoch: int) -> None:
        self.epoch, self._restored = whole(epoch, "epoch", 0, MAX_EPOCH), False
        self._step = self._offset = self._batches = self._delivered = 0
        self._position = []

    @closed_at_exit
    def __iter__(self) -> Iterator[Any]:
        """Yield the epoch's batches, or the remaining ones after `load_state_dict`."""
        return self._lock.take(self._run())

    def _run(self) -> Generator[Any, None, None]:
        if not self._restored:
            self._begin(self.epoch)
        if self.feeder.drop_buffer_if_wide():
            self._source = self._make_source()
        total, self._left_out = self._total(), self._skipped()
        self._position, self._delivered, self._restored = [], 0, False
        visits, read = self.feeder.visits(self.epoch), self.feeder.bytes_read
        meter = self._meter = Meter(self.epoch, self._batches, self.batch_size, visits, read)
        try:
            while self._batches < total:
                yield from self._yield_batches(total)
        finally:
            if self._meter is meter:
                meter.end(self.stats)
        self._begin(min(self.epoch + 1, MAX_EPOCH))

    def _yield_batches(self, total: int) -> Iterator[Any]:
        """Yield batches to the end, or until buffered rows exceed the budget: then drop the buffer."""
        rows = (total - self._batches) * self.batch_size
        try:
            for group in self._source.groups(self.epoch, self._step, self._offset, rows):
                yield from self._cut_group(group, total)
            if self._batches < total:
                raise StateMismatch(f"the epoch ended after {self._batches} of {total} batches: the state is wrong")
        except RaggedRows as error:
            raise RaggedRows(f"{error}; give widths={{}} to read lists of any length") from None
        except NullRow as error:
            raise error.first(self.feeder.table, features=self.encoding is not None) from None
        except Overfull:
            if not readable_alone(self.feeder.open_source(), self.feeder.columns):
                raise
            self.feeder.drop_buffer()
            self._source = self._make_source()

    @property
    def stats(self) -> LoaderStats:
        """Return statistics of the running or the last iteration; callable at any time.

        Example:
            >>> import corgipile as cp, pyarrow as pa
            >>> table = pa.table({"x": pa.array(range(1000), pa.int32())})
            >>> loader = cp.Loader(table, batch_size=100, order="full")
            >>> for batch in loader:
            ...     done = loader.stats.batches
            >>> done, loader.stats.rows, loader.stats.bytes_read, loader.stats.waited <= loader.stats.seconds
            (10, 1000, 4000, True)
        """
        feeder, source = self.feeder, self._source
        return self._meter.now(self._batches, feeder.bytes_read, feeder.row_bytes, source.resident, source.progress)

    def _make_source(self) -> BatchSource:
        arrow = self._settings["format"] == "arrow" or (self._unseen and not self.feeder.unbuffered)
        return (WideRows if self.feeder.unbuffered else BatchGatherer)(self.feeder, self._size, arrow=arrow)

    def _cut_group(self, group: Group, total: int) -> Iterator[Any]:
        """Cut a group into batches and keep the position after each."""
        self._position, self._delivered = group.places, 0
        columns, skipped_rows = self._selection.finish(group.columns, self._pool), self._left_out.rows
        for batch in cut_without(skipped_rows, self._batches, self._cut, columns, group.rows, self._size):
            self._batches += 1
            self._delivered = min(self._delivered + self._size, group.rows)
            if self._batches - 1 not in self._left_out.batches:
                yield self._selection.batch(batch)
            if self._batches == total:
                break
        self._step, self._offset = self._current_place()
        self._position, self._delivered = [], 0
        group.columns.clear()  # frees pooled arrays

    def skipping(self, skips: Skips, rewind: Rewind, first: int) -> None:
        """Skip steps and rows by their numbers in the whole epoch; this table is its rest from a step on."""
        self._skips, self._whole_epoch = skips, (rewind, first)

    @property
    def batches_done(self) -> int:
        """Return the number of the epoch's finished batches, skipped ones included."""
        return self._batches

    def rows_by(self, unseen: Unseen | None) -> None:
        """Pack variable-length rows as tensors for another process; None: return lists again."""
        changed, self._unseen = self._unseen != (unseen is not None), unseen is not None
        self._cut = cutter("torch", unseen)
        if changed and not self.feeder.unbuffered:
            self._source = self._make_source()

    def gather_ahead(self, make: Make | None) -> None:
        """Gather rows of later batches while one is in use, into arrays allocated by ``make``; None: on request."""
        if isinstance(self._source, BatchGatherer):
            self._source.gather_ahead(make)

    def gather_by(self, source: Callable[[BufferedReader, int, Selection], BatchSource]) -> None:
        """Let another source gather this loader's batches, made of its reader, batch size and selection."""
        self._source = source(self.feeder, self._size, self._selection)

    def _current_place(self) -> tuple[int, int]:
        """Return step and offset of the first undelivered row."""
        return position_after(self._position, self._delivered) or (self._step, self._offset)

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position as a small JSON dictionary; resuming from it reads no earlier rows."""
        feeder = self.feeder
        with self._lock:
            segment = self._segment()
            segment.batches[feeder.shard.worker] = self._batches
            place = Position(feeder.shard.rank, feeder.shard.worker, *self._current_place())
            part = {"epoch": self.epoch, "segments": [segment._asdict()], **place._asdict()}
        part |= {"skip": skips} if (skips := self._skips.state()) else {}
        return {**identity_of(feeder.table, feeder.requested_order, feeder.seed, self.encoding), **part}

    def _segment(self) -> EpochSegment:
        fitted, shard, last = self.feeder.fitted, self.feeder.shard, self.drop_last
        return EpochSegment.begin(fitted, self.batch_size, shard.world, shard.workers, drop_last=last)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state: the next iteration yields the remaining batches.

        Raises:
            StateMismatch: The state belongs to another table, order, seed, batch size, world or number of workers.
        """
        feeder = self.feeder
        identity = identity_of(feeder.table, feeder.requested_order, feeder.seed, self.encoding)
        segment, fitted = self._segment(), feeder.fitted
        epoch, batches, place = restore_part(state, identity, segment, feeder.shard.worker, fitted, feeder.seed)
        if batches > -(-feeder.visits(epoch) // self.batch_size):
            raise StateMismatch(f"state has no valid position: the epoch has fewer than {batches} batches")
        if place is not None and place[:2] == (feeder.shard.rank, feeder.shard.worker):
            self._set_position(epoch, batches, check_place(feeder, epoch, batches, self.batch_size, place))
        else:
            self._set_position(epoch, batches, find_place(feeder, epoch, batches, self.batch_size))
        self._skips.resume(state.get("skip", ()), len(feeder.table))

    def _set_position(self, epoch: int, batches: int, position: tuple[int, int]) -> None:
        self._lock.end()
        self.epoch, self._batches, (self._step, self._offset) = epoch, batches, position
        self._restored, self._position = True, []

    def seek(self, batches: int) -> None:
        """Make the next iteration continue the epoch after this many batches, without reading earlier rows.

        Raises:
            BadArgument: The epoch has fewer batches.
        """
        batches = whole(batches, "batches", 0, self._total())
        self._set_position(self.epoch, batches, find_place(self.feeder, self.epoch, batches, self.batch_size))

    def rewind(self) -> Rewind:
        """Return a `Rewind` that finds rows by steps and steps by rows, for many queries."""
        feeder = self.feeder
        order, rank = (feeder.order, feeder.blocks), feeder.shard.rank
        return Rewind(feeder.table, feeder.seed, self.epoch, [self._segment()], order, rank=rank)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.feeder.table, self._settings), self.state_dict()

    __setstate__ = load_state_dict

    def close(self) -> None:
        """Close files and threads; a later iteration is an error."""
        self._source.close()
        self.feeder.stop()  # ends a thread that is waiting
        with self._lock:
            self.feeder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _rebuild(table: Any, settings: dict[str, Any]) -> Loader:
    return Loader(table, **settings)
