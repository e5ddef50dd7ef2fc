"""Training of linear models on many ranks by all-reduce of ``torch.distributed``."""

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

TIMEOUT_SECONDS = 300.0


class AllReduce:
    """The ranks of a process group that train one model together.

    Args:
        sync: ``"batch"`` or ``"epoch"``.
        timeout: Seconds to wait for the others.
    """

    def __init__(self, sync: str, timeout: float = TIMEOUT_SECONDS) -> None:
        self.sync, self._timeout = sync, timeout
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._group: Any = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))

    def sum(self, values: npt.NDArray[np.float64], what: str) -> npt.NDArray[np.float64]:
        """Return the sums over all ranks; raise PeerFailed if a rank died or sent nothing in time."""
        since, sums = time.monotonic(), torch.from_numpy(values)
        try:
            dist.all_reduce(sums, group=self._group)
        except RuntimeError as error:
            raise PeerFailed(
                f"rank {self.rank} of {self.world} waited {time.monotonic() - since:.1f} s for {what}: another rank "
                f"has died, or sent nothing for {self._timeout:g} s ({error}); start all ranks again, with "
                "warm_start= of a saved model"
            ) from error
        return values


def train(table: Any, *, sync: str = "batch", timeout: float = TIMEOUT_SECONDS, **settings: Any) -> Model:
    """Train a linear model on all ranks of ``torch.distributed``; each returns the same model.

    With ``sync="batch"`` gradients are averaged in each batch. The model equals that of one rank with the same
    ``batch_size``, up to rounding; ``batch_size`` and ``memory`` are totals over all ranks. Rates by weight
    (``step="auto"`` and others), ``l1``, ``max_norm`` and ``average`` need ``sync="epoch"``: each rank trains on its
    own rows, and after each epoch continues from the mean of all weights; ``batch_size`` and ``memory`` are per rank.

    Each rank reads its share of the rows; each also reads the whole label column once, and with ``standardize`` all
    features. A diverging learning rate is an error and is not reduced automatically. Rank 0 writes ``save``.

    Args:
        table: A source for `corgipile.open`; the same on all ranks.
        sync: Average gradients in each ``"batch"``, or weights after each ``"epoch"``.
        timeout: Seconds to wait for the others.
        settings: Arguments of `corgipile.train`.

    Raises:
        BadArgument: There is no process group, or a setting does not support ranks.
        PeerFailed: Another rank died, or sent nothing in time.
    """
    if not dist.is_initialized():
        raise BadArgument("torch.distributed has no process group: call init_process_group first")
    return train_among(TrainArguments(table, **settings).checked(), AllReduce(sync, timeout))


@contextmanager
def launched(sync: str) -> Iterator[AllReduce]:
    """Join the process group of torchrun's variables as one rank, until the context ends."""
    rank, world = (os.environ[name] for name in ("RANK", "WORLD_SIZE"))
    try:
        dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT_SECONDS))
    except (RuntimeError, ValueError) as error:
        raise PeerFailed(f"rank {rank} of {world} could not connect to the others: {error}") from error
    try:
        yield AllReduce(sync)
    finally:
        dist.destroy_process_group()
