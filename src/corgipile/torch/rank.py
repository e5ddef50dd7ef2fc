"""Which rank of how many this process is, as far as PyTorch and its launchers tell."""

import multiprocessing
import os
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch.distributed
from torch.utils.data import get_worker_info

from corgipile.errors import BadArgument
from corgipile.orders import Shard

__all__ = ["Place", "RankFinder", "dealt_by_accelerate"]


class Place(NamedTuple):
    """A process of a world."""

    rank: int
    world: int


@dataclass
class RankFinder:
    """Finds the place of a process when it is asked for, since a dataset is often made before its process group.

    What was given comes first, then ``torch.distributed`` if initialised, then RANK and WORLD_SIZE as torchrun sets
    them. A spawned DataLoader worker knows neither; it is told what its parent found when it was pickled there.

    Example:
        >>> RankFinder(rank=1, world=2).find()
        Place(rank=1, world=2)
    """

    rank: int | None = None
    world: int | None = None

    def __post_init__(self) -> None:
        self._told: tuple[int, Place] | None = None
        if (self.rank is None) != (self.world is None):
            raise BadArgument(f"rank and world must be given together, got rank {self.rank} and world {self.world}")
        if self.rank is not None:
            self.rank, self.world, *_ = Shard.checked(self.rank, self.world)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_told": (os.getpid(), self.find())}

    def find(self) -> Place:
        """Return the place of this process."""
        if self.rank is not None and self.world is not None:
            return Place(self.rank, self.world)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return Place(torch.distributed.get_rank(), torch.distributed.get_world_size())
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            return Place(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        parent = multiprocessing.parent_process()
        if self._told is not None and get_worker_info() is not None and parent and parent.pid == self._told[0]:
            return self._told[1]
        return Place(0, 1)


def dealt_by_accelerate(dataset: object) -> bool:
    """Say whether a loader of Accelerate, which begins an epoch, deals to the ranks what the dataset yields.

    It lets one rank iterate and sends parts to the others, or lets each take its turn of what all of them get.

    Example:
        >>> dealt_by_accelerate([1, 2, 3])
        False
    """
    state, loading = (sys.modules.get(f"accelerate.{name}") for name in ("state", "data_loader"))
    if state is None or loading is None:
        return False
    loader = state.GradientState().active_dataloader
    dealt = getattr(loader, "dataset", None)
    if isinstance(dealt, loading.IterableDatasetShard):
        return dealt.dataset is dataset
    return dealt is dataset and isinstance(loader, loading.DataLoaderDispatcher)
