"""Tables as an IterableDataset: for any DataLoader, with any workers, on any number of ranks, resumable."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from torch.utils.data import IterableDataset, get_worker_info

from corgipile.errors import BadArgument, StateMismatch
from corgipile.features import Encoding
from corgipile.features.fit import Encode, Features, Missing
from corgipile.loader.array_pool import Make
from corgipile.loader.budget import first_epoch_of, sketched
from corgipile.loader.buffered_reader import MOST_PREFETCH
from corgipile.loader.checkpoint import Part, checked, identity_of, segments_of
from corgipile.loader.content import Embed
from corgipile.loader.default_order import Reading, chosen, fixed
from corgipile.loader.rewind import Rewind, Visit
from corgipile.loader.selection import select
from corgipile.loader.skips import Skips
from corgipile.loader.stats import LoaderStats
from corgipile.loader.stats import joined as joined_stats
from corgipile.orders import Order
from corgipile.sizes import MOST_EPOCH, Size, whole
from corgipile.tables import open as open_table
from corgipile.tables.encoded import unpack_shared
from corgipile.tables.table import IntArray
from corgipile.torch.epochs import Epochs, Turn
from corgipile.torch.rank import RankFinder, dealt_by_accelerate
from corgipile.torch.worker import Kept, Settings, WorkerIteration

__all__ = ["CorgiPileDataset"]


class CorgiPileDataset(IterableDataset[Any]):
    """Yields the batches of a table, in any order, within a memory budget.

    With ``batch_size`` it yields whole batches, dictionaries of tensors, for ``DataLoader(dataset, batch_size=None)``:
    this is the fast way, since rows are gathered natively and never collated. Without it yields rows, for
    ``DataLoader(dataset, batch_size=...)``; then each worker makes batches of its own rows, of which the last may be
    short. Rows are read ahead by threads, so workers are for transforms that cost more than passing batches between
    processes; give ``batch_size`` here then, since ``len`` of the DataLoader takes rows for those of one worker.

    Ranks and workers share each epoch by the seed alone. Every rank yields the same number of batches, of which only
    the last can be short; where rows do not divide, fewer than ``world`` are visited twice, or left out with
    ``drop_last``; of fewer rows than ranks, each by ``world / rows`` ranks, rounded down or up. (A reservoir visits
    some rows twice, fewer of them where workers share the rows.)

    Rank and world are found when an iteration begins: those given, else of ``torch.distributed``, else
    of RANK and WORLD_SIZE; Lightning leaves it at that. Accelerate, and the Trainer of Hugging Face, would share it a
    second time, which is refused: make a ``DataLoaderShard`` instead of calling ``prepare``, or give
    ``rank=0, world=1`` and let them share it. The lines for each are in docs/frameworks.md.

    An iteration runs the epoch that `set_epoch` said, first 0; each one after it runs the next, also where the one
    before was left early. Workers learn it through shared memory, persistent ones too.

    Args:
        path: What `corgipile.open` takes: a path, a glob, a list, a table.
        block_index_path: Index file of a format that has one.
        order: An order of `corgipile.orders`, or its name; ``"auto"`` is Riffle, balanced by the column "label" if that
            can be read without the rows, or by content, as of `corgipile.Loader` (``dataset.order`` tells).
        memory: Rows in memory at most, in all workers of a rank together; an order's own ``buffer`` is shared
            likewise.
        batch_size: Rows of a batch; None to yield rows.
        transform: Called with what is to be yielded, in the worker; what it returns is yielded instead.
            Images of a folder come as their files' bytes; `corgipile.tables.decode_image` belongs here.
        columns: Columns to read; None for all.
        seed: Seed of all epochs.
        drop_last: Drop a rank's last batch if it is short.
        rank: This process of ``world``, if it is not to be found out.
        world: Number of processes that share each epoch.
        prefetch: Steps read ahead by threads.
        widths: Row lengths of list columns that become tensors of (rows, length), see `corgipile.Loader`; ``{}`` for
            none: each row is then a tensor of its own.
        features: Columns that are one tensor of (rows, features); this and the arguments that follow are those of
            `corgipile.Loader`. What must be found out of the table is found out here, once for all workers.
        label: The column that batches have as "label".
        encode: What feature columns that are no numbers become.
        missing: What stands for null and NaN in features.
        classes: The classes of the label, in the order of their codes.
        dtype: Number type of features that are scalar columns.
        as_tuple: Yield pairs of features and label.
        sketch: A function for ``balance="content"``, as of `corgipile.Loader`; workers need the same vectors of it.
        skip: Steps and rows that are left out, as of `corgipile.Loader`; it needs ``batch_size``. States keep it.
        global_batches: ``"fixed"``: batch i of all ranks together holds the same rows, whatever the number of ranks
            and workers, and so does each after it when a state goes on in another world. ``batch_size``, ``memory`` and
            the sizes of the order are then those of all ranks together, of which each has its share.

    Raises:
        BudgetTooSmall: The memory does not hold the smallest buffer that works.
        MissingColumn: The table has no such column.

    Example:
        >>> import pyarrow as pa
        >>> from torch.utils.data import DataLoader
        >>> dataset = CorgiPileDataset(pa.table({"x": [float(i) for i in range(10)]}), batch_size=4, seed=1)
        >>> [len(batch["x"]) for batch in DataLoader(dataset, batch_size=None)], dataset.epoch
        ([4, 4, 2], 0)
    """

    def __init__(
        self,
        path: Any,
        block_index_path: Any = None,
        *,
        order: Order | str = "auto",
        memory: Size | None = "64MB",
        batch_size: int | None = None,
        transform: Callable[[Any], Any] | None = None,
        columns: Sequence[str] | None = None,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world: int | None = None,
        prefetch: int = 1,
        widths: Mapping[str, int] | None = None,
        features: Features = None,
        label: str | None = None,
        encode: Encode = None,
        missing: Missing = "error",
        classes: Sequence[Any] | None = None,
        dtype: str = "float32",
        as_tuple: bool = False,
        sketch: Embed | None = None,
        skip: Iterable[int | Sequence[int]] = (),
        global_batches: Literal["fixed"] | None = None,
    ) -> None:
        batch_size = None if batch_size is None else whole(batch_size, "batch_size", 1)
        seed, prefetch = whole(seed, "seed"), whole(prefetch, "prefetch", 0, MOST_PREFETCH)
        options = {} if block_index_path is None else {"index": block_index_path}
        self.table, selection = select(
            open_table(path, **options), columns, widths, features, label, encode=encode, missing=missing,
            classes=classes, dtype=dtype, as_tuple=as_tuple, memory=memory,
        )  # fmt: skip
        reading = Reading(selection.found(self.table), memory) if sketch is None else None
        found = chosen(order, self.table, label, batch_size or 0, reading)
        if first_epoch_of(found) is not None:
            raise BadArgument("first_epoch is for train and Loader: a dataset looks at blocks before the first epoch")
        runs: Order = replace(found, ahead=prefetch)  # type: ignore[type-var]
        if global_batches is not None:
            runs = fixed(global_batches, runs, batch_size)
        self._settings = Settings(
            self.table, runs, memory, batch_size, selection, seed, drop_last, prefetch, transform, sketch, Skips(skip)
        )
        self._settings.skips.check(len(self.table))
        self._check_skips()
        self._lengths: dict[tuple[int, ...], int] = {}
        self._places, self._epochs, self._kept = RankFinder(rank, world), Epochs(), Kept()
        self._identity = identity_of(self.table, self._settings.order, seed, selection.encoding)
        fitted = self._settings.fitted(self.table, 1)  # what is wrong with columns or memory is said now
        if fitted.way.spilled:
            unpack_shared(self.table, fitted.sources)  # once, for the workers of all epochs
        content = self._settings.content(unpacked=fitted.way.spilled)
        sketched(self.table, fitted.order, fitted.blocks, content)  # read once, for them too

    def __repr__(self) -> str:
        order = getattr(self.order, "title", self.order.name)
        return f"CorgiPileDataset({self.table!r}, batch_size={self._settings.batch_size}, order={order})"

    @property
    def order(self) -> Order:
        """Return the order that runs, its sizes as they were given."""
        return self._settings.order

    @property
    def encoding(self) -> Encoding | None:
        """Return how columns become features and label: ``features=`` of another dataset takes it."""
        return self._settings.selection.encoding

    @property
    def classes(self) -> Any:
        """Return the classes of the label by their codes, an array; None where it is numbers."""
        return self.encoding.classes if self.encoding else None

    @property
    def epoch(self) -> int:
        """Return the epoch of the latest iteration, or of the next one where none began since it was set."""
        turn = self._epochs.latest()
        return turn.epoch if turn else self._epochs.planned()[0]

    @property
    def stats(self) -> LoaderStats | None:
        """Return how the latest iteration is doing, see `corgipile.Loader.stats`.

        Without ``batch_size`` a row counts as a batch. None before the first. Where workers of a DataLoader run it they
        say so some times a second, of batches that they have made: it is their sum, the time of the one that began
        first, and how long one waited on average.
        """
        turn, loader = self._epochs.latest(), self._kept.latest
        if turn is not None and turn.workers:
            found = self._epochs.told(turn)
            return joined_stats(found) if found else None
        return None if turn is None or loader is None else loader.stats

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration run this epoch: from its beginning, or from a state of it that was just loaded.

        Raises:
            BadArgument: It is no epoch, or a loader of Accelerate that would share the epoch a second time says it.
        """
        epoch = whole(epoch, "epoch", 0, MOST_EPOCH)
        if self._places.find().world > 1 and dealt_by_accelerate(self):  # which sets the epoch of each iteration
            raise BadArgument(
                "Accelerate would share among the ranks what is shared already, and rows would be left out: use "
                "accelerate.data_loader.DataLoaderShard(dataset, device=accelerator.device, batch_size=None) without "
                "prepare, or let Accelerate share the rows of CorgiPileDataset(..., rank=0, world=1)"
            )
        if self._epochs.latest() is not None or self._epochs.planned()[0] != epoch:
            self._epochs.set(epoch, [])

    def __len__(self) -> int:
        """Return what this rank yields in a whole epoch: batches, or rows without ``batch_size``.

        A DataLoader divides rows by its own ``batch_size``; with workers it yields up to one batch more for each, as
        each ends with a short one, and the length of the DataLoader is too small. With ``batch_size`` here it is right.
        """
        turn, place, skips = self._epochs.latest(), self._places.find(), self._settings.skips
        workers, epoch = max(1, turn.workers if turn else 0), self.epoch if skips else 0
        known = (epoch, place.world, workers, len(skips.state()))
        if known not in self._lengths:
            part = self._settings.part(epoch, [], place.world, workers)
            self._lengths = {known: sum(part.totals) - sum(map(len, self._settings.lost(part, place.rank)))}
        return self._lengths[known]

    def __iter__(self) -> WorkerIteration:
        """Begin an iteration: of all batches, or after `load_state_dict` of those still to come."""
        return WorkerIteration(self._settings, self._identity, self._epochs, self._places, self._kept)

    def state_dict(self, batches: int | None = None, batch_size: int = 1) -> dict[str, Any]:
        """Return where the latest iteration stands: a small dictionary for JSON, the same on every rank.

        Args:
            batches: Batches the training loop got from this iteration, in order. Workers and a `DeviceLoader` run ahead
                of it, so with these it must be said; without, what was yielded is known, but a loader of Accelerate is
                one ahead.
            batch_size: Rows of a batch, where the DataLoader makes them.

        Raises:
            BadArgument: The batches are needed, or more than there are.
        """
        if get_worker_info() is not None:
            return {}
        turn, settings = self._epochs.latest(), self._settings
        identity = {**self._identity, **({"skip": settings.skips.state()} if settings.skips else {})}
        if turn is None:
            epoch, segments = self._epochs.planned()
            return {**identity, "epoch": epoch, "segments": segments}
        if turn.begins < 0:
            raise BadArgument("this iteration continues a state of StatefulDataLoader: ask that for its state")
        if batches is None and (turn.workers or turn == self._kept.ahead):
            who = "workers run" if turn.workers else "a DeviceLoader, whose state_dict() knows it, runs"
            raise BadArgument(f"{who} ahead of the training loop: say state_dict(batches=...) it got so far")
        part = self._part(turn)
        if batches is None:
            done = part.segment.batches
        else:
            done = part.after(batches, batch_size, settings.lost(part, self._places.find().rank))
        return {**identity, **part.standing(done)}

    def run_ahead(self, make: Make) -> None:
        """Let the latest iteration be ahead of the training loop, so that a state must be told how far.

        Args:
            make: Makes the arrays of its batches, of a shape and type, where no worker makes them.
        """
        self._kept.ahead, self._kept.make = self._epochs.latest(), make

    def rows_of(
        self, step: int, *, rank: int | None = None, epoch: int | None = None, workers: int | None = None
    ) -> IntArray:
        """Return the numbers of the rows in a batch of an epoch, int64[rows]; nothing is read.

        Args:
            step: Which batch of the epoch, from 0, as a DataLoader yields them; without ``batch_size``, which row.
            rank: Whose; None: this one's.
            epoch: The epoch; None: that of the latest iteration, or of the next one.
            workers: Workers of the DataLoader; None: those of the latest iteration, or none.

        Raises:
            BadArgument: There is no such step, or no such rank.
        """
        return self.rewind(workers).rows_of(step, rank=rank, epoch=epoch)

    def visits_of(self, rows: int | IntArray, *, epoch: int | None = None, workers: int | None = None) -> list[Visit]:
        """Return when rows have their turn in an epoch, on any rank: see `corgipile.loader.Rewind`."""
        return self.rewind(workers).visits_of(rows, epoch=epoch)

    def visit_of(self, row: int, *, epoch: int | None = None, workers: int | None = None) -> Visit | None:
        """Return when a row has its first turn in an epoch; None: it is left out (``drop_last``)."""
        return next(iter(self.visits_of(row, epoch=epoch, workers=workers)), None)

    def rewind(self, workers: int | None = None) -> Rewind:
        """Return what finds rows by steps and steps by rows, for many questions."""
        turn = self._epochs.latest()
        if turn is not None and turn.begins < 0:
            raise BadArgument("this iteration continues a state of StatefulDataLoader: load that into the dataset")
        if turn is not None and workers in (None, turn.workers):
            part = self._part(turn)
        else:
            epoch, segments = self._epochs.planned()
            world = self._places.find().world
            part = self._settings.part(epoch, segments_of(segments), world, max(1, whole(workers or 0, "workers", 0)))
        return self._settings.rewind(part, self._places.find().rank)

    def _part(self, turn: Turn) -> Part:
        """Return the part that an iteration runs; made again here where workers run it."""
        kept = self._kept
        if kept.turn != turn or kept.part is None:
            segments = segments_of(self._epochs.planned()[1]) if turn.begins else []
            kept.part = self._settings.part(turn.epoch, segments, self._places.find().world, max(1, turn.workers))
            kept.turn = turn
        return kept.part

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state: of this dataset, or of a StatefulDataLoader over it.

        With the ranks, workers, memory and batch size of the state the next iteration yields the very batches that
        were to come; with others each row of the epoch that was not visited once (what an order visits twice, or
        ranks repeat or drop, aside). Epochs after it are whole.

        Raises:
            StateMismatch: The state belongs to another table, order or seed.
        """
        if get_worker_info() is None:
            try:
                state = joined(state)
            except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
                raise StateMismatch(f"state is no state of a StatefulDataLoader over this dataset: {error!r}") from None
            epoch, segments = checked(state, self._identity)
            self._resume(state.get("skip", ()))
            self._epochs.set(epoch, [segment._asdict() for segment in segments])

    def _resume(self, said: Any) -> None:
        """Leave out what a state says, too."""
        skips, turn = self._settings.skips, self._epochs.latest()
        before = skips.state()
        skips.resume(said, len(self.table))
        self._check_skips()
        if turn and turn.workers and skips.state() != before:
            raise StateMismatch(
                "workers that may still run do not hear what the state skips: give skip= to the dataset"
            )

    def _check_skips(self) -> None:
        if self._settings.skips and self._settings.batch_size is None:
            raise BadArgument("skip is of batches that the dataset makes: give batch_size")


def joined(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of a dataset from that of a StatefulDataLoader over it."""
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
