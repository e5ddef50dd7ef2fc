"""Messages among the ranks of a group, each awaited separately, so that an error names the missing rank."""

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from corgipile.errors import PeerFailed

__all__ = ["Peers"]

MIN_CONNECT_SECONDS = 60  # seconds at least for ranks to find each other
PROBE = timedelta(milliseconds=20)
DEAD_WORDS = ("closed", "reset", "refused", "broken pipe")


class Peers:
    """The ranks of a process group, in a group of their own so that other collectives do not wait for it."""

    def __init__(self, group: Any, timeout: float) -> None:
        self._ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
        self.rank, self.world, self.timeout = self._ranks.index(dist.get_rank()), len(self._ranks), timeout
        patience = timedelta(seconds=max(timeout, MIN_CONNECT_SECONDS))
        try:
            self._group = dist.new_group(self._ranks, backend="gloo", timeout=patience)
        except RuntimeError as error:
            raise PeerFailed(
                f"rank {self.rank} of {self.world} waited {patience.seconds} s for all ranks to connect: {error}"
            ) from error

    def swap(
        self, out: Mapping[int, Sequence[torch.Tensor]], into: Mapping[int, Sequence[torch.Tensor]], what: str
    ) -> None:
        """Send tensors to the ranks of ``out`` and fill those of ``into`` with their ranks' messages.

        Raises:
            PeerFailed: A rank has died, or sent nothing in time.
        """
        start = time.monotonic()
        works: list[tuple[int, Any]] = []
        peer = self.rank
        try:
            for peer, tensors in into.items():
                for tag, tensor in enumerate(tensors):
                    works.append((peer, dist.irecv(tensor, self._ranks[peer], group=self._group, tag=tag)))
            for peer, tensors in out.items():
                for tag, tensor in enumerate(tensors):
                    works.append((peer, dist.isend(tensor, self._ranks[peer], group=self._group, tag=tag)))
        except RuntimeError as error:
            raise self._failed(what, start, [(peer, str(error))]) from error
        for at, (peer, work) in enumerate(works):
            left = max(0.001, self.timeout - (time.monotonic() - start))
            try:
                work.wait(timedelta(seconds=left))
            except RuntimeError as error:
                waited = [(peer, str(error)), *self._others(works[at + 1 :])]
                raise self._failed(what, start, waited) from error

    def _others(self, works: list[tuple[int, Any]]) -> list[tuple[int, str]]:
        """Return the other ranks whose messages are missing: a dead rank stops others, too."""
        missing = []
        for peer, work in works:
            try:
                work.wait(PROBE)
            except RuntimeError as error:
                missing.append((peer, str(error)))
        return missing

    def _failed(self, what: str, start: float, waited: list[tuple[int, str]]) -> PeerFailed:
        dead = sorted({peer for peer, error in waited if any(word in error.lower() for word in DEAD_WORDS)})
        peers = dead or sorted({peer for peer, _ in waited})
        names = f"rank{'s' * (len(peers) > 1)} {', '.join(map(str, peers))}"
        why = "closed the connection: it has probably died" if dead else "sent nothing: it is stopped or busy"
        seconds = time.monotonic() - start
        return PeerFailed(
            f"rank {self.rank} of {self.world} waited {seconds:.1f} s for {what} of {names}, which {why}. "
            "The part on disk is that of the last finished epoch: start all ranks again"
        )

    def gather(self, numbers: list[int], what: str) -> list[list[int]]:
        """Return the numbers of each rank; all ranks give equally many."""
        mine = torch.tensor(numbers, dtype=torch.int64)
        others = [peer for peer in range(self.world) if peer != self.rank]
        into = {peer: [torch.zeros_like(mine)] for peer in others}
        self.swap({peer: [mine] for peer in others}, into, what)
        return [numbers if peer == self.rank else into[peer][0].tolist() for peer in range(self.world)]
