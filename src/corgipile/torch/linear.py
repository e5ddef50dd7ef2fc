"""Linear models on many ranks, which meet by all-reduce of ``torch.distributed``."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from corgipile.errors import BadArgument, PeerFailed
from corgipile.linear.model import Model
from corgipile.linear.train import train_among
from corgipile.settings import TrainArguments

__all__ = ["AllReduce", "launched", "train"]

TIMEOUT = 300.0


class AllReduce:
    """The ranks of a process group, as those who learn one model.

    Args:
        sync: ``"batch"`` or ``"epoch"``.
        timeout: Seconds to wait for the others.
    """

    def __init__(self, sync: str, timeout: float = TIMEOUT) -> None:
        self.sync, self._timeout = sync, timeout
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._group: Any = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))

    def sum(self, values: npt.NDArray[np.float64], what: str) -> npt.NDArray[np.float64]:
        """Return the sums over all ranks.

        Raises:
            PeerFailed: Another rank died, or sent nothing in time.
        """
        since, found = time.monotonic(), torch.from_numpy(values)
        try:
            dist.all_reduce(found, group=self._group)
        except RuntimeError as error:
            raise PeerFailed(
                f"rank {self.rank} of {self.world} waited {time.monotonic() - since:.1f} s for {what}: another rank "
                f"has died, or sent nothing for {self._timeout:g} s ({error}); start all of them again, with "
                "warm_start= of a model that was saved"
            ) from error
        return values


def train(table: Any, *, sync: str = "batch", timeout: float = TIMEOUT, **settings: Any) -> Model:
    """Train a linear model on all ranks of ``torch.distributed``; each returns the same one.

    With ``sync="batch"`` the gradients of each batch are averaged: the model is that of one rank with the same
    ``batch_size``, which is that of all ranks together, as ``memory`` is, but for the rounding of sums. Rates by weight
    (``step="auto"`` and others), ``l1``, ``max_norm`` and ``average`` are no matter of mean gradients: with
    ``sync="epoch"`` each rank learns from its own rows as if it were alone, and after each epoch goes on from the mean
    of all ranks' weights;
    ``batch_size`` and ``memory`` are then a rank's.

    Each rank reads its part of the rows; the label column, and with ``standardize`` the features, are read wholly by
    each once. A learning rate that diverges is an error and not tried anew at a fifth. Rank 0 writes ``save``.

    Args:
        table: What `corgipile.open` takes; the same on all ranks.
        sync: When ranks meet.
        timeout: Seconds to wait for the others.
        settings: Those of `corgipile.train`.

    Raises:
        BadArgument: There is no process group, or the settings do not go with ranks.
        PeerFailed: Another rank died, or sent nothing in time.
    """
    if not dist.is_initialized():
        raise BadArgument("there is no process group: call torch.distributed.init_process_group first")
    return train_among(TrainArguments(table, **settings).checked(), AllReduce(sync, timeout))


@contextmanager
def launched(sync: str) -> Iterator[AllReduce]:
    """Be the rank that the launcher says: a process group while it lasts, of the variables that torchrun sets."""
    rank, world = (os.environ[name] for name in ("RANK", "WORLD_SIZE"))
    try:
        dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT))
    except (RuntimeError, ValueError) as error:
        raise PeerFailed(f"rank {rank} of {world} did not meet the others: {error}") from error
    try:
        yield AllReduce(sync)
    finally:
        dist.destroy_process_group()
