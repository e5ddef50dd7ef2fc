"""Epochs that ranks may leave and join while they run: each row of a finished epoch is in one batch, exactly."""

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

IDENTITY = {"version", "table", "order", "seed", "encoding"}  # what a state must agree with
OURS = {"rank", "world", "worker", "workers", "drop_last", "skip", "global_batches"}


class ElasticLoader:
    """Iterates over this process's batches of an epoch that many run, of whom any may die, leave or join meanwhile.

    A batch is done when the next one is asked for, and the store of ``torch.distributed`` then counts it. Where a
    process dies, its rows that are not done are dealt to the others at once, and so is its share to one that joins. A
    row is never in two batches that are done, nor in none, whatever happens: a process that was taken for dead and is
    not cannot count a batch, it is told so by an error.

    In each world all members have as many batches of ``batch_size`` rows. The rows that make no such batches are the
    last ones of an epoch: one smaller batch of each member, then one of a single row for as many members as there are
    rows, fewer than members; the others have none of these. Loops that average gradients can tell by `active`.

    Where all members do a step together, as in DistributedDataParallel, one that dies makes it fail on all: call
    `give_back`, make a process group anew for `rank` of `world`, and go on; the rows of that step come again.

    Args:
        table: What `corgipile.open` takes; the same on all members.
        store: A ``torch.distributed`` store that all members reach and that outlives them: a TCPStore of the launcher,
            or of a process that does nothing else. A PrefixStore keeps several loaders apart.
        members: The first world begins with so many.
        batch_size: Rows of a batch of one member.
        order: An order of `corgipile.orders`, or its name; one that visits rows once. ``"auto"`` balances by the label.
        seed: Seed of all epochs.
        timeout: Seconds without a sign of life, given by a thread, after which a process is taken for dead.
        state: What `state_dict` returned, perhaps in another world: the first world goes on there.
        memory: Budget of this member for rows in memory.
        loading: Other arguments of `corgipile.Loader`.

    Attributes:
        epoch: The epoch that runs.

    Raises:
        PeerFailed: The other members did not come, or took this one for dead.
        StateMismatch: The state is of another table, order or seed.

    Example:
        >>> from torch.distributed import HashStore  # of this process alone
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
        if wrong := OURS & loading.keys():
            raise BadArgument(f"an ElasticLoader finds out {', '.join(sorted(wrong))} by itself")
        opened = open_table(table)
        found = chosen(order, opened, loading.get("label"))
        if not found.once or found.sketch_column == CONTENT:
            raise BadArgument(f"order must visit each row once, and balance by a column if at all, got {found!r}")
        given = {"format": "torch", **loading, "order": found, "seed": seed, "memory": memory, "drop_last": True}
        self._loader = Loader(opened, batch_size=batch_size, **given)
        self._table, self._settings = self._loader.feeder.table, self._loader.settings
        self._batch, self._seed = self._loader.batch_size, self._loader.feeder.seed
        self._identity = {name: said for name, said in self._loader.state_dict().items() if name in IDENTITY}
        first = (0, list[EpochSegment]()) if state is None else checked(state, self._identity)
        self._left, self._known, self._closed = self._table, -1, list[EpochSegment]()
        self._holds, self._begun, self._batches = False, -1, iter(())
        self._turns = OneThread()
        self._members = Members(store, real(timeout, "timeout", 0.01))
        self._members.enter(whole(members, "members", 1), _told(*first))
        while not self._members.inside:
            self._members.ask()
            self._members.settle(self._after)

    @property
    def epoch(self) -> int:
        """Return the epoch that runs, or is about to."""
        return int(self._members.world["told"]["epoch"])

    @property
    def world(self) -> int:
        """Return how many members there are."""
        return len(self._members.world["members"])

    @property
    def rank(self) -> int:
        """Return which of them this is."""
        return self._members.rank

    @property
    def generation(self) -> int:
        """Return the number of the world: where it has changed, rank and world may have."""
        return self._members.number

    @property
    def member(self) -> str:
        """Return what this process is called in the store."""
        return self._members.name

    @property
    def active(self) -> int:
        """Return how many members, from rank 0 on, have batches in this world."""
        return self._share()[0]

    def _share(self) -> tuple[int, int]:
        """Return how many members have batches, and the rows of a batch."""
        self._catch_up()
        rows = len(self._left)
        each = rows // self.world
        return (self.world, min(self._batch, each)) if each else (rows, 1)

    def _catch_up(self) -> None:
        """Find out which rows were left when the world began."""
        if self._known == self.generation:
            return
        segments, done = segments_of(self._members.world["told"]["segments"]), len(self._closed)
        if segments[:done] != self._closed:
            self._left, done = self._table, 0
        self._left = remainder(self._left, self._seed, self.epoch, segments[done:])
        self._closed, self._known = segments, self.generation

    def __iter__(self) -> Iterator[Any]:
        """Yield this member's batches of the epoch that runs, to its end; then the next one is about to run."""
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
        """Count the batch that the loop had."""
        if self._holds:
            self._holds = False
            self._members.count()

    def _next(self) -> Any:
        """Return the next batch of this member's share of the world, None where there is none."""
        if self._begun != self.generation:
            active, size = self._share()
            self._loader.close()
            self._batches, self._begun = iter(()), self.generation
            if self.rank < active:
                self._loader = self._made(self.rank, active, size)
                self._loader.set_epoch(self.epoch)
                self._batches = iter(self._loader)
        return next(self._batches, None)

    def _made(self, rank: int, world: int, size: int) -> Loader:
        return Loader(self._left, **{**self._settings, "batch_size": size, "rank": rank, "world": world})

    def give_back(self) -> None:
        """Say that the last batch was not used, since a step of all members failed: all of them deal anew."""
        self._holds = False
        self._members.ask()

    def _after(self, done: list[int]) -> dict[str, Any]:
        """Say what the next world begins with, where each member of this one did so many batches."""
        (active, size), epoch, segments = self._share(), self.epoch, list(self._closed)
        if sum(done) * size == len(self._left):
            return _told(epoch + 1, [])
        if any(done):
            with self._made(0, active, size) as loader:
                segment = EpochSegment.begin(loader.feeder.fitted, size, active, 1, drop_last=True)
            segments.append(segment._replace(ranks=done[:active]))
        return _told(epoch, segments)

    def state_dict(self) -> dict[str, Any]:
        """Return where all members stand, by what they have done: JSON, for `state` here or for a CorgiPileDataset.

        The batch that a member has in its loop is not done yet.
        """
        done = [int(said.split()[0]) if said else 0 for said in self._members.counts().values()]
        return {**self._identity, **self._after(done)}

    def leave(self) -> None:
        """Leave for good, the batch that the loop had counted as done; the others share what is left."""
        self._finish()
        self._members.leave()
        self._loader.close()

    def die(self) -> None:
        """Stop giving signs of life, as a process that dies: the others find out. For tests of a training."""
        self._members.end()
        self._loader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


def _told(epoch: int, segments: list[EpochSegment]) -> dict[str, Any]:
    return {"epoch": epoch, "segments": [segment._asdict() for segment in segments]}
