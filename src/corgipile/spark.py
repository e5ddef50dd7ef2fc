"""Spark: tables shuffled and converted by its tasks. Ranks of a `TorchDistributor` need `corgipile.torch` alone."""

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.conversion import tasks as conversion
from corgipile.conversion.tasks import Deal, Merge, Write, Written
from corgipile.errors import BadArgument, CorgiPileError, MissingExtra
from corgipile.outputs import PathLike
from corgipile.relayout import tasks as relayout

try:
    from pyspark.sql import DataFrame, SparkSession
except ImportError as error:
    raise MissingExtra(f"corgipile.spark needs PySpark: pip install 'corgipile[spark]' ({error})") from error

__all__ = ["convert", "reshuffle"]

Batches = Iterable[pa.RecordBatch]
COLUMNS = "pile int, task int, data binary"
FAILED = -1  # pile of errors
TOGETHER = 8  # rows, each some of a pile, that Python gets at a time


def reshuffle(table: Any, out: PathLike, **settings: Any) -> int:
    """Write the rows of a table in an order of which each is equally likely, as tasks of Spark; return how many.

    Tasks of ``mapInArrow`` read runs of rows and deal them to piles, Spark's shuffle brings piles together, and a task
    for each orders and writes it. On the way rows are the bytes of Arrow, so that their types are kept. They come as
    `corgipile.reshuffle` writes them on one machine with the same ``memory`` and ``seed``.

    Args:
        table: What `corgipile.open` takes; files that every executor reaches.
        out: A folder that driver and executors reach, or ``rows-%05d.arrow`` for the files of one.
        settings: Others of `corgipile.relayout.tasks.reshuffle`: ``memory`` of a task ("1GB"), ``seed``, ``to``, sizes.

    Raises:
        BadArgument: There is no session, the output is one file, or a setting is wrong.
        WriteFailed: What a task wrote is not to be found here.
    """
    return relayout.reshuffle(_Tasks(), table, out, **settings)


def convert(table: Any, out: PathLike, **settings: Any) -> int:
    """Write a table in another format, as tasks of Spark, whose rows come in the order of the table; return how many.

    Args:
        table: What `corgipile.open` takes; files that every executor reaches.
        out: A folder that driver and executors reach, or ``rows-%05d.parquet`` for the files of one.
        settings: Others of `corgipile.conversion.tasks.convert`, which are those of `corgipile.convert`.

    Raises:
        BadArgument: There is no session, the output is one file, or a setting is wrong.
        WriteFailed: What a task wrote is not to be found here.
    """
    return conversion.convert(_Tasks(), table, out, **settings)


class _Tasks:
    """Runs tasks as those of jobs of the session at hand, under settings of their own."""

    def __init__(self) -> None:
        session = SparkSession.getActiveSession()
        if session is None:
            raise BadArgument("there is no session of Spark here: make one by SparkSession.builder.getOrCreate()")
        self._session = session.newSession()
        self._session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", TOGETHER)

    def each(self, write: Write, tasks: int) -> Sequence[Written]:
        return _had(self._numbers(tasks).mapInArrow(partial(_writing, write), COLUMNS))

    def dealt(self, deal: Deal, tasks: int, merge: Merge, piles: int) -> Sequence[Written]:
        dealt = self._numbers(tasks).mapInArrow(partial(_dealing, deal), COLUMNS)
        gathered = dealt.repartition(piles, "pile").sortWithinPartitions("pile", "task")
        return _had(gathered.mapInArrow(partial(_merging, merge), COLUMNS))

    def _numbers(self, tasks: int) -> DataFrame:
        return self._session.range(0, tasks, 1, tasks)


def _had(rows: DataFrame) -> Sequence[Written]:
    """Wait for tasks; an error of one is raised as it was there."""
    done = sorted(rows.collect(), key=itemgetter(0))  # by Spark, all tasks would run twice: first for a sample
    found = [pickle.loads(row["data"]) for row in done]  # noqa: S301 - of our own tasks
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return found


def _writing(write: Write, batches: Batches) -> Batches:
    for task in _tasks(batches):
        yield _row(task, task, _made(partial(write, task)))


def _dealing(deal: Deal, batches: Batches) -> Batches:
    for task in _tasks(batches):
        try:
            for pile, rows in deal(task):
                yield _row(pile, task, rows)
        except CorgiPileError as error:
            yield _row(FAILED, task, pickle.dumps(error))


def _merging(merge: Merge, batches: Batches) -> Batches:
    rows = (row for batch in batches for row in zip(batch[0].to_pylist(), batch[2], strict=True))
    for pile, parts in groupby(rows, itemgetter(0)):
        data = (scalar.as_buffer() for _, scalar in parts)
        yield _row(pile, 0, next(data).to_pybytes() if pile == FAILED else _made(partial(merge, pile, data)))
        deque(data, 0)


def _tasks(batches: Batches) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _made(work: Callable[[], Written]) -> bytes:
    """Return what a task returns, or the error that it ends with."""
    try:
        return pickle.dumps(work())
    except CorgiPileError as error:
        return pickle.dumps(error)


def _row(pile: int, task: int, data: pa.Buffer | bytes) -> pa.RecordBatch:
    ends = pa.py_buffer(np.array([0, len(data)], np.int32))
    column = pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(data)])
    columns = [pa.array([pile], pa.int32()), pa.array([task], pa.int32()), column]
    return pa.RecordBatch.from_arrays(columns, names=["pile", "task", "data"])
