"""Lanes: stretches of a pass that run side by side, each with its own slots of one buffer."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.orders.order import Blocks, IntArray, Key, Order, SlotArray, Step, seek
from corgipile.orders.planned import Planned

__all__ = ["Group", "Lanes", "Stretch", "Take", "follow"]

Mask = npt.NDArray[np.bool_]


class Stretch(NamedTuple):
    """A worker's part of a lane.

    Attributes:
        span: First position of the lane in the pass, and its end.
        each: Rows that the lane gives to each of its batches.
        columns: This rank's rows among these: first and end.
        group: The lane gives rows to the batches i with ``i % groups == group``.
        groups: Number of groups.
        worker: The worker has the batches i with ``i % workers == worker``.
        workers: Number of workers.
    """

    span: tuple[int, int]
    each: int
    columns: tuple[int, int]
    group: int
    groups: int
    worker: int
    workers: int

    @property
    def width(self) -> int:
        """Return this rank's rows of a batch."""
        return self.columns[1] - self.columns[0]

    @property
    def entire(self) -> bool:
        """Return whether this worker takes all rows of the lane."""
        return self.width == self.each and self.groups % self.workers == 0

    def wanted(self, places: IntArray) -> Mask:
        """Return a mask of this worker's rows, given places among the lane's visits.

        Example:
            >>> Stretch((0, 12), 3, (0, 2), 0, 1, 1, 2).wanted(np.arange(12)).tolist().count(True)
            4
        """
        turn, column = np.divmod(places, self.each)
        mine: Mask = (turn * self.groups + self.group) % self.workers == self.worker
        return mine & (column >= self.columns[0]) & (column < self.columns[1])


class Group:
    """Lanes that give rows to the same batches, one after the other."""

    def __init__(self, stretches: Iterable[Stretch]) -> None:
        self.stretches = tuple(stretches)
        ends = np.cumsum([stretch.width for stretch in self.stretches], dtype=np.int64)
        self.begins = np.concatenate([np.zeros(1, np.int64), ends[:-1]])


class Take(NamedTuple):
    """The rows that a step takes from a group's lanes.

    Attributes:
        group: The lanes.
        done: Batches that each lane gave before.
        at: Place of the first batch's rows among the step's visits, lane by lane.
        stride: Distance of the next batch's rows.
        batches: Number of batches.
    """

    group: Group
    done: int
    at: int
    stride: int
    batches: int


class Lanes(Protocol):
    """Runs lanes that share the slots of a buffer."""

    def step(self, takes: Sequence[Take], visits: int) -> Step:
        """Return the next step, which has this many visits."""


def follow(order: Order, blocks: Blocks, key: Key, slots: int, ahead: int) -> Lanes:
    """Return a runner of an order's lanes, in the kernel if it plans the order; ``order`` has the sizes of a lane."""
    if isinstance(order, Planned) and type(order).steps is Planned.steps:
        return KernelLanes(order, blocks, key, slots, ahead)
    return PythonLanes(order, blocks, key, slots, ahead)


def _position(order: Order, blocks: Blocks, key: Key, stretch: Stretch, done: int) -> tuple[Key, int, int]:
    """Return a lane's key, its next step, and the visits of that step that are done."""
    key = key._replace(rank=0, world=1, worker=0, workers=1, span=stretch.span)
    return key, *seek(order, blocks, key, done * stretch.each)


class KernelLanes:
    """Lanes of an order that the kernel plans, see `follow`."""

    def __init__(self, order: Planned, blocks: Blocks, key: Key, slots: int, ahead: int) -> None:
        self._order, self._blocks, self._key = order, blocks, key
        self._lanes, self._numbers = _kernel.lanes_new(slots, ahead), dict[Group, IntArray]()

    def _begin(self, stretch: Stretch, done: int) -> int:
        key, step, skip = _position(self._order, self._blocks, self._key, stretch, done)
        first, stop = stretch.columns
        return _kernel.lanes_add(
            self._lanes, self._order.plan(self._blocks, key, step),
            each=stretch.each, first=first, stop=stop, group=stretch.group, groups=stretch.groups,
            worker=stretch.worker, workers=stretch.workers, place=done * stretch.each, skip=skip,
        )  # fmt: skip

    def _plan(self, take: Take) -> IntArray:
        """Return for each lane: its number, the place of its rows, stride, batches."""
        group, done, at, stride, batches = take
        if group not in self._numbers:
            self._numbers[group] = np.array([self._begin(stretch, done) for stretch in group.stretches], np.int64)
        plan = np.empty((len(group.begins), 4), np.int64)
        plan[:, 0], plan[:, 1], plan[:, 2:] = self._numbers[group], at + group.begins, (stride, batches)
        return plan

    def step(self, takes: Sequence[Take], visits: int) -> Step:
        """Return the next step, which has this many visits."""
        visit = np.empty(visits, np.int32)
        extents, into = _kernel.lanes_next(self._lanes, np.concatenate([self._plan(take) for take in takes]), visit)
        return Step(np.frombuffer(extents, np.int64).reshape(-1, 2), np.frombuffer(into, np.int32), visit)


