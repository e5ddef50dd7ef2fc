"""Workers divide a budget, in bytes or as the buffer of an order."""

import numpy as np
import pyarrow as pa
import pytest

from corgipile.loader.budget import columns_of, fit
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.orders import CorgiPile, GlobalBatches, Riffle, Shard
from corgipile.tables import MemoryTable

ROWS, MEMORY = 40_000, 120_000
TABLE = MemoryTable(pa.table({"x": np.arange(ROWS, dtype=np.float64)}))
COLUMNS = columns_of(TABLE, None, None, None, None)


def held(order, memory, workers):
    fitted = fit(TABLE, order, memory, COLUMNS, workers)
    return fitted.order.resident(fitted.blocks) * COLUMNS.row_bytes


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("order", [CorgiPile(block=10), Riffle(block=10)])
def test_a_worker_holds_its_share_of_the_bytes(order, workers):
    assert MEMORY / workers / 2 < held(order, MEMORY, workers) <= MEMORY / workers
    with BufferedReader(TABLE, order=order, memory=MEMORY, shard=Shard(worker=0, workers=workers)) as reader:
        assert reader.limit == MEMORY // workers
        assert reader.slots * COLUMNS.row_bytes <= MEMORY / workers


@pytest.mark.parametrize("workers", [2, 5])
def test_a_worker_holds_its_share_of_the_buffer(workers):
    order = CorgiPile(block=10, buffer=10_000)
    assert 0.9 < held(order, None, 1) / (workers * held(order, None, workers)) < 1.1


def test_global_batches_do_not_depend_on_workers():
    order = GlobalBatches.of(Riffle(block=10), 100)
    assert held(order, MEMORY, 1) == held(order, MEMORY, 5)
