"""Ctrl-C at any moment stops a statement that runs in a thread."""

import threading

import pytest

from corgipile.sql import runner


class Hangup(KeyboardInterrupt):
    """An interrupt other than Ctrl-C."""


def test_ctrl_c_before_a_statement_begins_lets_it_not_begin(monkeypatch):
    begun, held, threads = [], threading.Event(), []

    class Slow(threading.Thread):
        def start(self):
            threads.append(self)
            raise KeyboardInterrupt

        def run(self):
            held.wait(60)
            super().run()

    monkeypatch.setattr(runner, "Thread", Slow)
    stopped = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        runner.interruptible(lambda: begun.append("told"), lambda: begun.append("run"), stopped)
    assert stopped.is_set()
    held.set()
    threading.Thread.start(threads[0])
    threads[0].join(60)
    assert begun == []


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Hangup])
def test_ctrl_c_pressed_again_leaves_no_statement_behind(monkeypatch, kind):
    end, ended, told = threading.Event(), [], []

    def work():
        assert end.wait(60)
        ended.append(True)

    def interrupt():
        told.append(True)
        if len(told) == 3:
            end.set()
        raise kind if len(told) < 3 else OSError

    def waits(futures, seconds):
        if not told and threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return real(futures, seconds)

    real = runner.wait
    monkeypatch.setattr(runner, "wait", waits)
    with pytest.raises(kind):
        runner.interruptible(interrupt, work, threading.Event())
    assert ended == [True]
    assert len(told) >= 3
