"""Epoch numbers that the main process and all workers agree on through shared memory, without locks."""

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

MAX_WORKERS, TURNS_PER_WORKER, FIELDS, TEXT_BYTES = 512, 4, 8, 1 << 16
STATS_WORDS = 1 + len(fields(LoaderStats))  # words of a worker's statistics
ALONE = MAX_WORKERS  # row of cells for iterations without workers


class Turn(NamedTuple):
    """One iteration, as recorded by one of its workers.

    Attributes:
        number: Number of the iteration, from 1 up; 0 if none is recorded.
        seed: Distinguishes the iterators of a DataLoader; equal for all workers of an iterator.
        again: Number of iterations that the worker's process began before.
        version: Number of times the main process had set an epoch or loaded a state.
        epoch: The epoch that it runs.
        workers: Number of workers, 0 for an iteration in the main process.
        begins: 1 if it begins at the position set by the main process, 0 at an epoch's start, -1 at a worker's state.
        first: Process number of the first worker. A DataLoader starts its workers in sequence, so all estimate it.
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
    """Assigns each iteration its epoch: the epoch that was set, then the following ones.

    DataLoader workers begin independently, some late, some for an iterator abandoned long ago. A worker joins an
    iteration that a fellow recorded and that it has not joined before; otherwise it records a new one. A fellow has
    the same seed, worker count and number of earlier iterations, and its process was started next to this one's. Seeds
    alone do not suffice: iterators that share a seeded generator have equal ones. What the main process has set
    meanwhile does not matter, since a worker may begin late. Each worker writes its own cells only, so two that begin
    at once record the same iteration.

    The memory belongs to one main process and its workers. Another main process that inherits it, such as a rank
    started with the dataset, copies it at first use.

    Example:
        >>> epochs = Epochs()
        >>> epochs.set(5, [])
        >>> [epochs.begin(worker, 2, seed=77, again=0).epoch for worker in (1, 0)]
        [5, 5]
        >>> epochs.begin().epoch
        6
    """

    def __init__(self) -> None:
        words = 2 + (MAX_WORKERS + 1) * TURNS_PER_WORKER * FIELDS + MAX_WORKERS * STATS_WORDS + TEXT_BYTES // 8
        self._use(_share(np.zeros(words, np.int64)), os.getpid())

    def _use(self, memory: torch.Tensor, owner: int) -> None:
        if not memory.is_shared():  # type: ignore[no-untyped-call]
            memory, owner = _share(memory.numpy()), os.getpid()
        self._memory, self._owner, self._known = memory, owner, owner
        words: npt.NDArray[np.int64] = memory.numpy()
        self._start, self._text = words[:2], words[-TEXT_BYTES // 8 :].view(np.uint8)
        cells, stats = np.split(words[2 : -TEXT_BYTES // 8], [(MAX_WORKERS + 1) * TURNS_PER_WORKER * FIELDS])
        self._cells = cells.reshape(MAX_WORKERS + 1, TURNS_PER_WORKER, FIELDS)
        self._stats = stats.view(np.float64).reshape(MAX_WORKERS, STATS_WORDS)

    def own(self) -> None:
        """Ensure that the memory belongs to this main process or, in a worker, to the worker's main process.

        Raises:
            BadArgument: A worker's main process was forked with another's memory and has not used it yet.
        """
        if self._known == os.getpid():
            return
        if get_worker_info() is None:
            self._use(_share(self._memory.numpy()), os.getpid())
        elif (parent := parent_process()) is not None and parent.pid != self._owner:
            raise BadArgument(
                "the dataset was made before this rank was forked: make it in the rank, or call set_epoch there"
            )
        self._known = os.getpid()

    def __getstate__(self) -> tuple[torch.Tensor, int]:
        self.own()
        return self._memory, self._owner

    def __setstate__(self, state: tuple[torch.Tensor, int]) -> None:
        self._use(*state)

    def set(self, epoch: int, segments: list[Any]) -> None:
        """Set, in the main process, the next iteration's epoch and that epoch's finished segments."""
        self.own()
        text = json.dumps(segments).encode()
        if len(text) >= TEXT_BYTES:
            raise BadArgument(
                f"the state's segments must take at most {TEXT_BYTES - 1} bytes, got {len(text)}: read fewer columns "
                f'if FullShuffle(unit="page") stores their names, or finish the epoch with the last ranks, workers, '
                f"memory and batch size, since each change adds a segment ({len(segments)} so far)"
            )
        self._text[: len(text) + 1] = np.frombuffer(text + b"\0", np.uint8)
        self._start[1] = epoch
        self._start[0] += 1

    def planned(self) -> tuple[int, list[Any]]:
        """Return the epoch and segments that were `set`."""
        self.own()
        text = self._text.tobytes().partition(b"\0")[0]
        return int(self._start[1]), json.loads(text or b"[]")

    def _turns(self) -> list[list[Turn]]:
        """Return the iterations that each worker recorded."""
        self.own()
        cells = self._cells
        while not np.array_equal(seen := cells.copy(), cells):
            pass
        seen = seen[seen[:, :, 0].any(axis=1) | (np.arange(MAX_WORKERS + 1) == ALONE)]
        return [[Turn(*cell) for cell in row if cell[0]] for row in seen.tolist()]

    def latest(self) -> Turn | None:
        """Return the latest iteration since `set` was called."""
        turns = [turn for row in self._turns() for turn in row if turn.version == self._start[0]]
        return max(turns, key=lambda turn: turn.number, default=None)

    def report(self, worker: int, turn: Turn, stats: LoaderStats) -> None:
        """Report, in a worker, its iteration's statistics."""
        self._stats[worker] = (turn.number, *astuple(stats))

    def reported(self, turn: Turn) -> list[LoaderStats]:
        """Return the latest statistics of an iteration's workers that reported."""
        kinds = [type(value) for value in astuple(LoaderStats(0))]
        rows = [row[1:] for row in self._stats[: turn.workers].tolist() if row[0] == turn.number]
        return [LoaderStats(*(kind(value) for kind, value in zip(kinds, row, strict=True))) for row in rows]

    def begin(self, worker: int = ALONE, workers: int = 0, seed: int = -1, again: int = 0, first: int = 0) -> Turn:
        """Join the fellow workers' iteration or record a new one; see `Turn` for the arguments."""
        self.own()
        if workers > MAX_WORKERS:
            raise BadArgument(f"a DataLoader must have at most {MAX_WORKERS} workers, got {workers}")
        joined = {int(number) for number in self._cells[worker, :, 0]}
        turns = [turn for row in self._turns() for turn in row]
        fellows = [
            turn
            for turn in turns
            if workers and (turn.seed, turn.again, turn.workers) == (seed, again, workers)
            if abs(turn.first - first) < workers
            and turn.number not in joined  # other code may start processes in between
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
        """Record the iteration that a worker joins; the number last, since others may read meanwhile."""
        cell = self._cells[worker, turn.number % TURNS_PER_WORKER]
        cell[0] = 0
        cell[1:] = turn[1:]
        cell[0] = turn.number


def _share(words: npt.NDArray[np.int64]) -> torch.Tensor:
    """Copy words to shared memory, without PyTorch's threads, which a forked process lacks."""
    storage = torch.UntypedStorage._new_shared(words.nbytes)  # type: ignore[no-untyped-call]  # noqa: SLF001
    memory = torch.empty(0, dtype=torch.int64, device="cpu").set_(storage)
    memory.numpy()[:] = words
    return memory
