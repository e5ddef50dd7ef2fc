"""Which epoch an iteration runs: agreed by the main process and all workers through shared memory, without a lock."""

import json
import os
from dataclasses import astuple, fields
from multiprocessing import parent_process
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import get_worker_info

from corgipile.errors import BadArgument
from corgipile.loader.stats import LoaderStats

__all__ = ["Epochs", "Turn"]

WORKERS, KEPT, FIELDS, TEXT = 512, 4, 8, 1 << 16
STATS = 1 + len(fields(LoaderStats))  # words that a worker tells how it is doing with
ALONE = WORKERS  # the row of an iteration without workers


class Turn(NamedTuple):
    """One iteration, as one of its workers noted it.

    Attributes:
        number: 1 for the first iteration, ascending; 0 where nothing is noted.
        seed: Tells the iterators of a DataLoader apart; alike for the workers of one.
        again: How often the worker's process began before.
        version: How often the main process had set an epoch or loaded a state.
        epoch: The epoch it runs.
        workers: Number of workers, 0 for an iteration in the main process.
        begins: Whether it begins where the main process said, 1, or anew, 0; -1 where the worker was told otherwise.
        first: Number of the first worker's process: a DataLoader starts one after another, so all know about which.
    """

    number: int
    seed: int
    again: int
    version: int
    epoch: int
    workers: int
    begins: int
    first: int = 0


