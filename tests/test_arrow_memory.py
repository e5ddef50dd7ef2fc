"""Arrow's allocator is the system's while asked for, and what it was afterwards."""

import threading

import pyarrow as pa
from patience import PATIENCE

from corgipile.arrow_memory import frugal


def test_threads_that_overlap_leave_the_usual_allocator():
    usual = pa.default_memory_pool().backend_name
    inside, leave = threading.Event(), threading.Event()

    def stay():
        with frugal():
            inside.set()
            leave.wait(PATIENCE)

    with frugal():
        thread = threading.Thread(target=stay)
        thread.start()
        assert inside.wait(PATIENCE)
    assert pa.default_memory_pool().backend_name == "system"  # the other is still inside
    leave.set()
    thread.join()
    assert pa.default_memory_pool().backend_name == usual
