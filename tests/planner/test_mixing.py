"""What is told of an order beforehand is what its batches have."""

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile import quality
from corgipile.orders import Blocks, CorgiPile, FullShuffle, Key, NoShuffle, Riffle
from corgipile.planner import mixing
from corgipile.planner.labels import Labels
from corgipile.planner.mixing import simulate, worst
from corgipile.quality.spread import deff_of

ROWS = 12_000


@pytest.mark.parametrize("order", [Riffle(), Riffle(balance="label"), CorgiPile(block=20), FullShuffle(), NoShuffle()])
def test_the_deff_told_is_that_of_the_batches(order):
    labels = np.arange(ROWS) * 7 // ROWS
    table = cp.open(pa.table({"label": labels, "row": np.arange(ROWS)}))
    with cp.Loader(table, batch_size=100, order=order, memory="40KB", seed=5) as loader:
        feeder = loader.feeder
        rows = simulate(feeder.order, feeder.blocks, feeder.key(0), 100).rows
        batches = list(loader)
    assert (rows == np.concatenate([batch["row"] for batch in batches])).all()
    known, sketches = Labels.read(table, "label", [feeder.blocks])
    told = deff_of(known.of([rows])[0], None, 100)
    assert told == pytest.approx(quality.deff(np.concatenate([batch["label"] for batch in batches]), 100))
    if order.sketch_column:
        assert (sketches[0] == feeder.blocks.sketch).all()


@pytest.mark.parametrize(
    "order",
    [
        Riffle(block=40, buffer=40 * 100),
        Riffle(block=160, buffer=160 * 20, balance="label"),
        CorgiPile(block=40, buffer=40 * 60),
        FullShuffle(),
        NoShuffle(),
    ],
)
@pytest.mark.parametrize("world", [1, 3])
def test_stretches_tell_what_the_epoch_does(order, world, monkeypatch):
    rows, batch = 400_000, 64
    labels = np.arange(rows) * 5 // rows
    known, (sketch,) = Labels.read(cp.open({"label": labels}), "label", [Blocks(rows, even=160)])
    fitted = order.fit(rows, 8, None)
    blocks = Blocks(rows, even=fitted.block_rows, sketch=sketch if order.sketch_column else None)
    monkeypatch.setattr(mixing, "MAX_VISITS", rows)
    whole = simulate(fitted, blocks, Key(2, 0, 0, world), batch)
    monkeypatch.setattr(mixing, "MAX_VISITS", 1 << 15)
    some = simulate(fitted, blocks, Key(2, 0, 0, world), batch)
    assert len(whole.rows) == -(-rows // world)
    assert len(some.rows) == mixing.MAX_VISITS
    assert np.isin(some.rows, whole.rows).all()
    exact, told = (deff_of(keys, None, batch) for keys in known.of([whole.rows, some.rows]))
    assert told == pytest.approx(exact, rel=0.25, abs=0.1)
    assert some.runs == pytest.approx(whole.runs, rel=0.2)


@pytest.mark.parametrize("values", [["a", None, "b"] * 40, [True, False, None] * 40, [0.5, None, 2.25] * 40,
                                    list(range(2000)), [np.nan] * 8])  # fmt: skip
def test_any_label_is_read_by_parts(values):
    table = cp.open(pa.table({"label": pa.array(values, from_pandas=False)}))
    known, _ = Labels.read(table, "label", [])
    some = np.arange(len(values))[::-2]
    (keys,) = known.of([some])
    assert len(keys) == len(some)
    if known.classes is not None:
        assert known.mean.sum() == pytest.approx(1)
    found = keys.rows(slice(None))
    assert np.isfinite(found).all()
    assert found.shape == (len(some), len(known.mean))


@pytest.mark.parametrize(("block", "inside"), [(20, 8), (50, 20), (100, 40), (10, 200)])
@pytest.mark.parametrize("kind", [CorgiPile, Riffle])
def test_at_worst_is_at_worst(block, inside, kind):
    """Every block of one kind: so well do orders mix on the average of 16 epochs, but for noise."""
    rows = 40_000
    order = kind(block=block, buffer=block * inside, ahead=0).fit(rows, 8, None)
    blocks = Blocks(rows, even=block)
    kinds = np.repeat(np.random.default_rng(0).permutation(rows // block) % 2, block)
    visits = [simulate(order, blocks, Key(1, epoch), 100).rows for epoch in range(16)]
    found = np.mean([quality.deff(kinds[rows], 100) for rows in visits])
    told = np.mean([worst(rows, blocks, 100) for rows in visits])
    assert found == pytest.approx(told, rel=0.15)


def test_runs_are_counted():
    whole = CorgiPile(block=50, buffer=500).fit(1000, 8, None)
    assert simulate(whole, Blocks(1000, even=50), Key(0), 10).runs * 1000 <= 20
    single = FullShuffle(buffer=10).fit(1000, 8, None)
    assert simulate(single, Blocks(1000, even=1), Key(0), 10).runs > 0.9


@pytest.mark.parametrize("blocks", [1, 2, 5, 40])
def test_few_blocks_do_not_hide_that_rows_stay_as_they_lie(blocks):
    """One unit of a file may hold all rows, sorted: a pass through it mixes nothing, whatever blocks say."""
    rows, one = 20_000, Blocks(20_000, even=-(-20_000 // blocks))
    plain = NoShuffle().fit(rows, 8, None)
    assert worst(simulate(plain, one, Key(0), 256).rows, one, 256) > 150
    full = FullShuffle().fit(rows, 8, None)
    assert worst(simulate(full, one, Key(0), 256).rows, one, 256) == pytest.approx(1, abs=0.3)


def test_buffers_that_hold_much_of_a_table_are_filled_a_few_times(monkeypatch):
    filled = []

    def stretch(order, blocks, key, start, most):
        filled.append(most)
        return np.arange(most), 0.0

    rows = 4_000_000
    monkeypatch.setattr(mixing, "_stretch", stretch)
    order = FullShuffle(buffer=1_000_000).fit(rows, 8, None)
    simulate(order, Blocks(rows, even=1), Key(0), 256)
    assert len(filled) * order.slots(Blocks(rows, even=1)) <= max(8 * 1_100_000, 2 * rows)
    assert sum(filled) == pytest.approx(mixing.MAX_VISITS, rel=0.05)
