"""Waiting in tests: for an event, with a generous limit, never for a fixed time."""

import time

PATIENCE = 300  # seconds until a wait fails


def wait_for(happens, what="the event"):
    """Wait until something is true; return it."""
    until = time.monotonic() + PATIENCE
    while not (found := happens()):
        assert time.monotonic() < until, f"{what} did not happen in {PATIENCE} s"
        time.sleep(0.01)
    return found
