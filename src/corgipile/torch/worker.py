"""One worker's iteration over a dataset: its batches and its position."""

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, cast

from torch.utils.data import get_worker_info
from torch.utils.data._utils.collate import default_convert
from torch.utils.data._utils.fetch import _BaseDatasetFetcher

from corgipile.errors import FetchFailed, StateMismatch
from corgipile.loader import Loader
from corgipile.loader.array_pool import Make
from corgipile.loader.batches import Unseen
from corgipile.loader.budget import Fitted, fit, sketched
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.loader.checkpoint import Part, checked, go_on, segments_of
from corgipile.loader.content import Content
from corgipile.loader.default_order import LABEL
from corgipile.loader.groups import BatchSource
from corgipile.loader.one_thread import OneThread
from corgipile.loader.options import ReadOptions
from corgipile.loader.rewind import Rewind
from corgipile.loader.segments import EpochSegment, next_worker
from corgipile.loader.selection import Selection
from corgipile.loader.skips import Skips
from corgipile.orders import GlobalBatches, Order
from corgipile.orders.riffle import CONTENT
from corgipile.tables import Table
from corgipile.torch.epochs import ALONE, Epochs, Turn
from corgipile.torch.rank import RankFinder
from corgipile.torch.shared_memory import Column, PackedRows, Split, share_tensors

__all__ = ["ProcessState", "Settings", "WorkerIteration"]

REPORT_SECONDS = 0.05  # seconds between two reports of a worker


Source = Callable[[BufferedReader, int, Selection], BatchSource]


@dataclass(frozen=True, eq=False)
class Settings:
    """Values that a dataset shares with its workers; ``order`` is the one that runs, ``reading`` as given."""

    table: Table
    reading: ReadOptions
    order: Order
    selection: Selection
    transform: Callable[[Any], Any] | None = None
    skips: Skips = field(default_factory=Skips)

    def unit(self, world: int) -> int:
        """Return the rows that each of ``world`` ranks yields at a time."""
        return self.order.batch_rows(world) if isinstance(self.order, GlobalBatches) else self.reading.batch_size or 1

    def loader(self, table: Table, rank: int, world: int, worker: int, workers: int) -> Loader:
        """Return the loader of one worker."""
        share = replace(
            self.reading, order=self.order, batch_size=self.unit(world), rank=rank, world=world, skip=(),
            global_batches=None,
        )  # fmt: skip
        return Loader(table, **vars(share), features=self.selection, format="torch", worker=worker, workers=workers)

    def fitted(self, table: Table, workers: int) -> Fitted:
        """Fit the order to a table, for one of ``workers`` workers."""
        return fit(table, self.order, self.reading.memory, self.selection.columns_in(table), workers)

    def content(self, *, unpacked: bool = False) -> Content:
        """Return the reader of blocks' content vectors."""
        sources, label = self.selection.columns_in(self.table).sources, self.selection.label
        return Content(tuple(sources), LABEL if label is None else label, self.reading.sketch, unpacked)

    def part(self, epoch: int, segments: Sequence[EpochSegment], world: int, workers: int) -> Part:
        """Continue an epoch after its finished segments."""

        def begin(table: Table) -> tuple[EpochSegment, Fitted]:
            fitted = self.fitted(table, workers)
            if fitted.order.sketch_column == CONTENT:  # a state records the vectors of its blocks
                content = self.content(unpacked=fitted.way.spilled)
                fitted = fitted._replace(blocks=sketched(table, fitted.order, fitted.blocks, content))
            return EpochSegment.begin(
                fitted, self.unit(world), world, workers, drop_last=self.reading.drop_last
            ), fitted

        return go_on(self.table, self.reading.seed, epoch, segments, begin, self.content())

    def rewind(self, part: Part, rank: int) -> Rewind:
        """Return the lookup from steps of an epoch to rows."""
        segments = [*part.before, part.segment]
        return Rewind(self.table, self.reading.seed, part.epoch, segments, look=self.content(), rank=rank)

    def lost(self, part: Part, rank: int) -> list[frozenset[int]]:
        """Return the batches that each worker leaves out."""
        if not self.skips:
            return [frozenset()] * len(part.totals)
        rewind = self.rewind(part, rank)
        skips = (self.skips.of(rewind, part.epoch, part.totals, rank, at, part.first) for at in range(len(part.totals)))
        return [part_skips.batches for part_skips in skips]


