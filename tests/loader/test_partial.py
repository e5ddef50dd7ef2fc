"""Ranks that own blocks and exchange a fraction of them: each row once, mixing parts, resumable states."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.errors import BadArgument, StateMismatch
from corgipile.orders import (
    BlockOnly,
    CorgiPile,
    FullShuffle,
    NoShuffle,
    Partial,
    Reservoir,
    Riffle,
    described,
    restored,
)
from corgipile.testing import check_loader

ROWS, WORLD = 3001, 4
TABLE = pa.table(
    {"row": np.arange(ROWS), "label": np.arange(ROWS) * 3 // ROWS, "x": np.random.default_rng(0).random(ROWS)}
)
ORDERS = [
    Partial(fraction=0.2, block=16, buffer=160),
    Partial(fraction=0.2, within=Riffle(balance="label"), block=16, buffer=160),
    Partial(fraction=0.2, within=FullShuffle(), unit=16),
    Partial(fraction=0.2, within=CorgiPile(block=8, buffer=80), unit=16),
    Partial(fraction=0.2, within=NoShuffle(), unit=16),
]


def loader(order, rank, world=WORLD, table=TABLE, **more):
    return cp.Loader(
        table, order=order, memory="1MB", batch_size=64, seed=5, rank=rank, world=world, columns=["row"], **more
    )


def rows_of(one):
    return np.concatenate([batch["row"] for batch in one])


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.title)
def test_ranks_visit_each_row_once_and_exchange_a_fraction(order):
    loaders = [loader(order, rank) for rank in range(WORLD)]
    before = None
    for _ in range(4):
        parts = [rows_of(one) for one in loaders]
        assert {len(part) for part in parts} == {-(-ROWS // WORLD)}
        counts = np.bincount(np.concatenate(parts), minlength=ROWS)
        assert counts.min() == 1
        assert counts.sum() - ROWS < WORLD
        for rank, part in enumerate(parts):
            if before is not None:
                kept = len(np.intersect1d(part, before[rank])) / len(part)
                assert 0.75 < kept < 0.87  # a fifth left, in blocks of 16, and the rest of the table once
        before = parts


def test_a_rank_begins_with_its_part_of_the_table():
    units = ROWS // (WORLD * 16) * 16
    assert set(rows_of(loader(ORDERS[0], 1)).tolist()) >= set(range(units, 2 * units))


def test_drop_last_repeats_nothing():
    parts = np.concatenate([rows_of(loader(ORDERS[0], rank, drop_last=True)) for rank in range(WORLD)])
    assert len(set(parts.tolist())) == len(parts) == (ROWS // WORLD) // 64 * 64 * WORLD


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.title)
def test_a_loader_goes_on_from_any_batch(order):
    def make():
        one = loader(order, 2)
        one.set_epoch(3)
        return one

    check_loader(make, stops=(0, 1, 5))


def test_a_state_is_of_the_fraction_and_the_world():
    one = loader(ORDERS[0], 1)
    next(iter(one))
    state = json.loads(json.dumps(one.state_dict()))
    assert state["order"]["within"]["name"] == "riffle"
    with pytest.raises(StateMismatch, match="give order=Partial"):
        loader(Partial(fraction=0.3, block=16, buffer=160), 1).load_state_dict(state)
    with pytest.raises(StateMismatch, match="another world"):
        loader(ORDERS[0], 1, world=5).load_state_dict(state)


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.title)
def test_orders_are_described_and_restored(order):
    assert restored(json.loads(json.dumps(described(order)))) == order


def test_tables_in_row_groups(tmp_path):
    pq.write_table(TABLE, tmp_path / "t.parquet", row_group_size=100)
    order = Partial(fraction=0.5)
    for epoch in (0, 2):
        loaders = [loader(order, rank, 3, str(tmp_path / "t.parquet")) for rank in range(3)]
        for one in loaders:
            one.set_epoch(epoch)
        assert set(np.concatenate([rows_of(one) for one in loaders]).tolist()) == set(range(ROWS))


@pytest.mark.parametrize(("rows", "world"), [(1, 1), (2, 5), (5, 5), (7, 3), (17, 16)])
def test_few_rows_on_many_ranks(rows, world):
    table = pa.table({"row": np.arange(rows)})
    for epoch in range(3):
        parts = []
        for rank in range(world):
            one = loader(Partial(fraction=0.7), rank, world, table)
            one.set_epoch(epoch)
            parts.append(rows_of(one))
        counts = np.bincount(np.concatenate(parts), minlength=rows)
        assert {len(part) for part in parts} == {-(-rows // world)}
        assert counts.min() >= 1
        assert counts.max() <= -(-world // rows) + (rows >= world)


def test_what_cannot_be_within_is_an_error():
    for within in (Reservoir(), FullShuffle(unit="page"), "riffle", BlockOnly):
        with pytest.raises(BadArgument, match="within must be an order that visits single rows or blocks once"):
            Partial(within=within)
    with pytest.raises(BadArgument, match="fraction must be"):
        Partial(fraction=2)
