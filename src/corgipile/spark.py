"""Spark integration: reshuffles and conversions by its tasks. A `TorchDistributor` needs `corgipile.torch` only."""

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
FAILED = -1  # pile number of errors
BATCH_ROWS = 8  # rows, each a piece of a pile, per Arrow batch in Python


def reshuffle(table: Any, out: PathLike, **settings: Any) -> int:
    """Write a table in uniformly random order, by Spark tasks; return the number of rows.

    Tasks of ``mapInArrow`` read runs of rows and deal them to piles, Spark's shuffle gathers the piles, and one task
    per pile orders and writes it. Rows travel as Arrow bytes, which keeps their types. The output equals that of
    `corgipile.reshuffle` on one machine with the same ``memory`` and ``seed``.

    Args:
        table: A source for `corgipile.open`: files that every executor can read.
        out: A folder that driver and executors can write, or ``rows-%05d.arrow`` for the files in one.
        settings: Arguments of `corgipile.relayout.tasks.reshuffle`: ``memory`` of a task ("1GB"), ``seed``, ``to``,
            sizes.

    Raises:
        BadArgument: There is no session, the output is a single file, or a setting is wrong.
        WriteFailed: The driver does not see a task's output.
    """
    return relayout.reshuffle(_Tasks(), table, out, **settings)


def convert(table: Any, out: PathLike, **settings: Any) -> int:
    """Write a table in another format, by Spark tasks, in the table's order; return the number of rows.

    Args:
        table: A source for `corgipile.open`: files that every executor can read.
        out: A folder that driver and executors can write, or ``rows-%05d.parquet`` for the files in one.
        settings: Arguments of `corgipile.conversion.tasks.convert`, which are those of `corgipile.convert`.

    Raises:
        BadArgument: There is no session, the output is a single file, or a setting is wrong.
        WriteFailed: The driver does not see a task's output.
    """
    return conversion.convert(_Tasks(), table, out, **settings)


class _Tasks:
    """Runs tasks as jobs of the active session, with settings of their own."""

    largest = 128 << 20  # bytes of a piece: `BATCH_ROWS` of them must fit an Arrow batch of 2 GB

    def __init__(self) -> None:
        session = SparkSession.getActiveSession()
        if session is None:
            raise BadArgument("there is no Spark session: create one by SparkSession.builder.getOrCreate()")
        self._session = session.newSession()
        self._session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH_ROWS)

    def each(self, write: Write, tasks: int) -> Sequence[Written]:
        return _wait(self._numbers(tasks).mapInArrow(partial(_writing, write), COLUMNS))

    def dealt(self, deal: Deal, tasks: int, merge: Merge, piles: int) -> Sequence[Written]:
        dealt = self._numbers(tasks).mapInArrow(partial(_dealing, deal), COLUMNS)
        gathered = dealt.repartition(piles, "pile").sortWithinPartitions("pile", "task")
        return _wait(gathered.mapInArrow(partial(_merging, merge), COLUMNS))

    def _numbers(self, tasks: int) -> DataFrame:
        return self._session.range(0, tasks, 1, tasks)


def _wait(rows: DataFrame) -> Sequence[Written]:
    """Wait for tasks; raise a task's error."""
    done = sorted(rows.collect(), key=itemgetter(0))  # Spark's sort would run all tasks twice, first for a sample
    results = [pickle.loads(row["data"]) for row in done]  # noqa: S301 - made by our own tasks
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def _writing(write: Write, batches: Batches) -> Batches:
    for task in _tasks(batches):
        yield _row(task, task, _pickled(partial(write, task)))


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
        yield _row(pile, 0, next(data).to_pybytes() if pile == FAILED else _pickled(partial(merge, pile, data)))
        deque(data, 0)


def _tasks(batches: Batches) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _pickled(work: Callable[[], Written]) -> bytes:
    """Return a task's pickled result or error."""
    try:
        return pickle.dumps(work())
    except CorgiPileError as error:
        return pickle.dumps(error)


def _row(pile: int, task: int, data: pa.Buffer | bytes) -> pa.RecordBatch:
    ends = pa.py_buffer(np.array([0, len(data)], np.int32))
    column = pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(data)])
    columns = [pa.array([pile], pa.int32()), pa.array([task], pa.int32()), column]
    return pa.RecordBatch.from_arrays(columns, names=["pile", "task", "data"])
