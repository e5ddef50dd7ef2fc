"""One iteration of a dataset: the batches of one worker, and where it stands."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import get_worker_info

from corgipile.errors import BadArgument, StateMismatch
from corgipile.loader import Loader
from corgipile.loader.fitting import Fitted, columns_of, fit
from corgipile.loader.segments import Segment, dealt, next_worker, remainder
from corgipile.orders import Order, described
from corgipile.sizes import Size
from corgipile.tables import Table
from corgipile.torch.passes import ALONE, Passes, Turn
from corgipile.torch.place import Places

__all__ = ["Kept", "Part", "Running", "Settings", "checked", "identity_of", "segments_of"]

STATE_VERSION = 1


@dataclass(frozen=True)
class Settings:
    """What a dataset was asked for."""

    table: Table
    order: Order
    memory: Size | None
    batch_size: int | None
    columns: Sequence[str] | None
    seed: int
    drop_last: bool
    prefetch: int
    transform: Callable[[dict[str, Any]], Any] | None

    @property
    def unit(self) -> int:
        """Return the rows of what is yielded at a time."""
        return self.batch_size or 1

    def fit(self, table: Table, workers: int) -> Fitted:
        """Fit the order to a table and a worker's memory."""
        return fit(table, self.order, self.memory, columns_of(table, self.columns), workers)

    def loader(self, table: Table, rank: int, world: int, worker: int, workers: int) -> Loader:
        """Make the loader of one worker."""
        return Loader(
            table, self.unit, self.order, self.memory, self.seed, self.columns, "torch", self.prefetch, self.drop_last,
            rank, world, worker, workers,
        )  # fmt: skip

    def part(self, epoch: int, segments: Sequence[Segment], world: int, workers: int) -> "Part":
        """Go on with an epoch: in step with its last segment if the workers are as they were, else with what is left.

        Args:
            epoch: Which epoch.
            segments: What is done of it.
            world: Number of ranks.
            workers: Number of workers, at least 1.
        """
        before, last = list(segments), None
        if before:
            last = before.pop()
        table = remainder(self.table, self.seed, epoch, before)
        fitted = self.fit(table, workers)
        fresh = Segment.begin(fitted, self.unit, world, workers, drop_last=self.drop_last)
        if last is not None and not fresh.like(last):
            before.append(last)
            table = remainder(table, self.seed, epoch, [last])
            fitted = self.fit(table, workers)
            fresh = Segment.begin(fitted, self.unit, world, workers, drop_last=self.drop_last)
        elif last is not None:
            fresh = last
        return Part(epoch, before, fresh, fresh.totals(fitted, self.seed, epoch), table)


