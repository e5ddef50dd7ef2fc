"""What is told of an order beforehand is what its batches have."""

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile import quality
from corgipile.orders import Blocks, CorgiPile, FullShuffle, Key, NoShuffle, Riffle
from corgipile.planner.mixing import followed, worst
from corgipile.quality.keys import Keys

ROWS = 12_000


@pytest.mark.parametrize("order", [Riffle(), Riffle(balance="label"), CorgiPile(block=20), FullShuffle(), NoShuffle()])
def test_the_deff_told_is_that_of_the_batches(order):
    labels = np.arange(ROWS) * 7 // ROWS
    table = cp.open(pa.table({"label": labels, "row": np.arange(ROWS)}))
    with cp.Loader(table, batch_size=100, order=order, memory="40KB", seed=5) as loader:
        feeder = loader.feeder
        mixing = followed(feeder.order, feeder.blocks, feeder.key(0), Keys(labels), 100)
        found = np.concatenate([batch["label"] for batch in loader])
    assert mixing.deff == quality.deff(found, 100)


@pytest.mark.parametrize(("block", "inside"), [(20, 8), (50, 20), (100, 40), (10, 200)])
@pytest.mark.parametrize("kind", [CorgiPile, Riffle])
def test_at_worst_is_at_worst(block, inside, kind):
    """Every block of one kind: on the average of 16 epochs orders mix so well at least, but for noise."""
    rows = 40_000
    order = kind(block=block, buffer=block * inside, ahead=0).fit(rows, 8, None)
    blocks = Blocks(rows, even=block)
    told = worst(order, blocks, 100)
    kinds = np.random.default_rng(0).permutation(rows // block) % 2
    keys = Keys(np.repeat(kinds, block))
    found = np.mean([followed(order, blocks, Key(1, epoch), keys, 100).deff for epoch in range(16)])
    assert found <= told * 1.3
    assert kind is Riffle or found >= told * 0.7  # of CorgiPile it is the value, not a bound


def test_runs_are_counted():
    whole = CorgiPile(block=50, buffer=500).fit(1000, 8, None)
    assert followed(whole, Blocks(1000, even=50), Key(0), None, 10).runs * 1000 <= 20
    single = FullShuffle(buffer=10).fit(1000, 8, None)
    assert followed(single, Blocks(1000, even=1), Key(0), None, 10).runs > 0.9