@dataclass
class ProcessState:
    """State that a process carries between iterations.

    Attributes:
        began: Number of iterations begun.
        turn: The last iteration.
        ahead: An iteration without workers that runs ahead of the training loop.
        make: Allocates the arrays of the batches of ``ahead``.
        source: Makes the source of the batches of ``ahead``; None: they are gathered from the host's buffer.
        part: The part that the last iteration runs.
        latest: The loader of the last iteration.
        latest_by: The source of its batches.
        loader: The loader of whole epochs.
        loader_of: Process, rank, world, worker, workers and settings of ``loader``, and the source of its batches.
        turns: Rejects concurrent iteration by two threads.
    """

    began: int = 0
    turn: Turn | None = None
    ahead: Turn | None = None
    make: Make | None = None
    source: Source | None = None
    part: Part | None = None
    latest: Loader | None = None
    latest_by: Source | None = None
    loader: Loader | None = None
    loader_of: tuple[Any, ...] = ()
    turns: OneThread = field(default_factory=OneThread)

    def release(self, source: Source) -> None:
        """Close the loader of the last iteration if its batches come from this source."""
        if self.latest is not None and self.latest_by is source:
            self.latest.close()
            self.loader = None

    def __reduce__(self) -> tuple[type["ProcessState"], tuple[()]]:
        return ProcessState, ()


