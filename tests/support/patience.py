"""How tests wait: for what happens, as long as the busiest machine may take, never for a time that should do."""

import time

PATIENCE = 300  # seconds after which what did not happen is taken for what never will


def wait_for(happens, what="what is waited for"):
    """Wait until something is true; return it."""
    until = time.monotonic() + PATIENCE
    while not (found := happens()):
        assert time.monotonic() < until, f"{what} did not happen in {PATIENCE} s"
        time.sleep(0.01)
    return found
