"""What a device or bucket does is measured past the caches, remembered where that can be, and never trusted blindly."""

import errno
import json
import logging
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile import scratch
from corgipile.planner import Cell, Probe, choose, measure, places, probed
from corgipile.planner.measure import _make_monotonic, _rate, measure_rates


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "corgipile" / "probes"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("probe") / "rows.arrow"
    table = pa.table({"x": np.random.default_rng(0).random(6 << 20), "label": np.arange(6 << 20) // (1 << 20)})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=1 << 18)
    return path


MADE = Probe("somewhere", time.time(), (Cell(4096, 4, 1e8), Cell(65536, 4, 1e9)))


def test_a_device_is_measured_and_left_as_it_was(path):
    before = path.stat()
    known, threads = path.read_bytes()[:99], set(threading.enumerate())
    probe = measure_rates(cp.open(path), seconds=0.5)
    assert probe.place == places.place_of(cp.open(path))
    assert {cell.nbytes for cell in probe.cells} <= set(measure.SIZES)
    depths = tuple(dict.fromkeys(cell.at_once for cell in probe.cells if not cell.sequential))
    assert depths == measure.DEPTHS[: len(depths)]  # the others if there is time
    assert depths
    assert all(cell.rate > 0 for cell in probe.cells)
    assert probe.enough(4) in measure.SIZES
    assert probe.deep(65536) in measure.DEPTHS
    after = path.stat()
    assert (before.st_mtime_ns, before.st_size, known) == (after.st_mtime_ns, after.st_size, path.read_bytes()[:99])
    assert not set(threading.enumerate()) - threads


def test_where_the_page_cache_cannot_be_passed(path, monkeypatch):
    opened = os.open

    def refuse(name, flags, *more, **named):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no O_DIRECT here")
        return opened(name, flags, *more, **named)

    monkeypatch.setattr(os, "open", refuse)
    assert measure_rates(cp.open(path), seconds=0.2).cells


def test_time_is_kept_and_what_matters_most_comes_first(path, monkeypatch):
    reads = []

    class Slow(measure._Device):
        def read(self, plan, count):
            reads.append(plan)
            time.sleep(0.05)
            return super().read(plan, min(count, 4))

    monkeypatch.setattr(measure, "_Device", Slow)
    probe = measure_rates(cp.open(path), seconds=0.3)
    assert len(reads) <= 7
    assert probe.cells[0][:2] == (64 << 10, 4)
    assert probe.rate(4096, 4) > 0


def test_a_device_that_fails_is_not_known(path, monkeypatch):
    table = cp.open(path)

    def fail(*_):
        raise OSError(errno.EIO, "it is broken")

    monkeypatch.setattr(measure._Device, "read", fail)
    assert measure_rates(table) is None
    found = choose(table, memory="1MB", seconds=0.02)
    assert found.probe is None
    assert found.best.cold is None
    assert found.best.seconds == found.best.warm


def test_small_tables_and_those_in_memory_are_not_measured(tmp_path):
    assert measure_rates(cp.open({"x": np.arange(10)})) is None
    assert probed(cp.open({"x": np.arange(10)})) is None
    small = tmp_path / "small.npy"
    np.save(small, np.zeros((10, 2)))
    assert measure_rates(cp.open(small)) is None


def test_rates_between_and_beyond_what_was_measured():
    assert MADE.rate(4096, 1) == MADE.rate(1, 64) == pytest.approx(1e8)
    assert MADE.rate(1 << 30, 4) == pytest.approx(1e9)
    assert 1e8 < MADE.rate(16384, 4) < 1e9
    assert MADE.rate(4096, 4, sequential=True) == pytest.approx(1e8)  # as random reads, where nothing else is known
    cells = (Cell(4096, 1, 5.0), Cell(8192, 1, 3.0), Cell(8192, 4, 4.0))
    assert [cell.rate for cell in _make_monotonic(cells)] == [5.0, 5.0, 5.0]


def test_a_rate_is_bytes_by_seconds(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])

    class Asked:
        def read(self, plan, count):
            now[0] += 0.001 * count
            return count * plan[0]

    assert _rate(Asked(), (4096, 4, False), 0.1) == pytest.approx(4096e3)
    assert now[0] == pytest.approx(0.1, rel=0.1)


def test_it_is_remembered_once_and_measured_anew_when_asked(path, cache, monkeypatch):
    table, times = cp.open(path), []
    made = Probe(places.place_of(table), time.time(), MADE.cells)
    monkeypatch.setattr("corgipile.planner.choice.measure_rates", lambda _: times.append(1) or made)
    assert probed(table, fresh=False) is None
    assert probed(table, may=False) is None
    assert probed(table) == probed(table) == made
    assert len(times) == 1
    assert probed(table, fresh=True) == made
    assert len(times) == 2
    (kept,) = cache.iterdir()
    assert json.loads(kept.read_text())["place"] == made.place


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[1, 2]",
        lambda text: text.replace("100000000.0", "900000000.0"),
        lambda text: text.replace('"version": 1', '"version": 2'),
        lambda text: text.replace("somewhere", "elsewhere"),
        lambda text: "[" * 9000,
        lambda text: "\x00" * 500,
    ],
)
def test_what_is_damaged_is_ignored_with_a_word(damage, cache, caplog):
    assert places.remember(MADE)
    assert places.recall(MADE.place) == MADE
    (kept,) = cache.iterdir()
    kept.write_text(damage(kept.read_text()))
    with caplog.at_level(logging.WARNING, "corgipile"):
        assert places.recall(MADE.place) is None
    assert "is damaged" in caplog.text
    assert places.remember(MADE)
    assert places.recall(MADE.place) == MADE


def test_what_is_old_is_measured_anew():
    assert places.remember(Probe(MADE.place, 5.0, MADE.cells))
    assert places.recall(MADE.place) is None


def test_a_folder_that_cannot_be_written_is_no_error(cache, caplog, monkeypatch):
    cache.parent.mkdir(parents=True)
    cache.write_text("a file, where a folder should be")
    with caplog.at_level(logging.WARNING, "corgipile"):
        assert not places.remember(MADE)
        assert places.recall(MADE.place) is None
    assert "cannot store" in caplog.text
    cache.unlink()

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with caplog.at_level(logging.WARNING, "corgipile"):
        assert not places.remember(MADE)
    assert os.strerror(errno.ENOSPC) in caplog.text
    assert not list(cache.iterdir())
    assert scratch.sweep(cache) == []


def test_without_a_home_or_with_a_relative_folder(monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with caplog.at_level(logging.WARNING, "corgipile"):
        assert not places.remember(MADE)
        assert places.recall(MADE.place) is None
    assert "home directory" in caplog.text


def test_two_that_remember_at_once_leave_one_whole_file(cache):
    code = """
import time
from corgipile.planner import Cell, Probe, places
for number in range(100):
    assert places.remember(Probe("somewhere", time.time(), (Cell(4096, 4, 1e8 + number),)))
"""
    runs = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    while any(run.poll() is None for run in runs):
        assert places.recall("somewhere") is None or places.recall("somewhere").cells
    assert [run.returncode for run in runs] == [0, 0]
    assert len(list(cache.iterdir())) == 1
