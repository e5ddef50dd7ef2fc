"""Epochs that ranks may join and leave while they run: each row of a finished epoch is in exactly one batch."""

from collections.abc import Generator, Iterator, Mapping
from typing import Any, Self

from corgipile.errors import BadArgument
from corgipile.loader import Loader
from corgipile.loader.checkpoint import checked, segments_of
from corgipile.loader.default_order import chosen
from corgipile.loader.one_thread import OneThread
from corgipile.loader.segments import EpochSegment, remainder
from corgipile.orders import Order
from corgipile.orders.riffle import CONTENT
from corgipile.sizes import Size, real, whole
from corgipile.tables import open as open_table
from corgipile.torch.members import Members

__all__ = ["ElasticLoader"]

IDENTITY = {"version", "table", "order", "seed", "encoding"}  # entries that a state must match
OWN_ARGUMENTS = {"rank", "world", "worker", "workers", "drop_last", "skip", "global_batches"}


class ElasticLoader:
    """Iterates over this process's batches of a shared epoch, which processes may join, leave or die in.

    A batch is done when the next one is requested; the store of ``torch.distributed`` then counts it. If a process
    dies, its unfinished rows are dealt to the others at once; a joining process gets a share likewise. Each row is in
    exactly one finished batch, whatever happens: a live process that was declared dead gets an error when it counts a
    batch.

    In each world all members have equally many batches of ``batch_size`` rows. The remaining rows come last in an
    epoch: one smaller batch for each member, then single rows for the first members, fewer than members. Loops that
    average gradients can use `active` to see who has a batch.

    If all members do a step together, as in DistributedDataParallel, the death of one makes the step fail on all. Call
    `give_back`, make a new process group for `rank` of `world`, and continue; the rows of that step come again.

    Args:
        table: A source for `corgipile.open`; the same on all members.
        store: A ``torch.distributed`` store that all members reach and that outlives them: a TCPStore of the launcher,
            or of a process that does nothing else. Use a PrefixStore for each of several loaders.
        members: Number of members that the first world starts with.
        batch_size: Rows per batch of one member.
        order: An order of `corgipile.orders` that visits each row once, or its name. ``"auto"`` balances by the label.
        seed: Seed of all epochs.
        timeout: Seconds without a heartbeat, sent by a thread, after which a process counts as dead.
        state: A result of `state_dict`, perhaps of another world, to resume from.
        memory: Budget of this member for rows in memory.
        loading: Other arguments of `corgipile.Loader`.

    Attributes:
        epoch: The current epoch.

    Raises:
        PeerFailed: The other members did not come, or declared this one dead.
        StateMismatch: The state is of another table, order or seed.

    Example:
        >>> from torch.distributed import HashStore  # for a single process
        >>> loader = ElasticLoader({"x": range(10)}, HashStore(), batch_size=4)
        >>> [len(batch["x"]) for batch in loader], loader.epoch
        ([4, 4, 2], 1)
        >>> loader.leave()
    """

    def __init__(
        self,
        table: Any,
        store: Any,
        *,
        members: int = 1,
        batch_size: int = 256,
        order: Order | str = "auto",
        seed: int = 0,
        timeout: float = 30.0,
        state: Mapping[str, Any] | None = None,
        memory: Size | None = None,
        **loading: Any,
    ) -> None:
        if wrong := OWN_ARGUMENTS & loading.keys():
            raise BadArgument(f"an ElasticLoader sets {', '.join(sorted(wrong))} itself: leave out")
        opened = open_table(table)
        resolved = chosen(order, opened, loading.get("label"))
        if not resolved.once or resolved.sketch_column == CONTENT:
            raise BadArgument(f"order must visit each row once, and may balance only by a column, got {resolved!r}")
        settings = {"format": "torch", **loading, "order": resolved, "seed": seed, "memory": memory, "drop_last": True}
        self._loader = Loader(opened, batch_size=batch_size, **settings)
        self._table, self._settings = self._loader.feeder.table, self._loader.settings
        self._batch, self._seed = self._loader.batch_size, self._loader.feeder.seed
        self._identity = {name: value for name, value in self._loader.state_dict().items() if name in IDENTITY}
        first = (0, list[EpochSegment]()) if state is None else checked(state, self._identity)
        self._left, self._known, self._closed = self._table, -1, list[EpochSegment]()
        self._holds, self._begun, self._batches = False, -1, iter(())
        self._turns = OneThread()
        self._members = Members(store, real(timeout, "timeout", 0.01))
        self._members.enter(whole(members, "members", 1), _world_data(*first))
        while not self._members.inside:
            self._members.ask()
            self._members.settle(self._after)

    @property
    def epoch(self) -> int:
        """Return the epoch that runs, or runs next."""
        return int(self._members.world["told"]["epoch"])

    @property
    def world(self) -> int:
        """Return the number of members."""
        return len(self._members.world["members"])

    @property
    def rank(self) -> int:
        """Return this process's rank."""
        return self._members.rank

    @property
    def generation(self) -> int:
        """Return the number of the world; rank and world may differ between generations."""
        return self._members.number

    @property
    def member(self) -> str:
        """Return the name of this process in the store."""
        return self._members.name

    @property
    def active(self) -> int:
        """Return how many members, from rank 0 on, have batches in this world."""
        return self._share()[0]

    def _share(self) -> tuple[int, int]:
        """Return how many members have batches, and the rows per batch."""
        self._catch_up()
        rows = len(self._left)
        share = rows // self.world
        return (self.world, min(self._batch, share)) if share else (rows, 1)

    def _catch_up(self) -> None:
        """Compute the rows that were left when the world began."""
        if self._known == self.generation:
            return
        segments, done = segments_of(self._members.world["told"]["segments"]), len(self._closed)
        if segments[:done] != self._closed:
            self._left, done = self._table, 0
        self._left = remainder(self._left, self._seed, self.epoch, segments[done:])
        self._closed, self._known = segments, self.generation

    def __iter__(self) -> Iterator[Any]:
        """Yield this member's batches to the end of the current epoch."""
        return self._turns.take(self._run())

    def _run(self) -> Generator[Any, None, None]:
        epoch = self.epoch
        self._finish()
        while self.epoch == epoch:
            batch = None if self._members.asked else self._next()
            if batch is None:
                self._members.stop()
                self._members.settle(self._after)
                continue
            self._holds = True
            yield batch
            self._finish()

    def _finish(self) -> None:
        """Count the batch that the loop has finished."""
        if self._holds:
            self._holds = False
            self._members.count()

    def _next(self) -> Any:
        """Return the next batch of this member's share of the world, or None."""
        if self._begun != self.generation:
            active, size = self._share()
            self._loader.close()
            self._batches, self._begun = iter(()), self.generation
            if self.rank < active:
                self._loader = self._new_loader(self.rank, active, size)
                self._loader.set_epoch(self.epoch)
                self._batches = iter(self._loader)
        return next(self._batches, None)

    def _new_loader(self, rank: int, world: int, size: int) -> Loader:
        return Loader(self._left, **{**self._settings, "batch_size": size, "rank": rank, "world": world})

    def give_back(self) -> None:
        """Return the last batch unused, after a failed step of all members: the rows are dealt again."""
        self._holds = False
        self._members.ask()

    def _after(self, done: list[int]) -> dict[str, Any]:
        """Return the next world's data from the batches that each member of this one finished."""
        (active, size), epoch, segments = self._share(), self.epoch, list(self._closed)
        if sum(done) * size == len(self._left):
            return _world_data(epoch + 1, [])
        if any(done):
            with self._new_loader(0, active, size) as loader:
                segment = EpochSegment.begin(loader.feeder.fitted, size, active, 1, drop_last=True)
            segments.append(segment._replace(ranks=done[:active]))
        return _world_data(epoch, segments)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of all members as JSON, for ``state`` here or for a CorgiPileDataset.

        The batch in a member's loop does not count as done.
        """
        done = [int(count.split()[0]) if count else 0 for count in self._members.counts().values()]
        return {**self._identity, **self._after(done)}

    def leave(self) -> None:
        """Leave for good, counting the loop's batch as done; the others share the remaining rows."""
        self._finish()
        self._members.leave()
        self._loader.close()

    def die(self) -> None:
        """Stop the heartbeat as a dying process would, for tests of a training."""
        self._members.end()
        self._loader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


def _world_data(epoch: int, segments: list[EpochSegment]) -> dict[str, Any]:
    return {"epoch": epoch, "segments": [segment._asdict() for segment in segments]}
