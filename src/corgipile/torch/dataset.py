"""Tables as an IterableDataset for any DataLoader: any number of workers and ranks, resumable."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Self

from torch.utils.data import IterableDataset, get_worker_info

from corgipile.arguments import documented, init_takes
from corgipile.errors import BadArgument, StateMismatch
from corgipile.features import Encoding
from corgipile.loader.array_pool import Make
from corgipile.loader.budget import DEFAULT_MEMORY, sketched
from corgipile.loader.checkpoint import Part, checked, identity_of, segments_of
from corgipile.loader.options import Options
from corgipile.loader.rewind import Rewind, Visit
from corgipile.loader.select import select
from corgipile.loader.skips import Skips
from corgipile.loader.stats import LoaderStats
from corgipile.loader.stats import joined as joined_stats
from corgipile.orders import Auto, Order
from corgipile.sizes import MAX_EPOCH, Size, parse_bytes, whole
from corgipile.tables import Table
from corgipile.tables import open as open_table
from corgipile.tables.encoded import Unpacked, unpack_shared
from corgipile.tables.table import IntArray
from corgipile.torch.device_buffer import obstacle_of
from corgipile.torch.epochs import Epochs, Turn
from corgipile.torch.rank import RankFinder, dealt_by_accelerate
from corgipile.torch.worker import ProcessState, Settings, Source, WorkerIteration

__all__ = ["CorgiPileDataset"]


@dataclass(frozen=True, kw_only=True)
class DatasetArguments(Options):
    """Arguments of `CorgiPileDataset`.

    Attributes:
        path: A source for `corgipile.open`: a path, a glob, a list, a table.
        block_index_path: Index file of a format that has one.
        batch_size: Rows of a batch; None to yield rows. ``skip`` and ``global_batches`` need batches.
        transform: Called in the worker with each batch or row; its result is yielded instead.
            Images of a folder come as their files' bytes; `corgipile.tables.decode_image` belongs here.
        rank: Rank of this process among ``world``; looked up by default.
    """

    path: Any = field(kw_only=False)
    block_index_path: Any = field(default=None, kw_only=False)
    memory: Size | None = "64MB"
    transform: Callable[[Any], Any] | None = None


@documented(DatasetArguments)
class CorgiPileDataset(IterableDataset[Any]):
    """Yields the batches of a table, in any order, within a memory budget.

    With ``batch_size`` it yields whole batches, dictionaries of tensors, for ``DataLoader(dataset, batch_size=None)``.
    This is the fast way: rows are gathered natively and never collated. Without it, it yields rows for
    ``DataLoader(dataset, batch_size=...)``: each worker batches its own rows, and its last batch may be short. Threads
    read rows ahead, so use workers only for transforms that cost more than passing batches between processes. Give
    ``batch_size`` here then, since ``len`` of the DataLoader assumes one worker.

    Ranks and workers share each epoch by the seed alone. Every rank yields the same number of batches, and only the
    last can be short. Where rows do not divide, fewer than ``world`` rows are visited twice, or left out with
    ``drop_last``. If there are fewer rows than ranks, each row is visited by ``world / rows`` ranks, rounded down or
    up. (A reservoir visits some rows twice, fewer of them where workers share the rows.)

    Rank and world are looked up when an iteration begins: the arguments first, then ``torch.distributed``, then RANK
    and WORLD_SIZE. Lightning needs nothing else. Accelerate and the Hugging Face Trainer would share the epoch again,
    which is an error: build a ``DataLoaderShard`` instead of calling ``prepare``, or give ``rank=0, world=1`` and
    let them share the rows. docs/frameworks.md has the lines for each.

    An iteration runs the epoch set by `set_epoch`, first 0; each later one runs the next epoch, even if the one before
    was abandoned. Workers, persistent ones too, read it from shared memory.

    Raises:
        BudgetTooSmall: The memory does not hold the smallest buffer that works.
        MissingColumn: The table lacks a named column.

    Example:
        >>> import pyarrow as pa
        >>> from torch.utils.data import DataLoader
        >>> dataset = CorgiPileDataset(pa.table({"x": [float(i) for i in range(10)]}), batch_size=4, seed=1)
        >>> [len(batch["x"]) for batch in DataLoader(dataset, batch_size=None)], dataset.epoch
        ([4, 4, 2], 0)
    """

    @init_takes(DatasetArguments)
    def __init__(self, given: DatasetArguments) -> None:
        options = {} if given.block_index_path is None else {"index": given.block_index_path}
        self.table, selection = select(open_table(given.path, **options), given)
        self._settings = Settings(self.table, given.reading, Auto(), selection, given.transform, Skips(given.skip))
        self._settings.skips.check(len(self.table))
        self._check_skips()
        self._places, self._epochs = RankFinder(given.rank, given.world), Epochs()
        self._kept = ProcessState()
        self._fit(self.table, given.memory)

    def _fit(self, table: Table, memory: Size | None) -> None:
        """Choose the order for a budget, and read what all workers and epochs share of a table with the same rows."""
        reading = replace(self._settings.reading, memory=memory)
        order = reading.order_of(self.table, self._settings.selection)
        self._settings = settings = replace(self._settings, table=table, reading=reading, order=order)
        self._lengths: dict[tuple[int, ...], int] = {}
        self._identity = identity_of(self.table, order, reading.seed, settings.selection.encoding)
        fitted = settings.fitted(table, 1)  # raises errors of columns and memory early
        if fitted.way.spilled:
            unpack_shared(table, fitted.sources, self.memory)  # once, for all workers and epochs
        content = settings.content(unpacked=fitted.way.spilled)
        sketched(table, fitted.order, fitted.blocks, content)  # likewise read once

    def __repr__(self) -> str:
        order = getattr(self.order, "title", self.order.name)
        return f"CorgiPileDataset({self.table!r}, batch_size={self._settings.reading.batch_size}, order={order})"

    @property
    def order(self) -> Order:
        """Return the order that runs, with its sizes as given."""
        return self._settings.order

    @property
    def memory(self) -> int:
        """Return the bytes for rows in memory."""
        memory = self._settings.reading.memory
        return DEFAULT_MEMORY if memory is None else parse_bytes(memory, whole=self.table.nbytes)

    @property
    def encoding(self) -> Encoding | None:
        """Return how columns become features and label; pass it as ``features=`` of another dataset."""
        return self._settings.selection.encoding

    @property
    def classes(self) -> Any:
        """Return an array of the label's classes by code, or None for a numeric label."""
        return self.encoding.classes if self.encoding else None

    @property
    def epoch(self) -> int:
        """Return the epoch of the latest iteration, or of the next one if none began since `set_epoch`."""
        turn = self._epochs.latest()
        return turn.epoch if turn else self._epochs.planned()[0]

    @property
    def stats(self) -> LoaderStats | None:
        """Return statistics of the latest iteration, see `corgipile.Loader.stats`; None before the first.

        Without ``batch_size`` a row counts as a batch. DataLoader workers report a few times a second: counts are
        summed, the time runs from the first worker's start, and waits are averaged.
        """
        turn, loader = self._epochs.latest(), self._kept.latest
        if turn is not None and turn.workers:
            reports = self._epochs.reported(turn)
            return joined_stats(reports) if reports else None
        return None if turn is None or loader is None else loader.stats

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration run this epoch: from its beginning, or from a state of it that was just loaded.

        Raises:
            BadArgument: The epoch is invalid, or a loader of Accelerate would share the epoch a second time.
        """
        epoch = whole(epoch, "epoch", 0, MAX_EPOCH)
        if self._places.find().world > 1 and dealt_by_accelerate(self):  # Accelerate sets each epoch
            raise BadArgument(
                "Accelerate would share the epoch among ranks a second time and leave out rows: use "
                "accelerate.data_loader.DataLoaderShard(dataset, device=accelerator.device, batch_size=None) without "
                "prepare, or let Accelerate share the rows of CorgiPileDataset(..., rank=0, world=1)"
            )
        if self._epochs.latest() is not None or self._epochs.planned()[0] != epoch:
            self._epochs.set(epoch, [])

    def __len__(self) -> int:
        """Return the batches of this rank in a whole epoch, or its rows without ``batch_size``.

        A DataLoader divides rows by its own ``batch_size``. With workers it yields up to one more batch for each, since
        each ends with a short one, so the DataLoader's length is too small. With ``batch_size`` here it is right.
        """
        turn, place, skips = self._epochs.latest(), self._places.find(), self._settings.skips
        workers, epoch = max(1, turn.workers if turn else 0), self.epoch if skips else 0
        known = (epoch, place.world, workers, len(skips.state()))
        if known not in self._lengths:
            part = self._settings.part(epoch, [], place.world, workers)
            self._lengths = {known: sum(part.totals) - sum(map(len, self._settings.lost(part, place.rank)))}
        return self._lengths[known]

    def __iter__(self) -> WorkerIteration:
        """Begin an iteration: over all batches, or after `load_state_dict` over the remaining ones."""
        return WorkerIteration(self._settings, self._identity, self._epochs, self._places, self._kept)

    def state_dict(self, batches: int | None = None, batch_size: int = 1) -> dict[str, Any]:
        """Return the position of the latest iteration: a small dictionary for JSON, the same on every rank.

        Args:
            batches: Batches that the training loop got from this iteration, in order. Workers and a `DeviceLoader` run
                ahead of the loop, so they require it. Without it the yielded batches count, but a loader of Accelerate
                is one ahead.
            batch_size: Rows per batch, where the DataLoader makes them.

        Raises:
            BadArgument: ``batches`` is required, or exceeds the epoch's batches.
        """
        if get_worker_info() is not None:
            return {}
        turn, settings = self._epochs.latest(), self._settings
        identity = {**self._identity, **({"skip": settings.skips.state()} if settings.skips else {})}
        if turn is None:
            epoch, segments = self._epochs.planned()
            return {**identity, "epoch": epoch, "segments": segments}
        if turn.begins < 0:
            raise BadArgument("this iteration continues a state of StatefulDataLoader: call its state_dict()")
        if batches is None and (turn.workers or turn == self._kept.ahead):
            who = "workers run" if turn.workers else "a DeviceLoader, which has its own state_dict(), runs"
            raise BadArgument(f"{who} ahead of the training loop: call state_dict(batches=...)")
        part = self._part(turn)
        if batches is None:
            done = part.segment.batches
        else:
            done = part.after(batches, batch_size, settings.lost(part, self._places.find().rank))
        return {**identity, **part.standing(done)}

    def fitted_to(self, device_memory: int) -> Self:
        """Return a copy whose order fits a device's memory for rows; both share epochs, position and skips.

        Raises:
            BadArgument: The batches cannot be gathered on a device; the message names the obstacle.
        """
        settings, own = self._settings, type(self).__iter__ is not CorgiPileDataset.__iter__
        if (obstacle := f"{type(self).__name__} overrides __iter__" if own else obstacle_of(settings)) is not None:
            raise BadArgument(f"device_memory must be 0 here: {obstacle}")
        table, sources = self.table, settings.selection.columns_in(self.table).sources
        if table.units(sources) is not None:
            balance = [name for name in table.schema.names if name == settings.order.sketch_column]
            table = Unpacked(table, [*sources, *balance], self.memory)
        fitted = copy(self)
        fitted._fit(table, device_memory)  # noqa: SLF001 - of the copy
        return fitted

    def run_ahead(self, make: Make, source: Source | None = None) -> None:
        """Mark the latest iteration as ahead of the training loop, so that `state_dict` requires ``batches``.

        Args:
            make: Allocates the arrays of its batches from a shape and type, where no worker makes them.
            source: Makes the source that gathers its batches instead, see `corgipile.Loader.gather_by`.
        """
        self._kept.ahead, self._kept.make, self._kept.source = self._epochs.latest(), make, source

    def release(self, source: Source) -> None:
        """Free the memory of a source that no `DeviceLoader` uses any more."""
        self._kept.release(source)

    def rows_of(
        self, step: int, *, rank: int | None = None, epoch: int | None = None, workers: int | None = None
    ) -> IntArray:
        """Return the row numbers in a batch of an epoch, int64[rows], without reading rows.

        Args:
            step: Step of the epoch from 0, as a DataLoader yields batches; without ``batch_size``, rows.
            rank: The rank; None: this process's.
            epoch: The epoch; None: that of the latest iteration, or the next one.
            workers: Workers of the DataLoader; None: those of the latest iteration, or no workers.

        Raises:
            BadArgument: The step or rank is out of range.
        """
        return self.rewind(workers).rows_of(step, rank=rank, epoch=epoch)

    def visits_of(self, rows: int | IntArray, *, epoch: int | None = None, workers: int | None = None) -> list[Visit]:
        """Return the visits of rows in an epoch, on all ranks: see `corgipile.loader.Rewind`."""
        return self.rewind(workers).visits_of(rows, epoch=epoch)

    def visit_of(self, row: int, *, epoch: int | None = None, workers: int | None = None) -> Visit | None:
        """Return a row's first visit in an epoch; None if it is left out (``drop_last``)."""
        return next(iter(self.visits_of(row, epoch=epoch, workers=workers)), None)

    def rewind(self, workers: int | None = None) -> Rewind:
        """Return a lookup from steps to rows and back, for many queries."""
        turn = self._epochs.latest()
        if turn is not None and turn.begins < 0:
            raise BadArgument("this iteration continues a state of StatefulDataLoader: load its state into the dataset")
        if turn is not None and workers in (None, turn.workers):
            part = self._part(turn)
        else:
            epoch, segments = self._epochs.planned()
            world = self._places.find().world
            part = self._settings.part(epoch, segments_of(segments), world, max(1, whole(workers or 0, "workers", 0)))
        return self._settings.rewind(part, self._places.find().rank)

    def _part(self, turn: Turn) -> Part:
        """Return the part that an iteration runs; computed here where workers run it."""
        process = self._kept
        if process.turn != turn or process.part is None:
            segments = segments_of(self._epochs.planned()[1]) if turn.begins else []
            process.part = self._settings.part(turn.epoch, segments, self._places.find().world, max(1, turn.workers))
            process.turn = turn
        return process.part

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of this dataset, or of a StatefulDataLoader over it.

        With the ranks, workers, memory and batch size of the state, the next iteration yields exactly the remaining
        batches. With others it yields each unvisited row once, except rows that an order visits twice or that ranks
        repeat or drop. Later epochs are whole.

        Raises:
            StateMismatch: The state belongs to another table, order or seed.
        """
        if get_worker_info() is None:
            try:
                state = joined(state)
            except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
                raise StateMismatch(f"state must be of a StatefulDataLoader over this dataset: {error!r}") from None
            epoch, segments = checked(state, self._identity)
            self._resume(state.get("skip", ()))
            self._epochs.set(epoch, [segment._asdict() for segment in segments])

    def _resume(self, skipped: Any) -> None:
        """Apply the skips of a state, too."""
        skips, turn = self._settings.skips, self._epochs.latest()
        before = skips.state()
        skips.resume(skipped, len(self.table))
        self._check_skips()
        if turn and turn.workers and skips.state() != before:
            raise StateMismatch("the state's skip cannot reach workers that may still run: give skip= to the dataset")

    def _check_skips(self) -> None:
        if self._settings.skips and self._settings.reading.batch_size is None:
            raise BadArgument("skip needs batches made by the dataset: give batch_size")


def joined(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert the state of a StatefulDataLoader over a dataset to the dataset's state."""
    if "_snapshot" in state:
        if state["_steps_since_snapshot"]:
            raise StateMismatch("a state for other workers must be taken at a snapshot: use snapshot_every_n_steps=1")
        workers = state["_snapshot"]["_worker_snapshots"].values()
    elif "fetcher_state" in state:
        workers = [state]
    else:
        return state
    states = [worker["fetcher_state"]["dataset_iter_state"] for worker in workers]
    last = states[0]["segments"][-1]
    done = dict(sorted((one["worker"], one["segments"][-1]["batches"][one["worker"]]) for one in states))
    if state["_iterator_finished"]:
        return {**states[0], "epoch": states[0]["epoch"] + 1, "segments": []}
    segments = [*states[0]["segments"][:-1], {**last, "batches": list(done.values())}]
    return {**states[0], "segments": segments}
