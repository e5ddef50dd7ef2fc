"""Whatever a signal comes between, nothing that was made is left."""

import contextlib
import os
import sys

import pytest

from corgipile import scratch


@contextlib.contextmanager
def stopped_at(count):
    """Raise KeyboardInterrupt before the count-th instruction that files and folders are made and removed by."""
    left = count

    def each(frame, event, _):
        nonlocal left
        frame.f_trace_opcodes = True
        left -= event == "opcode"
        if left == 0:
            left = -1
            raise KeyboardInterrupt
        return each

    def entered(frame, *_):
        ours = frame.f_code.co_filename == scratch.__file__ and frame.f_code.co_name not in {"sweep", "clean"}
        if ours:
            frame.f_trace_opcodes = True
        return each if ours else None

    sys.settrace(entered)
    try:
        yield
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_signal_between_any_two_instructions_leaves_nothing(tmp_path, kind):
    made = 0
    for count in range(1, 10_000):
        try:
            with stopped_at(count):
                with scratch.temporary(tmp_path / "a") if kind == "file" else scratch.folder(tmp_path, "a") as path:
                    made += path.exists()
                break
        except KeyboardInterrupt:
            scratch.clean()
            assert not list(tmp_path.iterdir()), count
    assert 10 < made < count < 9_999


def test_a_fork_removes_nothing_of_its_parent(tmp_path, monkeypatch):
    with scratch.temporary(tmp_path / "a") as path:
        with monkeypatch.context() as forked:
            forked.setattr(os, "getpid", lambda: 1)
            scratch.clean()
        assert path.exists()


def test_what_a_sweep_took_before_it_was_locked_is_made_anew(tmp_path, monkeypatch):
    real, swept = scratch._lock, []

    def lock(descriptor):
        if len(swept) < 2:
            swept.extend(scratch.sweep(tmp_path))
        return real(descriptor)

    monkeypatch.setattr(scratch, "_lock", lock)
    with scratch.folder(tmp_path, "a") as room, scratch.temporary(tmp_path / "b") as file:
        assert room.is_dir()
        assert file.is_file()
        assert len(swept) == 2
    assert not list(tmp_path.iterdir())


def test_a_file_system_that_takes_no_files_is_an_error(tmp_path):
    """It says that a new file is not there, as it is said of one that another run swept away."""
    tries = []

    def refused(path):
        tries.append(path)
        raise FileNotFoundError(path)

    with pytest.raises(FileNotFoundError), scratch._locked_path(tmp_path, "a", "part", refused):
        pass
    assert len(set(tries)) == len(tries) > 1
    assert not [*tmp_path.iterdir()]


def test_many_new_files_in_one_folder_list_it_seldom(tmp_path, monkeypatch):
    listed, real = [], scratch.sweep
    monkeypatch.setattr(scratch, "sweep", lambda place: listed.append(len(list(place.iterdir()))) or real(place))
    for number in range(1000):
        with scratch.temporary(tmp_path / "index") as path:
            path.rename(tmp_path / str(number))
    assert sum(listed) <= 1000 * (scratch.SWEEP_SHARE + 8)
    (leftover := tmp_path / scratch.name_for("old", "part")).touch()
    for _ in range(1000 // scratch.SWEEP_SHARE + 1):
        with scratch.temporary(tmp_path / "index"):
            pass
    assert not leftover.exists()
