"""The laws that other packages check theirs by: they hold for ours, and are broken by what breaks them."""

import numpy as np
import pyarrow as pa
import pytest
from columns import make_rows

import corgipile as cp
from corgipile.orders import NAMES, Blocks, CorgiPile, FullShuffle, Key, NoShuffle, Riffle, named
from corgipile.tables import MemoryTable
from corgipile.testing import LawBroken, check_damaged, check_loader, check_order, check_pass, check_slots, check_table


class Losing(CorgiPile):
    """Leaves out the last row of a step."""

    def steps(self, blocks, key, start=0):
        for step in super().steps(blocks, key, start):
            yield step._replace(visit=step.visit[:-1])


class Hasty(CorgiPile):
    """Loads every step into the slots of the first."""

    def steps(self, blocks, key, start=0):
        for step in super().steps(blocks, key, start):
            first = min(step.into)
            yield step._replace(into=step.into - first, visit=step.visit - first)


class Same(CorgiPile):
    """Forgets its key."""

    def plan(self, blocks, key, start=0):
        return super().plan(blocks, key._replace(seed=0, epoch=0), start)


class Cycle(Riffle):
    """Lays blocks out by the golden ratio: one cycle, which begins elsewhere in each pass."""

    def block_order(self, blocks, key):
        places = np.arange(blocks.count) * 0.6180339887498949 + np.random.default_rng([key.seed, key.epoch]).random()
        return np.argsort(places % 1)


class Shifted(MemoryTable):
    """Takes the rows beside those asked for."""

    def take(self, rows, columns=None):
        return super().take((np.asarray(rows) + 1) % len(self), columns)


class Misplaced(MemoryTable):
    """Sends the kernel a row too far."""

    def location(self, columns):
        return super().location(columns) if len(self) < 2 else MemoryTable(self._rows.slice(1)).location(columns)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "no_shuffle"])
def test_ours_hold(name):
    check_order(named(name))


@pytest.mark.parametrize(
    ("order", "says"),
    [
        (Losing(), "times"),
        (Hasty(), "a slot is reused while"),
        (Same(), "seed 7, epoch 1 is seed 7, epoch 0"),
        (NoShuffle(), "seed 7, epoch 1 is seed"),
        (Cycle(), "repeated neighbours of blocks between epochs"),
    ],
)
def test_a_broken_order_is_told(order, says):
    with pytest.raises(LawBroken, match=says):
        check_order(order)


def test_parts_of_the_law_alone():
    order = FullShuffle(buffer=20).fit(100, 8.0, None)
    check_pass(order, Blocks(100, even=1), Key(3))
    check_slots(order, Blocks(100, even=1), Key(3))


def test_a_broken_table_is_told():
    rows = make_rows(50)
    check_table(MemoryTable(rows), rows)
    with pytest.raises(LawBroken, match="rows differ from the written ones"):
        check_table(Shifted(rows), rows)
    with pytest.raises(LawBroken, match="must have 51 rows, got 50"):
        check_table(MemoryTable(rows), make_rows(51))
    with pytest.raises(LawBroken, match="the kernel's location of"):
        check_table(Misplaced(rows), rows)


def test_an_error_must_name_the_file(tmp_path):
    path = tmp_path / "a.arrow"
    path.write_bytes(b"ARROW1\0\0 and no more")
    check_damaged(path, lambda: cp.open(path))
    with pytest.raises(LawBroken, match="must name"):
        check_damaged(tmp_path / "b.arrow", lambda: cp.open(path))


def test_a_loader_that_forgets_is_told():
    rows = cp.open(pa.table({"x": list(range(100))}))

    class Forgetful(cp.Loader):
        def load_state_dict(self, state):
            super().load_state_dict({**state, "segments": [], "step": 0, "offset": 0})

    check_loader(lambda: cp.Loader(rows, batch_size=8, seed=3))
    with pytest.raises(LawBroken, match="resumed after 1 batches must yield 12 batches, got 13"):
        check_loader(lambda: Forgetful(rows, batch_size=8, seed=3))
