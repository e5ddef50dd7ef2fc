"""Requests of a step's rows from tables."""

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
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
