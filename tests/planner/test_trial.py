"""Trials tell the seconds of epochs from their beginnings: of rows cached, and of rows that the device was read for."""

import itertools
import math
import os
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.orders import CorgiPile, NoShuffle
from corgipile.planner import trial
from corgipile.planner.candidates import Setting, candidates

ROWS = 40_000


@pytest.fixture
def setting(tmp_path):
    table = pa.table({"x": np.arange(float(ROWS)), "label": np.arange(ROWS) % 2})
    with pa.ipc.new_file(str(tmp_path / "rows.arrow"), table.schema) as writer:
        writer.write_table(table)
    return Setting(cp.open(tmp_path / "rows.arrow"), "64KB", 100, "label", 1, 0.02, 0)


@pytest.fixture
def gone(monkeypatch):
    """Return what is let go of."""
    found = []
    monkeypatch.setattr(
        os, "posix_fadvise", lambda *given: found.append(given[1:]) if given[3] == 4 else None, raising=False
    )
    monkeypatch.setattr(os, "POSIX_FADV_DONTNEED", 4, raising=False)
    return found


def seen(monkeypatch, *read):
    """Let runs have read these shares from the device, one after the other, again and again; return what was run."""
    runs, run = [], trial._run

    def told(*given):
        runs.append(given)
        return run(*given)._replace(read=read[(len(runs) - 1) % len(read)])

    monkeypatch.setattr(trial, "_run", told)
    return runs


def test_cached_rows_are_run_once_a_round(setting, gone, monkeypatch):
    runs = seen(monkeypatch, 0.0)
    for one in trial.run_trials(candidates([NoShuffle(), CorgiPile()], setting), setting):
        assert 0 < one.warm < 60
        assert one.cold is None
    assert len(runs) == 2 * trial.ROUNDS
    assert gone == []


def test_a_first_batch_that_takes_longer_than_a_trial_is_not_the_pace_of_all(monkeypatch):
    clock = [0.0]

    class Slow(SimpleNamespace):
        def set_epoch(self, epoch):
            pass

        def __iter__(self):
            for at in itertools.count():
                clock[0] += 0.001 if at else 10.0
                yield at

    monkeypatch.setattr(trial, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    begun = trial._run(Slow(batch_size=10, feeder=SimpleNamespace(slots=1_000_000, bytes_read=0)), 0, 0.1)
    assert begun.seconds(1000) == pytest.approx(11, rel=0.01)


@pytest.mark.parametrize("read", [math.nan, 0.5])
def test_rows_that_came_in_part_or_unseen_are_run_again(read, setting, gone, monkeypatch):
    runs = seen(monkeypatch, read, 0.0)
    (one,) = trial.run_trials(candidates([NoShuffle()], setting), setting)
    assert (one.warm > 0, one.cold) == (True, None)
    assert len(runs) == 2 * trial.ROUNDS
    assert gone == []


def test_rows_that_all_came_from_the_device_tell_the_cold_time_and_are_let_go_of(setting, gone, monkeypatch):
    seen(monkeypatch, 1.0, 0.0)
    (one,) = trial.run_trials(candidates([NoShuffle()], setting), setting)
    assert one.cold >= one.warm > 0
    assert gone == [(0, 0, 4)] * trial.ROUNDS
    (told,) = trial.add_predictions([one], None, setting, cached=False)
    assert told.seconds == told.cold == one.cold
    (told,) = trial.add_predictions([one], None, setting, cached=True)
    assert told.seconds == one.warm


@pytest.mark.parametrize("device", [0, 1e9])
def test_a_device_is_tried_longer(device, setting, monkeypatch):
    clock, told = itertools.count(), itertools.count()
    monkeypatch.setattr(trial, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    monkeypatch.setattr(trial, "_device_bytes", lambda: device * next(told))
    with trial._loader(NoShuffle(), setting) as loader:
        begun = trial._run(loader, 0, 100.0)
    batches, seconds, _ = begun.marks[-1]
    assert batches == seconds
    assert batches == 1 + 100 * trial.MAX_DURATION if device else 100 <= batches < 150
    assert (begun.read > 1) == (device > 0)


def begun(*marks):
    return trial._Beginning([trial._Mark(*one) for one in marks], 1.0)


def test_an_epoch_goes_on_as_after_the_first_buffer():
    assert begun((4, 8.0, 0.0)).seconds(10) == pytest.approx(20)
    jerks = [(1, 1.0, 0.0), (2, 1.1, 0.0), (3, 1.2, 0.0), (5, 2.2, 0.0), (7, 3.2, 0.0)]
    assert begun(*jerks).seconds(107) == pytest.approx(3.2 + 50)


def test_a_cold_epoch_goes_on_as_fast_as_the_device_was_at_last():
    slow_at_first = [(at, 2.0 * at, 100.0 * at) for at in (1, 2, 3)] + [(at, 3.0 + at, 100.0 * at) for at in (4, 5, 6)]
    for share in (0.0, 0.5, 1.0):
        assert begun(*slow_at_first).cold(100, 10_000.0, share) == pytest.approx(9 + 94)


def test_pages_that_blocks_share_are_read_once_as_far_as_they_stay():
    marks = [(at, 1.5 * at, 150.0 * at) for at in range(1, 11)]  # half of each block's bytes again, beside it
    assert begun(*marks).cold(100, 10_000.0, 1.0) == pytest.approx(100)
    assert begun(*marks).cold(100, 10_000.0, 0.0) == pytest.approx(150)
    assert 100 < begun(*marks).cold(100, 10_000.0, 0.5) < 125  # most of what comes last is cached


def test_where_the_device_was_not_seen_last_rows_tell():
    assert begun(*((at, 2.0 * at, 100.0) for at in (1, 2, 3, 4))).cold(10, 1000.0, 1.0) == pytest.approx(20)
