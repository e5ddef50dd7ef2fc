"""Ray integration: datasets for Ray Train with checkpoints, shuffled blocks for Ray Data, tables written by tasks."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.conversion import tasks as conversion
from corgipile.conversion.tasks import Deal, Merge, Write, Written
from corgipile.errors import BadArgument, MissingExtra
from corgipile.loader import Loader
from corgipile.outputs import PathLike
from corgipile.relayout import tasks as relayout
from corgipile.sizes import Size, parse_bytes, whole
from corgipile.tables import open as open_table
from corgipile.torch import CorgiPileDataset

try:
    import ray.train
    from ray.data import Datasource
    from ray.data.block import BlockMetadata
    from ray.data.datasource import ReadTask
    from ray.exceptions import RayTaskError
except ImportError as error:
    raise MissingExtra(f"corgipile.ray needs Ray: pip install 'corgipile[ray]' ({error})") from error

__all__ = ["STATE", "ShuffledDatasource", "convert", "dataset", "reshuffle", "save"]

STATE = "corgipile.json"  # file name in a checkpoint's folder
BLOCK_BYTES = 8 << 20  # size of Ray Data's blocks


def dataset(table: Any, *, checkpoint: Any = None, **settings: Any) -> CorgiPileDataset:
    """Return the dataset of a Ray Train worker: its share of each epoch, resumed from the checkpoint.

    Call it in the function that a ``TorchTrainer`` runs. Rank and world come from ``ray.train.get_context()``. If the
    trainer resumes from a checkpoint that `save` wrote, the dataset does too, for any number of workers.

    Args:
        table: A source for `corgipile.open`, such as a path that every worker can read.
        checkpoint: The checkpoint to resume from; None: that of ``ray.train.get_checkpoint()``, if any.
        settings: Other arguments of `corgipile.torch.CorgiPileDataset`; ``global_batches="fixed"`` keeps batches the
            same if the number of workers changes.

    Raises:
        BadArgument: The caller is not a worker, or passes rank or world.
        StateMismatch: The checkpoint belongs to another table, order or seed.
    """
    if wrong := {"rank", "world"} & settings.keys():
        raise BadArgument(f"Ray Train sets {' and '.join(sorted(wrong))}: leave them out")
    try:
        context = ray.train.get_context()
        rank, world = context.get_world_rank(), context.get_world_size()
    except (RuntimeError, AttributeError) as error:
        raise BadArgument(f"corgipile.ray.dataset must be called in a TorchTrainer's function: {error}") from error
    if rank is None or world is None:
        raise BadArgument("corgipile.ray.dataset must be called in a TorchTrainer's function: there is no worker here")
    made = CorgiPileDataset(table, rank=rank, world=world, **settings)
    checkpoint = ray.train.get_checkpoint() if checkpoint is None else checkpoint
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            saved = Path(folder) / STATE
            if saved.exists():
                made.load_state_dict(json.loads(saved.read_text()))
    return made


def save(made: CorgiPileDataset, folder: str | os.PathLike[str], batches: int | None = None) -> "ray.train.Checkpoint":
    """Write a dataset's state to a folder, and return the folder as a checkpoint for ``ray.train.report``.

    All workers have the same state, so one of them may report it.

    Args:
        made: The dataset.
        folder: The folder, which may hold the model too.
        batches: Batches that the training loop got in this iteration; required if a DataLoader has workers.
    """
    (Path(folder) / STATE).write_text(json.dumps(made.state_dict(batches)))
    return ray.train.Checkpoint.from_directory(folder)


class ShuffledDatasource(Datasource):  # type: ignore[misc]  # Ray has no types
    """One epoch of a table for Ray Data, as blocks of rows in visiting order.

    ``ray.data.read_datasource(ShuffledDatasource(path, seed=1, epoch=3))`` is a Dataset that needs no further shuffle:
    each task runs an order over a share of the table, within a budget, and yields the visited rows. Each row is
    visited once.

    Args:
        table: A source for `corgipile.open`, such as a path that every node can read.
        order: An order of `corgipile.orders`, or its name.
        memory: Budget of a task for rows in memory.
        block_rows: Rows of Ray Data's blocks; None: 8 MB of rows.
        epoch: Number of the epoch.
        settings: Other arguments of `corgipile.Loader`, such as ``seed`` and ``columns``.
    """

    def __init__(
        self,
        table: Any,
        *,
        order: Any = "auto",
        memory: Size = "64MB",
        block_rows: int | None = None,
        epoch: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__()
        if wrong := {"rank", "world", "worker", "workers", "format", "batch_size"} & settings.keys():
            raise BadArgument(
                f"a ShuffledDatasource divides the table among tasks: leave out {', '.join(sorted(wrong))}"
            )
        opened = open_table(table)
        self._rows, self._bytes = len(opened), int(opened.nbytes)
        each = max(1, self._bytes // max(1, self._rows))
        self._block = max(1, BLOCK_BYTES // each) if block_rows is None else whole(block_rows, "block_rows", 1)
        self._memory = parse_bytes(memory, whole=float(self._bytes))
        self._source, self._epoch = table, whole(epoch, "epoch", 0)
        self._settings = {"order": order, **settings}

    def estimate_inmemory_data_size(self) -> int:
        """Return the bytes of all rows."""
        return self._bytes

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Return the tasks, which divide the epoch."""
        tasks = max(1, min(parallelism, self._rows // self._block))
        shares = [
            {**self._settings, "worker": task, "workers": tasks, "memory": self._memory * tasks}
            for task in range(tasks)
        ]
        size = BlockMetadata(self._rows // tasks, self._bytes // tasks, None, None)
        read = [partial(_blocks, self._source, self._block, self._epoch, share) for share in shares]
        return [ReadTask(read_task, size, per_task_row_limit=per_task_row_limit) for read_task in read]


def _blocks(table: Any, rows: int, epoch: int, share: Mapping[str, Any]) -> Iterable[pa.Table]:
    """Yield a task's rows as tables of up to ``rows`` rows."""
    with Loader(table, batch_size=rows, format="arrow", **share) as loader:
        loader.set_epoch(epoch)
        for batch in loader:
            yield pa.Table.from_batches([batch])


def reshuffle(table: Any, out: PathLike, **settings: Any) -> int:
    """Write a table in uniformly random order, by Ray tasks; return the number of rows.

    Piles wait in Ray's memory, which spills to disk. The output equals that of `corgipile.reshuffle` on one machine
    with the same ``memory`` and ``seed``.

    Args:
        table: A source for `corgipile.open`: files that every node can read.
        out: A folder that every node can write, or ``rows-%05d.arrow`` for the files in one.
        settings: Arguments of `corgipile.relayout.tasks.reshuffle`: ``memory`` of a task ("1GB"), ``seed``, ``to``,
            sizes.

    Raises:
        BadArgument: The output is a single file, or a setting is wrong.
        WriteFailed: This machine does not see a task's output.
    """
    return relayout.reshuffle(_Tasks(), table, out, **settings)


def convert(table: Any, out: PathLike, **settings: Any) -> int:
    """Write a table in another format, by Ray tasks, in the table's order; return the number of rows.

    Args:
        table: A source for `corgipile.open`: files that every node can read.
        out: A folder that every node can write, or ``rows-%05d.parquet`` for the files in one.
        settings: Arguments of `corgipile.conversion.tasks.convert`, which are those of `corgipile.convert`.

    Raises:
        BadArgument: The output is a single file, or a setting is wrong.
        WriteFailed: This machine does not see a task's output.
    """
    return conversion.convert(_Tasks(), table, out, **settings)


class _Tasks:
    """Runs tasks in Ray; dealt piles are Ray objects, which merging tasks fetch one by one."""

    largest = 1 << 40

    def each(self, write: Write, tasks: int) -> Sequence[Written]:
        shared = ray.put(write)
        results: Sequence[Written] = _wait([_write.remote(shared, task) for task in range(tasks)])
        return results

    def dealt(self, deal: Deal, tasks: int, merge: Merge, piles: int) -> Sequence[Written]:
        dealing, merging = ray.put(deal), ray.put(merge)
        parts = [_deal.options(num_returns=1 + piles).remote(dealing, task, piles) for task in range(tasks)]
        _wait([part[0] for part in parts])
        merged = [_merge.remote(merging, pile, [part[1 + pile] for part in parts]) for pile in range(piles)]
        results: Sequence[Written] = _wait(merged)
        return results


def _wait(references: Sequence[Any]) -> Any:
    """Wait for tasks; raise a task's error after all tasks have stopped."""
    try:
        return ray.get(references)
    except RayTaskError as error:
        _stop(references)
        raise error.cause from error
    except BaseException:
        _stop(references)
        raise


def _stop(references: Sequence[Any]) -> None:
    for reference in references:
        ray.cancel(reference)
    ray.wait(references, num_returns=len(references), fetch_local=False)


@ray.remote  # type: ignore[untyped-decorator]
def _write(write: Write, task: int) -> Written:
    return write(task)


@ray.remote  # type: ignore[untyped-decorator]
def _deal(deal: Deal, task: int, piles: int) -> list[Any]:
    """Return True, and for each pile None or its bytes, which tasks on the same node do not copy."""
    piles_data: list[Any] = [True] + [None] * piles
    for pile, rows in deal(task):
        piles_data[1 + pile] = np.frombuffer(rows, np.uint8)
    return piles_data


@ray.remote  # type: ignore[untyped-decorator]
def _merge(merge: Merge, pile: int, parts: Sequence[Any]) -> Written:
    return merge(pile, (pa.py_buffer(rows) for rows in map(ray.get, parts) if rows is not None))
