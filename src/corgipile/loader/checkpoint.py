"""States, and how an epoch goes on by them: in step where ranks and workers are as they were, else with the rest."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from corgipile.errors import BadArgument, StateMismatch
from corgipile.features import Encoding
from corgipile.loader.budget import Fitted, Sketch
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.loader.segments import MOST_WORLD, EpochSegment, alike, dealt, next_worker, remainder, stands
from corgipile.orders import Order, described, instead, seek
from corgipile.orders.order import Seekable
from corgipile.sizes import MOST_EPOCH, whole
from corgipile.suggestions import listed
from corgipile.tables.fingerprints import fingerprint_of, is_fingerprint_of
from corgipile.tables.sketch import sketch
from corgipile.tables.table import Table

__all__ = [
    "Part", "Position", "check_features", "checked", "checked_place", "found_place", "go_on", "identity_of", "own_part",
    "segments_of",
]  # fmt: skip

STATE_VERSION = 1
FITTED = ("block", "buffer", "group", "whole")  # what of an order a budget decides


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
    before: list[EpochSegment]
    segment: EpochSegment
    totals: list[int]
    table: Table

    def __post_init__(self) -> None:
        self.begun = list(self.segment.batches)

    @property
    def first(self) -> int:
        """Return the step that the segment begins with."""
        return sum(sum(segment.batches) for segment in self.before)

    def after(self, turns: int, each: int = 1, lost: Sequence[Collection[int]] = ()) -> list[int]:
        """Return the batches done once each worker in turn has given some more, ``each`` at a time.

        Args:
            turns: How many came.
            each: Batches of one turn.
            lost: Batches of each worker that do not come: they are done when the one after them is, or the last.

        Raises:
            BadArgument: There are not so many.
        """
        turns, each = whole(turns, "batches", 0), whole(each, "batch_size", 1)
        workers = len(self.begun)
        first = next_worker(self.begun, self.totals)
        turning = [(first + k) % workers for k in range(workers)]
        gone = [sorted(one for one in (lost[k] if lost else ()) if one >= self.begun[k]) for k in turning]
        left = [self.totals[k] - self.begun[k] - len(some) for k, some in zip(turning, gone, strict=True)]
        got = dealt([-(-batches // each) for batches in left], turns)
        if sum(got) < turns:
            raise BadArgument(f"this iteration has {sum(got)} batches, {turns} were asked for")
        done = list(self.begun)
        for k, some, most, skipped in zip(turning, got, left, gone, strict=True):
            done[k] += min(some * each, most)
            for one in skipped if some else ():
                done[k] += one < done[k]
            if some * each >= most:
                done[k] = self.totals[k]
        return done

    def state(self, done: list[int]) -> dict[str, Any]:
        """Return epoch and segments, for JSON."""
        segments = [*self.before, self.segment._replace(batches=list(done))]
        return {"epoch": self.epoch, "segments": [segment._asdict() for segment in segments]}

    def standing(self, done: list[int]) -> dict[str, Any]:
        """Return the same, or the beginning of the next epoch if this one is done."""
        return {"epoch": self.epoch + 1, "segments": []} if done == self.totals else self.state(done)


def go_on(
    table: Table,
    seed: int,
    epoch: int,
    segments: Sequence[EpochSegment],
    begin: Callable[[Table], tuple[EpochSegment, Fitted]],
    look: Sketch = sketch,
) -> Part:
    """Continue an epoch: its last segment if one begun now would be like it, else a new one with the rows left.

    Segments of the same global batches are alike, whatever the number of ranks and workers.

    Args:
        table: All rows.
        seed: Seed of all epochs.
        epoch: Which epoch.
        segments: What is done of it.
        begin: Makes a segment over a table, of which nothing is done, and the order fitted to it.
        look: What describes blocks, see `corgipile.loader.budget.sketched`.
    """
    before, last = list(segments[:-1]), list(segments[-1:])
    table = remainder(table, seed, epoch, before, look)
    segment, fitted = begin(table)
    if last and segment.like(last[0]):
        segment = last[0]
        segment.check(fitted, seed, epoch)
    elif last and (moved := segment.moved(last[0], fitted, seed, epoch)):
        segment = moved
    elif last:
        before += last
        table = remainder(table, seed, epoch, last, look)
        segment, fitted = begin(table)
    return Part(epoch, before, segment, segment.totals(fitted, seed, epoch), table)


class Position(NamedTuple):
    """Where one worker of one rank stands in its part of an epoch: at an offset in a step of its order."""

    rank: int
    worker: int
    step: int
    offset: int


def own_part(
    state: Mapping[str, Any], identity: Mapping[str, Any], mine: EpochSegment, worker: int, fitted: Fitted, seed: int
) -> tuple[int, int, Position | None]:
    """Return the epoch and the batches that a worker has done, where it runs it as it was run; and its place, if told.

    Args:
        state: The state, also one of an earlier release, which had no segments.
        identity: What it must agree with; of its order, however that was asked for, the segment has the sizes in rows.
        mine: The segment that the worker runs.
        worker: The worker.
        fitted: The order of the segment.
        seed: Seed of all epochs.

    Raises:
        StateMismatch: The state is of something else.
    """
    state, asked = _in_segments(state, mine), identity["order"]
    epoch, segments = checked(state, {name: identity[name] for name in identity if name != "order"}, mine.order)
    mine = mine.of_epoch(fitted, epoch) if segments else mine
    said = state.get("order")
    if not alike(said, asked) and not (segments and any(_same_but_sizes(said, one) for one in (asked, mine.order))):
        raise instead(segments[0].order if segments else said, asked)
    if len(segments) > 1:
        raise StateMismatch(f"state has an epoch in {len(segments)} parts: load it into a CorgiPileDataset")
    for one in segments:
        if not mine.like(one) and (moved := mine.moved(one, fitted, seed, epoch)):
            return epoch, moved.batches[worker], None
        mine.check_like(one)
    done = segments[0].batches[worker] if segments else 0
    if not state.keys() >= set(Position._fields):
        return epoch, done, None
    try:
        place = Position(*(whole(state[name], name, 0) for name in Position._fields))
    except BadArgument as error:
        raise StateMismatch(f"state has no valid position: {error}") from None
    last = segments[0] if segments else mine
    if place.rank >= last.world or place.worker >= len(last.batches):
        whose = f"rank {place.rank} of {last.world}, worker {place.worker} of {len(last.batches)}"
        raise StateMismatch(f"state has no valid position: it is of {whose}")
    if not segments and (place.step or place.offset):
        raise StateMismatch(f"state has no valid position: step {place.step} of an epoch without segments")
    return epoch, done, place


def _same_but_sizes(said: Any, order: Any) -> bool:
    """Say whether an order of a state differs in its sizes only from one, both as `described`."""
    return alike(_without_sizes(said), _without_sizes(order))


def _without_sizes(order: Any) -> Any:
    if not isinstance(order, Mapping):
        return order
    return {name: _without_sizes(value) for name, value in order.items() if name not in FITTED}


def _in_segments(state: Mapping[str, Any], mine: EpochSegment) -> Mapping[str, Any]:
    """Give a state of a loader of an earlier release, which had one worker's batches beside all else, a segment."""
    if not isinstance(state, Mapping) or "segments" in state or "workers" not in state:
        return state
    same = {name: state.get(name) for name in ("order", "batch_size", "drop_last", "world")}
    try:
        worker = whole(state.get("worker"), "worker", 0)
        done = [0] * whole(state["workers"], "workers", worker + 1, MOST_WORLD)
        done[worker] = whole(state.get("batches"), "batches", 0)
    except BadArgument as error:
        raise StateMismatch(f"state has no valid position: {error}") from None
    return {**state, "segments": [{**mine._asdict(), **same, "batches": done}]}


