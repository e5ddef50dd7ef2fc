"""Checkpoint states: resume an epoch at its step with equal ranks and workers, else re-order the remaining rows."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from corgipile.errors import BadArgument, StateMismatch
from corgipile.features import Encoding
from corgipile.loader.budget import Fitted, Sketch
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.loader.segments import MAX_WORLD, EpochSegment, dealt, is_at, next_worker, remainder, same_value
from corgipile.orders import Order, described, instead, seek
from corgipile.orders.order import Seekable
from corgipile.sizes import MAX_EPOCH, whole
from corgipile.suggestions import listed
from corgipile.tables.fingerprints import fingerprint_of, is_fingerprint_of
from corgipile.tables.sketch import sketch
from corgipile.tables.table import Table

__all__ = [
    "Part", "Position", "check_features", "check_place", "checked", "find_place", "go_on", "identity_of",
    "restore_part", "segments_of",
]  # fmt: skip

STATE_VERSION = 1
FITTED = ("block", "buffer", "group", "whole")  # settings of an order that the budget determines


@dataclass
class Part:
    """The progress of an epoch.

    Attributes:
        epoch: Number of the epoch.
        before: Finished segments.
        segment: The running segment; its batches count up while a worker yields its own.
        totals: Batches of each worker in the segment.
        table: The rows that the segment runs over.
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
        """Return the segment's first step."""
        return sum(sum(segment.batches) for segment in self.before)

    def after(self, turns: int, each: int = 1, lost: Sequence[Collection[int]] = ()) -> list[int]:
        """Return the batches done by each worker after further turns of ``each`` batches, in round-robin order.

        Args:
            turns: Number of turns.
            each: Batches per turn.
            lost: Skipped batches of each worker. Each is done with the next batch, or at the end of the epoch.

        Raises:
            BadArgument: Fewer batches are left.
        """
        turns, each = whole(turns, "batches", 0), whole(each, "batch_size", 1)
        workers = len(self.begun)
        first = next_worker(self.begun, self.totals)
        turning = [(first + k) % workers for k in range(workers)]
        left_out = [sorted(batch for batch in (lost[k] if lost else ()) if batch >= self.begun[k]) for k in turning]
        left = [self.totals[k] - self.begun[k] - len(out) for k, out in zip(turning, left_out, strict=True)]
        got = dealt([-(-batches // each) for batches in left], turns)
        if sum(got) < turns:
            raise BadArgument(f"this iteration has {sum(got)} batches, got a request for {turns}")
        done = list(self.begun)
        for k, count, most, skipped in zip(turning, got, left, left_out, strict=True):
            done[k] += min(count * each, most)
            for batch in skipped if count else ():
                done[k] += batch < done[k]
            if count * each >= most:
                done[k] = self.totals[k]
        return done

    def state(self, done: list[int]) -> dict[str, Any]:
        """Return epoch and segments as a JSON object."""
        segments = [*self.before, self.segment._replace(batches=list(done))]
        return {"epoch": self.epoch, "segments": [segment._asdict() for segment in segments]}

    def standing(self, done: list[int]) -> dict[str, Any]:
        """Return the state, or that of the next epoch's beginning if this epoch is done."""
        return {"epoch": self.epoch + 1, "segments": []} if done == self.totals else self.state(done)


def go_on(
    table: Table,
    seed: int,
    epoch: int,
    segments: Sequence[EpochSegment],
    begin: Callable[[Table], tuple[EpochSegment, Fitted]],
    look: Sketch = sketch,
) -> Part:
    """Continue an epoch: in its last segment if a new one would equal it, else in a new one over the rows left.

    Segments of equal global batches are equal for any number of ranks and workers. ``begin`` makes an empty segment
    over a table and the order fitted to it; ``look`` describes blocks, see `corgipile.loader.budget.sketched`.
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
    """A worker's position in its part of an epoch: rank, worker, step, and offset in the step."""

    rank: int
    worker: int
    step: int
    offset: int


def restore_part(
    state: Mapping[str, Any], identity: Mapping[str, Any], mine: EpochSegment, worker: int, fitted: Fitted, seed: int
) -> tuple[int, int, Position | None]:
    """Return the epoch, the batches that a worker has done, and its position if the state has one.

    States of earlier releases have no segments. ``identity`` has the values that must match; sizes of the order,
    in rows, are compared by segment. ``fitted`` is the order of ``mine``, the worker's segment.

    Raises:
        StateMismatch: The state belongs to another table, order or setting.
    """
    state, order = _in_segments(state, mine), identity["order"]
    epoch, segments = checked(state, {name: identity[name] for name in identity if name != "order"}, mine.order)
    stored = state.get("order")
    if not same_value(stored, order) and not (
        segments and any(_same_but_sizes(stored, other) for other in (order, mine.order))
    ):
        raise instead(segments[0].order if segments else stored, order)
    if len(segments) > 1:
        raise StateMismatch(f"state has an epoch in {len(segments)} segments: load it into a CorgiPileDataset")
    for other in segments:
        if not mine.like(other) and (moved := mine.moved(other, fitted, seed, epoch)):
            return epoch, moved.batches[worker], None
        mine.check_like(other)
    done = segments[0].batches[worker] if segments else 0
    if not state.keys() >= set(Position._fields):
        return epoch, done, None
    try:
        place = Position(*(whole(state[name], name, 0) for name in Position._fields))
    except BadArgument as error:
        raise StateMismatch(f"state has no valid position: {error}") from None
    last = segments[0] if segments else mine
    if place.rank >= last.world or place.worker >= len(last.batches):
        owner = f"rank {place.rank} of {last.world}, worker {place.worker} of {len(last.batches)}"
        raise StateMismatch(f"state has no valid position: it belongs to {owner}")
    if not segments and (place.step or place.offset):
        raise StateMismatch(f"state has no valid position: step {place.step} but no segments")
    return epoch, done, place


def _same_but_sizes(stored: Any, order: Any) -> bool:
    """Return whether two orders, both as `described`, differ in their sizes only."""
    return same_value(_without_sizes(stored), _without_sizes(order))


def _without_sizes(order: Any) -> Any:
    if not isinstance(order, Mapping):
        return order
    return {name: _without_sizes(value) for name, value in order.items() if name not in FITTED}


def _in_segments(state: Mapping[str, Any], mine: EpochSegment) -> Mapping[str, Any]:
    """Convert a state of an earlier release, with one worker's batches at the top level, to segments."""
    if not isinstance(state, Mapping) or "segments" in state or "workers" not in state:
        return state
    same = {name: state.get(name) for name in ("order", "batch_size", "drop_last", "world")}
    try:
        worker = whole(state.get("worker"), "worker", 0)
        done = [0] * whole(state["workers"], "workers", worker + 1, MAX_WORLD)
        done[worker] = whole(state.get("batches"), "batches", 0)
    except BadArgument as error:
        raise StateMismatch(f"state has no valid position: {error}") from None
    return {**state, "segments": [{**mine._asdict(), **same, "batches": done}]}


def identity_of(table: Table, order: Order, seed: int, encoding: Encoding | None = None) -> dict[str, Any]:
    """Return the values that a state must match."""
    extra = {} if encoding is None else {"encoding": encoding.state()}
    return {"version": STATE_VERSION, "table": fingerprint_of(table), "order": described(order), "seed": seed, **extra}


def check_features(state: Mapping[str, Any], mine: Mapping[str, Any] | None) -> None:
    """Raise StateMismatch for other features or another feature order; ``mine``: the encoding."""
    if not same_value(state.get("encoding"), mine):
        raise StateMismatch("state belongs to other features or another encoding")


def segments_of(segments: Any, order: dict[str, Any] | None = None) -> list[EpochSegment]:
    """Parse the segments of a state."""
    if isinstance(segments, str | Mapping) or not isinstance(segments, Sequence):
        raise StateMismatch(f"state must have a list of segments, got {segments!r}")
    return [EpochSegment.read(segment, order) for segment in segments]


def checked(
    state: Mapping[str, Any], identity: Mapping[str, Any], order: dict[str, Any] | None = None
) -> tuple[int, list[EpochSegment]]:
    """Return epoch and segments of a matching state; ``order`` is shared with segments that equal it.

    Raises:
        StateMismatch: The state does not match, or is no state.
    """
    if not isinstance(state, Mapping):
        raise StateMismatch(f"a state must be a dictionary, got {state!r}")
    missing = [name for name in (*identity, "epoch", "segments") if name not in state and name != "encoding"]
    if missing:
        raise StateMismatch(
            f"a state must have {listed(missing)}, got only {listed(list(state))}; use the result of state_dict()"
        )
    check_features(state, identity.get("encoding"))
    for name, mine in identity.items():
        if not same_value(state.get(name), mine) and name == "order":
            raise instead(state.get(name), mine)
        if not (is_fingerprint_of(state.get(name), mine) if name == "table" else same_value(state.get(name), mine)):
            raise StateMismatch(f"state belongs to another {name}: it has {state.get(name)!r}, here it is {mine!r}")
    try:
        return whole(state.get("epoch"), "epoch", 0, MAX_EPOCH), segments_of(state.get("segments"), order)
    except BadArgument as error:
        raise StateMismatch(f"state has no valid position: {error}") from None


def check_place(feeder: BufferedReader, epoch: int, batches: int, batch_size: int, place: Position) -> tuple[int, int]:
    """Return a state's step and offset; they must match the end of a batch."""
    where, visits = (place.step, place.offset), feeder.visits(epoch)
    if isinstance(feeder.order, Seekable):  # its states may predate the current step size
        return find_place(feeder, epoch, batches, batch_size)
    visited = min(batches * batch_size, visits)
    if max(where) > visits or not is_at(feeder.order, feeder.blocks, feeder.key(epoch), visited, where):
        raise StateMismatch(f"state has step {place.step}, offset {place.offset}: {batches} batches end elsewhere")
    return where


def find_place(feeder: BufferedReader, epoch: int, batches: int, batch_size: int) -> tuple[int, int]:
    """Return step and offset of a batch by following the order."""
    visited = min(batches * batch_size, feeder.visits(epoch))
    return seek(feeder.order, feeder.blocks, feeder.key(epoch), visited)
