"""A first-in, first-out thread pool."""

import contextlib
import os
import queue
import threading
from collections.abc import Callable

Task = Callable[[], None]
_Tasks = queue.SimpleQueue[Task | None]


class ThreadPool:
    """Runs tasks in threads, which start as tasks come and end with `stop`.

    The threads are daemons that hold only the queue, so they keep neither the process nor the pool's owner alive.

    Example:
        >>> pool, done = ThreadPool(2), queue.SimpleQueue()
        >>> pool.submit(lambda: done.put("fetched"))
        >>> done.get()
        'fetched'
        >>> pool.stop()
    """

    def __init__(self, threads: int) -> None:
        self.process = os.getpid()
        self._max_threads, self._threads = threads, list[threading.Thread]()
        self._tasks: _Tasks = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._stopped = False

    def submit(self, task: Task) -> None:
        """Queue a task, which must not raise. A stopped pool drops tasks."""
        with self._lock:
            if self._stopped:
                return
            self._tasks.put(task)
            if len(self._threads) < self._max_threads:
                thread = threading.Thread(target=_work, args=(self._tasks,), name="corgipile-fetch", daemon=True)
                self._threads.append(thread)
                thread.start()

    def stop(self, *, wait: bool = True) -> None:
        """Drop queued tasks and end the threads; ``wait`` for the running tasks."""
        if os.getpid() != self.process:
            return  # a fork does not have the pool's threads
        with self._lock:
            self._stopped = True
            with contextlib.suppress(queue.Empty):
                while True:
                    self._tasks.get_nowait()
            for _ in self._threads:
                self._tasks.put(None)
        for thread in self._threads if wait else ():
            if thread.is_alive() and thread is not threading.current_thread():  # Ctrl-C may keep a thread from starting
                thread.join()


def _work(tasks: _Tasks) -> None:
    while (task := tasks.get()) is not None:
        task()
        del task  # release it before the next one comes
