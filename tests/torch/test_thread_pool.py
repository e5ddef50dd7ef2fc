"""A pool runs what it is given, by as many threads as allowed, and forgets the rest when stopped."""

import os
import queue
import threading

import pytest
from patience import PATIENCE, wait_for

pytest.importorskip("torch")
ThreadPool = pytest.importorskip("corgipile.torch.thread_pool").ThreadPool


def test_tasks_run_in_their_order_by_one_thread():
    pool, seen, done = ThreadPool(1), [], threading.Event()
    for i in range(50):
        pool.submit(lambda i=i: seen.append(i))
    pool.submit(done.set)
    assert done.wait(PATIENCE)
    pool.stop()
    assert seen == list(range(50))


def test_stopping_forgets_what_waits_and_waits_for_what_runs():
    pool, started, release = ThreadPool(1), threading.Event(), threading.Event()
    seen = []

    def slow():
        started.set()
        release.wait(PATIENCE)
        seen.append("slow")

    pool.submit(slow)
    pool.submit(lambda: seen.append("never"))
    assert started.wait(PATIENCE)

    def release_once_stopped():
        wait_for(lambda: pool._stopped)
        with pool._lock:  # what waits has been forgotten
            release.set()

    threading.Thread(target=release_once_stopped).start()
    pool.stop()
    assert seen == ["slow"]
    pool.submit(lambda: seen.append("late"))
    pool.stop()
    assert seen == ["slow"]


def test_a_task_may_stop_its_own_pool():
    pool, done = ThreadPool(2), queue.SimpleQueue()

    def stop():
        pool.stop()
        done.put("done")

    pool.submit(stop)
    assert done.get(timeout=PATIENCE)


def test_a_fork_leaves_the_parents_threads_alone(monkeypatch):
    pool, done = ThreadPool(1), queue.SimpleQueue()
    monkeypatch.setattr(os, "getpid", lambda: pool.process + 1)
    pool.stop()
    monkeypatch.undo()
    pool.submit(lambda: done.put("done"))
    assert done.get(timeout=PATIENCE)
    pool.stop()
