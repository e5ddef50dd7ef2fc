"""Setup of all tests."""

import os
import signal
import tempfile

from hypothesis import HealthCheck, settings
from pgservers import pytest_generate_tests, server

__all__ = ["pytest_generate_tests", "server"]  # fixtures of all tests

# Background jobs of a shell ignore Ctrl-C, as do their children; tests that interrupt need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Other load makes examples slow, so nothing limits their time. Each run uses the same examples;
# `--hypothesis-profile=explore` draws new ones.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("explore"), derandomize=True)
settings.load_profile("same")

# Measured rates of devices stay out of the user's cache.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="corgipile-tests-")