class Epochs:
    """Gives each iteration its epoch: the one set, then each time the next.

    The workers of a DataLoader begin by themselves, some late, some of an iterator that was left long ago. Each looks
    whether a fellow noted an iteration it has not taken part in, and joins it; else it notes a new one. A fellow has
    the same seed, as many workers, began as often, and its process was started beside this one's: seeds alone are alike
    where iterators share a seeded generator. What the main process has set meanwhile says nothing, since a worker may
    begin late. Workers write cells of their own only, so two that come at once note the same.

    The memory belongs to one main process and its workers. Another main process that got it, such as a rank that was
    started with the dataset, takes a copy for itself at its first use.

    Example:
        >>> epochs = Epochs()
        >>> epochs.set(5, [])
        >>> [epochs.begin(worker, 2, seed=77, again=0).epoch for worker in (1, 0)]
        [5, 5]
        >>> epochs.begin().epoch
        6
    """

    def __init__(self) -> None:
        words = 2 + (WORKERS + 1) * KEPT * FIELDS + WORKERS * STATS + TEXT // 8
        self._use(_shared(np.zeros(words, np.int64)), os.getpid())

    def _use(self, memory: torch.Tensor, owner: int) -> None:
        if not memory.is_shared():  # type: ignore[no-untyped-call]
            memory, owner = _shared(memory.numpy()), os.getpid()
        self._memory, self._owner, self._known = memory, owner, owner
        words: npt.NDArray[np.int64] = memory.numpy()
        self._start, self._text = words[:2], words[-TEXT // 8 :].view(np.uint8)
        cells, stats = np.split(words[2 : -TEXT // 8], [(WORKERS + 1) * KEPT * FIELDS])
        self._cells = cells.reshape(WORKERS + 1, KEPT, FIELDS)
        self._stats = stats.view(np.float64).reshape(WORKERS, STATS)

    def own(self) -> None:
        """See to it that the memory is that of this main process or, in a worker, of the one that started it.

        Raises:
            BadArgument: A worker's main process was forked with the memory of another, and did not use it before.
        """
        if self._known == os.getpid():
            return
        if get_worker_info() is None:
            self._use(_shared(self._memory.numpy()), os.getpid())
        elif (parent := parent_process()) is not None and parent.pid != self._owner:
            raise BadArgument(
                "the dataset was made before this rank was forked; make it in the rank, or set_epoch there"
            )
        self._known = os.getpid()

    def __getstate__(self) -> tuple[torch.Tensor, int]:
        self.own()
        return self._memory, self._owner

    def __setstate__(self, state: tuple[torch.Tensor, int]) -> None:
        self._use(*state)

    def set(self, epoch: int, segments: list[Any]) -> None:
        """Say, in the main process, which epoch the next iteration runs, and what of it is done."""
        self.own()
        text = json.dumps(segments).encode()
        if len(text) >= TEXT:
            raise BadArgument(
                f"the state has {len(text)} bytes of segments, at most {TEXT - 1} fit: read fewer columns where "
                f'FullShuffle(unit="page") keeps their names, or finish the epoch with the ranks, workers, memory and '
                f"batch size it was last run with, since each change adds one ({len(segments)} so far)"
            )
        self._text[: len(text) + 1] = np.frombuffer(text + b"\0", np.uint8)
        self._start[1] = epoch
        self._start[0] += 1

    def planned(self) -> tuple[int, list[Any]]:
        """Return what was `set`: the epoch and its segments."""
        self.own()
        text = self._text.tobytes().partition(b"\0")[0]
        return int(self._start[1]), json.loads(text or b"[]")

    def _turns(self) -> list[list[Turn]]:
        """Return the iterations that each worker noted."""
        self.own()
        cells = self._cells
        while not np.array_equal(seen := cells.copy(), cells):
            pass
        seen = seen[seen[:, :, 0].any(axis=1) | (np.arange(WORKERS + 1) == ALONE)]
        return [[Turn(*cell) for cell in row if cell[0]] for row in seen.tolist()]

    def latest(self) -> Turn | None:
        """Return the latest iteration begun since `set` was called."""
        turns = [turn for row in self._turns() for turn in row if turn.version == self._start[0]]
        return max(turns, key=lambda turn: turn.number, default=None)

    def tell(self, worker: int, turn: Turn, stats: LoaderStats) -> None:
        """Say, in a worker, how its iteration is doing."""
        self._stats[worker] = (turn.number, *astuple(stats))

    def told(self, turn: Turn) -> list[LoaderStats]:
        """Return what the workers of an iteration said last, those that did."""
        kinds = [type(value) for value in astuple(LoaderStats(0))]
        said = [row[1:] for row in self._stats[: turn.workers].tolist() if row[0] == turn.number]
        return [LoaderStats(*(kind(value) for kind, value in zip(kinds, row, strict=True))) for row in said]

    def begin(self, worker: int = ALONE, workers: int = 0, seed: int = -1, again: int = 0, first: int = 0) -> Turn:
        """Take part in an iteration: that of the fellow workers, or a new one; see `Turn` for the arguments."""
        self.own()
        if workers > WORKERS:
            raise BadArgument(f"a DataLoader may have {WORKERS} workers at most, got {workers}")
        mine = {int(number) for number in self._cells[worker, :, 0]}
        turns = [turn for row in self._turns() for turn in row]
        fellows = [
            turn
            for turn in turns
            if workers and (turn.seed, turn.again, turn.workers) == (seed, again, workers)
            if abs(turn.first - first) < workers and turn.number not in mine  # others may start processes in between
        ]
        if fellows:
            turn = max(fellows)
        else:
            version, epoch = self._start.tolist()
            number = max((turn.number for turn in turns), default=0) + 1
            before = max((turn for turn in turns if turn.version == version), default=None)
            epoch = before.epoch + 1 if before else epoch
            turn = Turn(number, seed, again, version, epoch, workers, int(not before), first)
        self.note(worker, turn)
        return turn

    def note(self, worker: int, turn: Turn) -> None:
        """Write down the iteration a worker takes part in; the number last, since others may read meanwhile."""
        cell = self._cells[worker, turn.number % KEPT]
        cell[0] = 0
        cell[1:] = turn[1:]
        cell[0] = turn.number


def _shared(words: npt.NDArray[np.int64]) -> torch.Tensor:
    """Copy words to shared memory; not by PyTorch, whose threads are not there in a forked process."""
    storage = torch.UntypedStorage._new_shared(words.nbytes)  # type: ignore[no-untyped-call]  # noqa: SLF001
    memory = torch.empty(0, dtype=torch.int64).set_(storage)
    memory.numpy()[:] = words
    return memory
