"""Rank and world size of this process, from PyTorch and its launchers."""

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
    """Rank of a process and the number of processes."""

    rank: int
    world: int


@dataclass
class RankFinder:
    """Looks up a process's rank when needed, since datasets are often made before their process group.

    Explicit values come first, then ``torch.distributed`` if initialised, then RANK and WORLD_SIZE as set by torchrun.
    A spawned DataLoader worker has neither; it gets its parent's place by pickling.

    Example:
        >>> RankFinder(rank=1, world=2).find()
        Place(rank=1, world=2)
    """

    rank: int | None = None
    world: int | None = None

    def __post_init__(self) -> None:
        self._inherited: tuple[int, Place] | None = None
        if (self.rank is None) != (self.world is None):
            raise BadArgument(f"rank and world must be given together, got rank {self.rank} and world {self.world}")
        if self.rank is not None:
            self.rank, self.world, *_ = Shard.checked(self.rank, self.world)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_inherited": (os.getpid(), self.find())}

    def find(self) -> Place:
        """Return the rank and world of this process."""
        if self.rank is not None and self.world is not None:
            return Place(self.rank, self.world)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return Place(torch.distributed.get_rank(), torch.distributed.get_world_size())
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            return Place(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        parent = multiprocessing.parent_process()
        if (
            self._inherited is not None
            and get_worker_info() is not None
            and parent
            and parent.pid == self._inherited[0]
        ):
            return self._inherited[1]
        return Place(0, 1)


def dealt_by_accelerate(dataset: object) -> bool:
    """Return whether the loader of Accelerate that begins an epoch distributes a dataset's batches among ranks.

    It lets one rank iterate and sends parts to the others, or lets each rank pick every ``world``-th batch.

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
