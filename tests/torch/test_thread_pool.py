"""A crew runs what it is given, by as many threads as allowed, and forgets the rest when stopped."""

import os
import queue
import threading

import pytest

pytest.importorskip("torch")
Crew = pytest.importorskip("corgipile.torch.thread_pool").Crew


def test_tasks_run_in_their_order_by_one_thread():
    crew, seen, done = Crew(1), [], threading.Event()
    for i in range(50):
        crew.submit(lambda i=i: seen.append(i))
    crew.submit(done.set)
    assert done.wait(10)
    crew.stop()
    assert seen == list(range(50))


def test_stopping_forgets_what_waits_and_waits_for_what_runs():
    crew, started, release = Crew(1), threading.Event(), threading.Event()
    seen = []

    def slow():
        started.set()
        release.wait(10)
        seen.append("slow")

    crew.submit(slow)
    crew.submit(lambda: seen.append("never"))
    assert started.wait(10)
    threading.Timer(0.05, release.set).start()
    crew.stop()
    assert seen == ["slow"]
    crew.submit(lambda: seen.append("late"))
    crew.stop()
    assert seen == ["slow"]


def test_a_task_may_stop_its_own_crew():
    crew, done = Crew(2), queue.SimpleQueue()

    def stop():
        crew.stop()
        done.put("done")

    crew.submit(stop)
    assert done.get(timeout=10)


def test_a_fork_leaves_the_parents_threads_alone(monkeypatch):
    crew, done = Crew(1), queue.SimpleQueue()
    monkeypatch.setattr(os, "getpid", lambda: crew.process + 1)
    crew.stop()
    monkeypatch.undo()
    crew.submit(lambda: done.put("done"))
    assert done.get(timeout=10)
    crew.stop()
