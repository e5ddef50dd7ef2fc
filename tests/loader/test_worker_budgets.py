"""Workers divide a budget, in bytes or as the buffer of an order."""

import numpy as np
import pyarrow as pa
import pytest

from corgipile.loader import buffered_reader
from corgipile.loader.budget import columns_of, fit
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.orders import CorgiPile, GlobalBatches, Riffle, Shard, SlidingWindow
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


def over_budget(order, workers):
    """Return by how much the buffers of all workers exceed the memory that they share."""
    held = 0.0
    for worker in range(workers):
        with BufferedReader(TABLE, order=order, memory=MEMORY, shard=Shard(worker=worker, workers=workers)) as reader:
            held += reader.slots * COLUMNS.row_bytes
    return held / MEMORY


@pytest.mark.parametrize(
    "order", [CorgiPile(block=10), Riffle(block=10), SlidingWindow()], ids=lambda order: order.name
)
def test_a_budget_that_is_not_divided_breaks_the_law(order, monkeypatch):
    assert over_budget(order, 3) <= 1
    divided = buffered_reader.fit
    monkeypatch.setattr(buffered_reader, "fit", lambda *args: divided(*args[:4], 1))
    assert over_budget(order, 3) > 1
