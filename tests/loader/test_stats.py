"""Statistics of a running loader: consistent sums and times for all orders and tables."""

import threading
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import wait_for

import corgipile as cp
from corgipile.loader import Loader, LoaderStats

ROWS = 5000
NARROW = pa.table({"x": np.arange(ROWS), "y": np.arange(ROWS) / 7})
RAGGED = pa.table({"x": np.arange(ROWS), "t": ["word" * (i % 9) for i in range(ROWS)]})
WIDE = pa.table({"x": pa.FixedSizeListArray.from_arrays(np.zeros(40 * 9000, np.float32), 9000)})


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stats")
    for name, table in (("narrow", NARROW), ("ragged", RAGGED), ("wide", WIDE)):
        cp.convert(table, folder / f"{name}.arrow")
    cp.convert(NARROW, folder / "narrow.parquet")
    return folder


def checked(stats, loader, before=None):
    """Check the invariants; return the figures."""
    assert 0 <= stats.waited <= stats.seconds
    assert 0 <= stats.reader_waited <= stats.seconds
    assert 0 <= stats.steps_ahead <= loader.order.ahead + 1
    assert stats.resident_bytes >= 0
    assert stats.rows <= stats.batches * loader.batch_size
    assert stats.rows_per_second == (stats.rows / stats.seconds if stats.rows else 0)
    if before is not None and before.epoch == stats.epoch:
        assert (stats.seconds, stats.waited, stats.rows) >= (before.seconds, before.waited, before.rows)
        assert stats.bytes_read >= before.bytes_read
    return stats


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("name", ["narrow.arrow", "ragged.arrow", "wide.arrow", "narrow.parquet"])
@pytest.mark.parametrize("order", ["riffle", "no_shuffle", "sliding_window"])
def test_figures_of_an_epoch(tables, name, order, prefetch):
    loader = Loader(tables / name, batch_size=70, order=order, memory="2MB", prefetch=prefetch)
    assert loader.stats == LoaderStats(0)
    rows = len(loader.feeder.table)
    for epoch in range(2):
        seen, stats = 0, None
        for number, batch in enumerate(loader, 1):
            seen += len(batch["x"])
            stats = checked(loader.stats, loader, stats)
            assert (stats.epoch, stats.batches, stats.rows) == (epoch, number, seen)
        ended = checked(loader.stats, loader, stats)
        assert (ended.rows, ended.batches, ended.epoch) == (rows, len(loader), epoch)
        assert loader.stats == ended  # statistics are final
        assert ended.bytes_delivered == pytest.approx(rows * loader.feeder.row_bytes, abs=1)
        if "ragged" not in name:  # ragged rows count with their mean
            assert ended.bytes_read >= ended.bytes_delivered


def test_what_a_state_continues_is_counted_from_there(tables):
    loader = Loader(tables / "narrow.arrow", batch_size=64, order="riffle", memory="20KB")
    batches = iter(loader)
    for _ in range(10):
        next(batches)
    state = loader.state_dict()
    batches.close()
    assert checked(loader.stats, loader).batches == 10
    other = Loader(tables / "narrow.arrow", batch_size=64, order="riffle", memory="20KB")
    other.load_state_dict(state)
    rows = sum(len(batch["x"]) for batch in other)
    assert (other.stats.batches, other.stats.rows) == (len(other) - 10, rows) == (len(other) - 10, ROWS - 640)


@pytest.mark.parametrize("order", ["riffle", cp.orders.SlidingWindow(buffer=300)])
@pytest.mark.parametrize("name", ["narrow.arrow", "ragged.arrow"])
def test_a_slow_consumer_makes_the_reader_wait(tables, name, order):
    loader = Loader(tables / name, batch_size=64, order=order, memory="120KB")

    def waited():
        for number, _ in enumerate(loader):
            time.sleep(0.01 * (number < 20))
            checked(loader.stats, loader)
        return loader.stats.reader_waited

    wait_for(waited, "a reader that waits")


@given(st.integers(1, 400), st.integers(1, 60), st.integers(0, 3), st.integers(1, 3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_ranks_and_short_batches(rows, batch, prefetch, world, drop_last):
    table = pa.table({"x": np.arange(rows)})
    for rank in range(world):
        loader = Loader(
            table, batch_size=batch, prefetch=prefetch, rank=rank, world=world, drop_last=drop_last, memory="64KB"
        )
        seen = sum(len(made["x"]) for made in loader)
        assert (loader.stats.rows, loader.stats.batches) == (seen, loader.stats.batches)
        assert loader.stats.bytes_delivered == 8 * seen


def test_another_thread_may_ask(tables):
    loader, wrong, done = Loader(tables / "narrow.arrow", batch_size=16, memory="20KB"), [], threading.Event()

    def ask():
        while not done.is_set():
            try:
                if loader.stats.rows < 0:
                    wrong.append("negative")
            except Exception as error:  # noqa: BLE001 - whatever it is, the test must see it
                wrong.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    for _ in range(5):
        for _ in loader:
            pass
    done.set()
    asking.join()
    assert wrong == []