def identity_of(table: Table, order: Order, seed: int, encoding: Encoding | None = None) -> dict[str, Any]:
    """Return what a state must agree with."""
    made = {} if encoding is None else {"encoding": encoding.state()}
    return {"version": STATE_VERSION, "table": fingerprint_of(table), "order": described(order), "seed": seed, **made}


def check_features(state: Mapping[str, Any], mine: Mapping[str, Any] | None) -> None:
    """Raise StateMismatch where a state is of other features, or features in another order; ``mine``: the encoding."""
    if not alike(state.get("encoding"), mine):
        raise StateMismatch("state is of other features, or of another encoding of them")


def segments_of(segments: Any, order: dict[str, Any] | None = None) -> list[EpochSegment]:
    """Read segments of a state."""
    if isinstance(segments, str | Mapping) or not isinstance(segments, Sequence):
        raise StateMismatch(f"state must have a list of segments, got {segments!r}")
    return [EpochSegment.read(segment, order) for segment in segments]


def checked(
    state: Mapping[str, Any], identity: Mapping[str, Any], order: dict[str, Any] | None = None
) -> tuple[int, list[EpochSegment]]:
    """Return epoch and segments of a state that agrees; ``order`` is one at hand, which its segments may have.

    Raises:
        StateMismatch: It does not, or is no state.
    """
    if not isinstance(state, Mapping):
        raise StateMismatch(f"a state is a dictionary, got {state!r}")
    missing = [name for name in (*identity, "epoch", "segments") if name not in state and name != "encoding"]
    if missing:
        raise StateMismatch(
            f"a state must have {listed(missing)}, got only {listed(list(state))}; use the result of state_dict()"
        )
    check_features(state, identity.get("encoding"))
    for name, mine in identity.items():
        if not alike(state.get(name), mine) and name == "order":
            raise instead(state.get(name), mine)
        if not (is_fingerprint_of(state.get(name), mine) if name == "table" else alike(state.get(name), mine)):
            raise StateMismatch(f"state is of another {name}: it has {state.get(name)!r}, here it is {mine!r}")
    try:
        return whole(state.get("epoch"), "epoch", 0, MOST_EPOCH), segments_of(state.get("segments"), order)
    except BadArgument as error:
        raise StateMismatch(f"state has no valid position: {error}") from None


def checked_place(
    feeder: BufferedReader, epoch: int, batches: int, batch_size: int, place: Position
) -> tuple[int, int]:
    """Return a state's step and offset, which must match the end of a batch."""
    where, visits = (place.step, place.offset), feeder.visits(epoch)
    if isinstance(feeder.order, Seekable):  # whose states may predate the current step size
        return found_place(feeder, epoch, batches, batch_size)
    visited = min(batches * batch_size, visits)
    if max(where) > visits or not stands(feeder.order, feeder.blocks, feeder.key(epoch), visited, where):
        raise StateMismatch(f"state has step {place.step}, offset {place.offset}: {batches} batches end elsewhere")
    return where


def found_place(feeder: BufferedReader, epoch: int, batches: int, batch_size: int) -> tuple[int, int]:
    """Find step and offset by following the order."""
    visited = min(batches * batch_size, feeder.visits(epoch))
    return seek(feeder.order, feeder.blocks, feeder.key(epoch), visited)