class PythonLanes:
    """Lanes of any order, see `follow`."""

    def __init__(self, order: Order, blocks: Blocks, key: Key, slots: int, ahead: int) -> None:
        self._pass, self._slots = (order, blocks, key), Slots(slots, ahead)
        self._lanes = dict[Stretch, Lane]()

    def step(self, takes: Sequence[Take], visits: int) -> Step:
        """Return the next step, which has this many visits."""
        self._slots.begin()
        visit = np.empty(visits, np.int32)
        for group, done, at, stride, count in takes:
            for stretch, begin in zip(group.stretches, group.begins.tolist(), strict=True):
                if stretch not in self._lanes:
                    self._lanes[stretch] = Lane(*self._pass, stretch, self._slots, done)
                places = at + begin + stride * np.arange(count)[:, None] + np.arange(stretch.width)
                visit[places] = self._lanes[stretch].take(count)
        return self._slots.step(visit)


class Slots:
    """The slots of a buffer, free or loaded, and the loads of the current step.

    Args:
        count: Number of slots.
        ahead: Steps loaded while an earlier one is visited, after which its slots are free.
    """

    def __init__(self, count: int, ahead: int) -> None:
        self._free = np.arange(count - 1, -1, -1, dtype=np.int32)
        self._left, self._ahead = count, ahead
        self._loaded_in = np.full(count, -1, np.int64)  # step that loaded the slot last
        self._place = np.zeros(count, np.int64)  # index among that step's rows
        self._number, self._visits = -1, list[SlotArray]()
        self._extents, self._into, self._unloaded = list[IntArray](), list[SlotArray](), list[IntArray]()
        self._rows = 0

    def begin(self) -> None:
        """Begin the next step and release the slots of the last visited one."""
        self._number += 1
        if len(self._visits) > self._ahead:
            self._release(self._visits.pop(0))
        self._extents, self._into, self._unloaded, self._rows = [], [], [], 0

    def load(self, extents: IntArray, wanted: Mask) -> SlotArray:
        """Load the wanted rows of some runs; return their slots."""
        count = int(np.count_nonzero(wanted))
        if count > self._left:
            raise RuntimeError(f"{count} rows need slots, but {self._left} are free")
        slots = self._free[self._left - count : self._left].copy()
        self._left -= count
        into = np.full(len(wanted), -1, np.int32)
        into[wanted] = slots
        self._loaded_in[slots] = self._number
        self._place[slots] = self._rows + np.flatnonzero(wanted)
        self._extents.append(extents)
        self._into.append(into)
        self._rows += len(into)
        return slots

    def discard(self, slots: SlotArray) -> None:
        """Release rows without a visit; rows of the current step are not loaded."""
        fresh = slots[self._loaded_in[slots] == self._number]
        self._unloaded.append(self._place[fresh])
        self._release(slots)

    def _release(self, slots: SlotArray) -> None:
        self._free[self._left : self._left + len(slots)] = slots
        self._left += len(slots)

    def step(self, visit: SlotArray) -> Step:
        """Return the step with these visits."""
        self._visits.append(visit)
        extents = np.concatenate([np.empty((0, 2), np.int64), *self._extents])
        into = np.concatenate([np.empty(0, np.int32), *self._into])
        discarded = np.concatenate([np.empty(0, np.int64), *self._unloaded])
        if len(discarded):
            into[discarded] = -1
            extents, into = _needed(extents, into)
        return Step(extents, into, visit)


def _needed(extents: IntArray, into: SlotArray) -> tuple[IntArray, SlotArray]:
    """Drop runs without a wanted row.

    Example:
        >>> extents, into = _needed(np.array([[0, 2], [5, 8]]), np.array([-1, -1, 4, -1, 3], np.int32))
        >>> extents.tolist(), into.tolist()
        ([[5, 8]], [4, -1, 3])
    """
    lengths = extents[:, 1] - extents[:, 0]
    run = np.repeat(np.arange(len(extents)), lengths)
    needed = np.bincount(run[into >= 0], minlength=len(extents)) > 0
    return extents[needed], into[needed[run]]


class Lane:
    """The visits of one stretch after ``done`` batches, in slots that all lanes share; ``order`` has a lane's sizes."""

    def __init__(self, order: Order, blocks: Blocks, key: Key, stretch: Stretch, slots: Slots, done: int) -> None:
        self._stretch, self._slots, self._place = stretch, slots, done * stretch.each
        key, step, self._skip = _position(order, blocks, key, stretch, done)
        self._steps = order.steps(blocks, key, step)
        self._slot_of = np.full(max(1, order.slots(blocks)), -1, np.int32)
        self._waiting, self._rows = [np.empty(0, np.int32)], 0

    def take(self, batches: int) -> npt.NDArray[np.int32]:
        """Return the slots of this worker's rows in the lane's next batches, (batches, columns)."""
        wanted = batches * self._stretch.width
        while self._rows < wanted:
            self._advance()
        waiting = np.concatenate(self._waiting)
        self._waiting, self._rows = [waiting[wanted:]], self._rows - wanted
        return waiting[:wanted].reshape(batches, self._stretch.width)

    def _advance(self) -> None:
        """Load the lane's next step; other workers' rows are discarded at their turn."""
        step, slots = next(self._steps), self._slots
        loaded = step.into >= 0
        self._slot_of[step.into[loaded]] = slots.load(step.extents, loaded)
        visited = self._slot_of[step.visit]
        if self._skip:
            slots.discard(visited[: self._skip])
            visited, self._skip = visited[self._skip :], max(0, self._skip - len(visited))
        if not self._stretch.entire:
            mine = self._stretch.wanted(np.arange(self._place, self._place + len(visited)))
            slots.discard(visited[~mine])
            self._place += len(visited)
            visited = visited[mine]
        self._waiting.append(visited)
        self._rows += len(visited)
