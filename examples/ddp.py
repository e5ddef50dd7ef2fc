"""Data-parallel training by two CPU processes, by every order: each rank reads its share of one table.

Run it as it is and it starts its own processes, or by ``torchrun --nproc-per-node 2 examples/ddp.py``. Nothing but the
process group says which rank a process is: the dataset finds rank and world, deals blocks by the shared seed, and gives
every rank the same number of batches.
"""

import os
import socket
import tempfile
from functools import partial
from pathlib import Path

from comparing import Task, compare, learning, options
from images import CLASSES, Images, tensors
from torch import distributed as dist
from torch import multiprocessing, nn

SETTINGS = {"rows": 2000, "epochs": 4, "width": 64, "batch": 16, "rate": 3e-3, "ranks": 2}


def network(width: int) -> nn.Sequential:
    """Make two convolutions and two dense layers."""
    return nn.Sequential(
        *(nn.Conv2d(1, width // 4, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(width // 4, width // 2, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten()),
        *(nn.Linear(8 * width, width), nn.ReLU(), nn.Linear(width, CLASSES)),
    )


def work() -> None:
    """Compare the orders, as one rank of several; rank 0 makes the files and prints."""
    settings = options(__doc__ or "", **SETTINGS)
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory(prefix="corgipile-ddp-") as folder:
        shared = [Images.load(Path(folder), settings.data, settings.rows) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(shared)
        images = shared[0]
        model = partial(network, settings.width)
        compare(Task(images.train, images.test, images.rows, model, tensors, *learning(settings)))
        dist.barrier()  # the files go when rank 0 leaves
    dist.destroy_process_group()


def started(rank: int, ranks: int, port: int) -> None:
    """Be one of the processes, told so as torchrun tells it."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    work()


def main() -> None:
    """Work as told by torchrun, or start the processes."""
    if "RANK" in os.environ:
        work()
        return
    ranks = options(__doc__ or "", **SETTINGS).ranks
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(started, (ranks, port), nprocs=ranks)


if __name__ == "__main__":
    main()
