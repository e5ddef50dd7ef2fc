"""Requests of a step's rows from tables."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import corgipile as cp
from corgipile.orders import CorgiPile
from corgipile.tables import MemoryTable


class Counting(MemoryTable):
    """A table that counts its requests."""

    asked = 0

    def read(self, *args):
        self.asked += 1
        return super().read(*args)

    def take(self, *args):
        self.asked += 1
        return super().take(*args)


@pytest.mark.parametrize("order", ["riffle", "corgipile", "block_only", "balanced"])
@pytest.mark.parametrize("ragged", [True, False])
def test_blocks_of_few_rows_are_not_asked_for_one_by_one(order, ragged):
    rows = 20_000
    numbers = np.arange(rows)
    x = [f"row {row}" * (row % 3) for row in numbers] if ragged else numbers / 2
    table = Counting(pa.table({"x": x, "label": numbers}))
    with cp.Loader(table, batch_size=256, order=order, memory="1MB", seed=1) as loader:
        table.asked = 0
        batches = [(batch["x"], batch["label"]) for batch in loader]
        assert loader.order.block_rows <= 256 or order == "block_only"
    assert table.asked < rows / 100
    seen = np.concatenate([labels for _, labels in batches])
    assert (np.sort(seen) == numbers).all()
    found = np.concatenate([values for values, _ in batches])
    assert list(found) == [x[row] for row in seen]


@pytest.mark.parametrize("kind", ["memory", "text.arrow", "plain.arrow", "parquet", "csv"])
@pytest.mark.parametrize("block", [3, 300])
def test_batches_hold_the_rows_that_the_order_visits(tmp_path, kind, block):
    """By every reader, in steps of many short runs and of a few long ones."""
    rows, source = 2500, tmp_path / kind
    table = pa.table({"row": np.arange(rows), "x": [f"row {row}" * (row % 4) for row in range(rows)]})
    table = table.drop_columns("x") if kind == "plain.arrow" else table
    if kind == "csv":
        csv.write_csv(table, source)
    elif kind == "parquet":
        parquet.write_table(table, source, row_group_size=400)
    elif kind != "memory":
        cp.convert(table, source)
    order = CorgiPile(block=block, buffer=1200)
    with cp.Loader(table if kind == "memory" else source, batch_size=70, order=order) as loader:
        visited, batches = np.concatenate(list(loader.feeder.rows(0))), list(loader)
    assert np.array_equal(np.concatenate([batch["row"] for batch in batches]), visited)
    for batch in batches if "x" in table.column_names else ():
        assert list(batch["x"]) == [f"row {row}" * (row % 4) for row in batch["row"]]
