"""Tables of more blocks than a plan holds: larger blocks by default, and an error for given ones."""

import numpy as np
import pytest

from corgipile import orders
from corgipile.errors import BadArgument
from corgipile.orders import Blocks, GlobalBatches, Key

ROWS = 10**13
PLANNED = [orders.NoShuffle(), orders.BlockOnly(), orders.CorgiPile(), orders.Riffle(), orders.Riffle(batch=4096)]


@pytest.mark.parametrize("order", [*PLANNED, GlobalBatches(rows=256)], ids=lambda order: order.name)
@pytest.mark.parametrize("memory", [1 << 20, 1 << 26])
def test_huge_tables_get_blocks_that_a_plan_holds(order, memory):
    fitted = order.fit(ROWS, 8.0, memory // 8)
    blocks = Blocks(ROWS, even=fitted.block_rows)
    step = next(iter(fitted.steps(blocks, Key(0, batch=256))))
    rows = np.concatenate([np.arange(*extent) for extent in step.extents[:10].tolist()])
    assert rows.min() >= 0
    assert rows.max() < ROWS
    assert fitted.resident(blocks) * 8 <= memory


@pytest.mark.parametrize("order", PLANNED, ids=lambda order: order.name)
def test_given_blocks_that_are_too_small_are_refused(order):
    with pytest.raises(BadArgument, match="block must have at least 18627 rows in a table of 10000000000000, got 10"):
        orders.order.with_sizes(order, block=10).fit(ROWS, 8.0, 1 << 27)
