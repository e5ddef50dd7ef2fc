"""Trials tell the seconds of epochs from their beginnings: of rows cached, and of rows that the device was read for."""

import math
import os

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
    """Let the device tell these bytes, one after the other, again and again."""
    count = [0]

    def told():
        count[0] += 1
        return read[(count[0] - 1) % len(read)]

    monkeypatch.setattr(trial, "_from_device", told)
    return count


def test_cached_rows_are_run_once_a_round(setting, gone, monkeypatch):
    asked = seen(monkeypatch, 5.0)
    for one in trial.tried(candidates([NoShuffle(), CorgiPile()], setting), setting):
        assert 0 < one.warm < 60
        assert one.cold is None
    assert asked == [2 * 2 * trial.ROUNDS]
    assert gone == []


@pytest.mark.parametrize("read", [math.nan, 1000.0])
def test_rows_that_came_in_part_or_unseen_are_run_again(read, setting, gone, monkeypatch):
    asked = seen(monkeypatch, 0.0, read, 0.0, 0.0)
    (one,) = trial.tried(candidates([NoShuffle()], setting), setting)
    assert (one.warm > 0, one.cold) == (True, None)
    assert asked == [4 * trial.ROUNDS]
    assert gone == []


def test_rows_that_all_came_from_the_device_tell_the_cold_time_and_are_let_go_of(setting, gone, monkeypatch):
    seen(monkeypatch, 0.0, 1e9, 0.0, 0.0)
    (one,) = trial.tried(candidates([NoShuffle()], setting), setting)
    assert one.warm > 0
    assert one.cold > 0
    assert gone == [(0, 0, 4)] * trial.ROUNDS
    (told,) = trial.predicted([one], None, setting, cached=False)
    assert told.seconds == told.cold == one.cold
    (told,) = trial.predicted([one], None, setting, cached=True)
    assert told.seconds == one.warm


def test_an_epoch_goes_on_as_after_the_first_buffer():
    assert trial._Begun([(4, 8.0)], 0.0).seconds(10) == pytest.approx(20)
    jerks = [(1, 1.0), (2, 1.1), (3, 1.2), (5, 2.2), (7, 3.2)]
    assert trial._Begun(jerks, 0.0).seconds(107) == pytest.approx(3.2 + 50)