@dataclass
class Part:
    """Where an epoch stands.

    Attributes:
        epoch: Which epoch.
        before: The segments that are done.
        segment: The one under way; its batches are counted while one worker yields its own.
        totals: Batches that each worker has in it.
        table: The rows it runs over.
    """

    epoch: int
    before: list[Segment]
    segment: Segment
    totals: list[int]
    table: Table

    def __post_init__(self) -> None:
        self.begun = list(self.segment.batches)

    def after(self, turns: int, rows: int) -> list[int]:
        """Return the batches done once some more have come, from each worker in turn; see `CorgiPileDataset`."""
        workers = len(self.begun)
        first = next_worker(self.begun, self.totals)
        turning = [(first + k) % workers for k in range(workers)]
        left = [self.totals[k] - self.begun[k] for k in turning]
        got = dealt([-(-batches // rows) for batches in left], turns)
        if sum(got) < turns:
            raise BadArgument(f"this iteration has {sum(got)} batches, {turns} were asked for")
        done = list(self.begun)
        for k, some, most in zip(turning, got, left, strict=True):
            done[k] += min(some * rows, most)
        return done

    def state(self, done: list[int]) -> dict[str, Any]:
        """Return epoch and segments, for JSON."""
        segments = [*self.before, self.segment._replace(batches=list(done))]
        return {"epoch": self.epoch, "segments": [segment._asdict() for segment in segments]}


@dataclass
class Kept:
    """What a process keeps between iterations: how many it began, the last one, and the loader of whole epochs."""

    began: int = 0
    turn: Turn | None = None
    part: Part | None = None
    loader: Loader | None = None
    loader_of: tuple[int, ...] = ()

    def __reduce__(self) -> tuple[type["Kept"], tuple[()]]:
        return Kept, ()


class Running:
    """Iterates over the batches of one worker; what torchdata keeps as the state of a worker.

    Args:
        settings: What to yield.
        identity: What states must agree with.
        passes: Shared memory that says which epoch it is.
        places: Says which rank it is.
        kept: What the process keeps.
    """

    def __init__(
        self, settings: Settings, identity: Mapping[str, Any], passes: Passes, places: Places, kept: Kept
    ) -> None:
        self._settings, self._identity, self._passes, self._kept = settings, identity, passes, kept
        self._rank, self._world = places.find()
        info = get_worker_info()
        self._cell, self._worker, self._workers = (info.id, info.id, info.num_workers) if info else (ALONE, 0, 1)
        turn = passes.begin(info.id, info.num_workers, info.seed - info.id, kept.began) if info else passes.begin()
        kept.began += 1
        self._go(turn, segments_of(passes.planned()[1]) if turn.begins == 1 else [])
        done = self._part.segment.batches
        self._worker = (self._worker + next_worker(done, self._part.totals)) % self._workers

    def _go(self, turn: Turn, segments: list[Segment]) -> None:
        self._part = self._settings.part(turn.epoch, segments, self._world, self._workers)
        self._turn = self._kept.turn = turn
        self._kept.part = self._part
        self._batches: Iterator[Any] | None = None

    def __iter__(self) -> "Running":
        return self

    def __next__(self) -> Any:
        if self._batches is None:
            self._batches = self._run()
        return next(self._batches)

    def _run(self) -> Iterator[Any]:
        part, transform, worker = self._part, self._settings.transform, self._worker
        done, rows = part.segment.batches, self._settings.batch_size is None
        loader = self._loader(part)
        loader.set_epoch(part.epoch)
        loader.seek(done[worker])
        for batch in loader:
            done[worker] += 1
            made = {name: values[0] for name, values in batch.items()} if rows else batch
            yield made if transform is None else transform(made)

    def _loader(self, part: Part) -> Loader:
        place = (self._rank, self._world, self._worker, self._workers)
        if part.before:
            return self._settings.loader(part.table, *place)
        kept = self._kept
        if kept.loader is None or kept.loader_of != (os.getpid(), *place):
            kept.loader, kept.loader_of = self._settings.loader(part.table, *place), (os.getpid(), *place)
        return kept.loader

    def state_dict(self) -> dict[str, Any]:
        """Return where this worker stands: torchdata joins it with those of the others."""
        return {**self._identity, **self._part.state(self._part.segment.batches), "worker": self._worker}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where this worker stood; the epoch after that is the next one.

        Raises:
            StateMismatch: The state belongs to another table, order or seed, or to other workers.
        """
        epoch, segments = checked(state, self._identity)
        turn = self._turn._replace(epoch=epoch, begins=self._turn.begins if self._cell == ALONE else -1)
        self._passes.note(self._cell, turn)
        self._go(turn, segments)
        self._worker = state.get("worker", 0)
        if len(self._part.before) >= len(segments) or self._worker >= self._workers:
            raise StateMismatch(
                f"worker {self._cell} of {self._workers} in a world of {self._world} cannot go on where worker "
                f"{self._worker} stood; after a change of workers, ranks, memory or batch size load the state into the "
                "dataset instead"
            )


def identity_of(settings: Settings) -> dict[str, Any]:
    """Return what a state must agree with."""
    return {
        "version": STATE_VERSION,
        "table": settings.table.fingerprint,
        "order": described(settings.order),
        "seed": settings.seed,
    }


def segments_of(segments: Any) -> list[Segment]:
    """Read segments of a state."""
    return [Segment(**{**segment, "batches": list(segment["batches"])}) for segment in segments]


def checked(state: Mapping[str, Any], identity: Mapping[str, Any]) -> tuple[int, list[Segment]]:
    """Return epoch and segments of a state that agrees.

    Raises:
        StateMismatch: It does not, or is no state.
    """
    for name, mine in identity.items():
        if state.get(name) != mine:
            raise StateMismatch(f"state is of another {name}: it has {state.get(name)!r}, the dataset has {mine!r}")
    try:
        epoch, segments = int(state["epoch"]), segments_of(state["segments"])
    except (KeyError, TypeError, ValueError) as error:
        raise StateMismatch(f"state has no valid position: {error!r}") from None
    if epoch < 0 or any(min(segment.batches, default=-1) < 0 for segment in segments):
        raise StateMismatch(f"state has no valid position: epoch {epoch}, segments {segments}")
    return epoch, segments