class WorkerIteration:
    """Iterator over the batches of one worker; torchdata stores its state."""

    def __init__(
        self, settings: Settings, identity: Mapping[str, Any], epochs: Epochs, places: RankFinder, kept: ProcessState
    ) -> None:
        self._settings, self._identity, self._epochs, self._kept = settings, identity, epochs, kept
        self._rank, self._world = places.find()
        info = get_worker_info()
        self._cell, self._worker, self._workers = (info.id, info.id, info.num_workers) if info else (ALONE, 0, 1)
        if info:
            turn = epochs.begin(info.id, info.num_workers, info.seed - info.id, kept.began, _process() - info.id)
            share_tensors()
        else:
            turn = epochs.begin()
        kept.began += 1
        self._go(turn, segments_of(epochs.planned()[1]) if turn.begins == 1 else [])
        done = self._part.segment.batches
        self._worker = (self._worker + next_worker(done, self._part.totals)) % self._workers

    def _go(self, turn: Turn, segments: list[EpochSegment]) -> None:
        self._part = self._settings.part(turn.epoch, segments, self._world, self._workers)
        self._turn = self._kept.turn = turn
        self._kept.part = self._part
        self._batches: Iterator[Any] | None = None

    def __iter__(self) -> "WorkerIteration":
        return self

    def __next__(self) -> Any:
        with self._kept.turns:
            if self._batches is None:
                packed = _is_sent(sys._getframe(1))  # noqa: SLF001 - depends on the caller
                self._batches = copy(self)._run(packed=packed)  # noqa: SLF001 - a generator of self would be a cycle
            return next(self._batches)

    def _run(self, *, packed: bool) -> Iterator[Any]:
        part, transform, worker = self._part, self._settings.transform, self._worker
        done, rows = part.segment.batches, self._settings.reading.batch_size is None
        loader = self._kept.latest = self._loader(part)
        self._kept.latest_by = self._source()
        loader.rows_by(Unseen(Split, Column) if packed and transform is None and not rows else None)
        if self._source() is None:
            loader.gather_ahead(self._kept.make if self._kept.ahead == self._turn else None)
        loader.set_epoch(part.epoch)
        if skips := self._settings.skips:
            loader.skipping(skips, self._settings.rewind(part, self._rank), part.first)
        loader.seek(done[worker])
        reported = -REPORT_SECONDS
        for batch in loader:
            result = _row(batch) if rows else batch
            result = result if transform is None else self._transformed(result, loader.batches_done - 1)
            done[worker] = loader.batches_done  # excludes a batch whose transform fails
            result = _packed(result) if packed else result
            del batch  # release it before the next one is made
            if (now := time.monotonic()) > reported + REPORT_SECONDS:
                reported = now
                self._report(loader)
            yield result
            del result
        self._report(loader)
        done[worker] = part.totals[worker]

    def _transformed(self, result: Any, number: int) -> Any:
        """Transform a batch or row; raise FetchFailed, which names the rows, for an error or None."""
        try:
            if (transformed := cast("Any", self._settings.transform)(result)) is None:
                raise ValueError("it returned None; return the batch to yield")  # noqa: TRY301 - as what it raises
        except Exception as error:
            named = self._settings.rewind(self._part, self._rank).describe_batch(self._worker, number)
            raise FetchFailed(f"transform failed on {named}: {type(error).__name__}: {error}") from error
        return transformed

    def _report(self, loader: Loader) -> None:
        """Report a worker's statistics to the main process."""
        if self._cell != ALONE:
            self._epochs.report(self._cell, self._turn, loader.stats)

    def _source(self) -> Source | None:
        return self._kept.source if self._kept.ahead == self._turn else None

    def _loader(self, part: Part) -> Loader:
        """Return the loader of a part; whole epochs in a row share one."""
        place, source, process = (self._rank, self._world, self._worker, self._workers), self._source(), self._kept
        known = (os.getpid(), *place, source, self._settings)
        if part.before or process.loader is None or process.loader_of != known:
            process.loader = None  # frees its buffer first
            loader = self._settings.loader(part.table, *place)
            if source is not None:
                loader.gather_by(source)
            if part.before:
                return loader
            process.loader, process.loader_of = loader, known
        return process.loader

    def state_dict(self) -> dict[str, Any]:
        """Return this worker's position; torchdata joins it with the others'."""
        skip = {"skip": self._settings.skips.state()} if self._settings.skips else {}
        return {**self._identity, **self._part.state(self._part.segment.batches), "worker": self._worker, **skip}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a worker's position; the following iteration runs the next epoch.

        Raises:
            StateMismatch: The state belongs to another table, order or seed, or to other workers.
        """
        epoch, segments = checked(state, self._identity)
        self._settings.skips.resume(state.get("skip", ()), len(self._settings.table))
        turn = self._turn._replace(epoch=epoch, begins=self._turn.begins if self._cell == ALONE else -1)
        self._epochs.note(self._cell, turn)
        self._go(turn, segments)
        self._worker = state.get("worker", 0)
        if len(self._part.before) >= len(segments) or self._worker not in range(self._workers):
            raise StateMismatch(
                f"worker {self._cell} of {self._workers} in a world of {self._world} cannot continue where worker "
                f"{self._worker} stopped: workers, ranks, memory or batch size changed; load the state into the "
                "dataset instead"
            )


def _row(batch: Any) -> Any:
    """Return the single row of a batch."""
    return (
        tuple(values[0] for values in batch) if type(batch) is tuple else {k: values[0] for k, values in batch.items()}
    )


def _packed(result: Any) -> Any:
    """Pack lists so that a worker sends few tensors."""
    if type(result) is not dict:
        return result
    return {name: PackedRows(value) if type(value) is list else value for name, value in result.items()}


def _is_sent(caller: FrameType) -> bool:
    """Return whether a worker sends its result unchanged to the user.

    The caller may be user code (another dataset, a subclass, a collate function), which gets lists and tensors.
    """
    fetcher = caller.f_locals.get("self") if get_worker_info() else None
    return isinstance(fetcher, _BaseDatasetFetcher) and fetcher.collate_fn is default_convert


def _process() -> int:
    """Return how many processes the parent had started when it started this one."""
    return multiprocessing.current_process()._identity[-1]  # noqa: SLF001  # the public name can be changed
