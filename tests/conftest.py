"""What all tests need."""

import os
import signal
import tempfile

from hypothesis import HealthCheck, settings
from pgservers import pytest_generate_tests, server

__all__ = ["pytest_generate_tests", "server"]  # of one server, for all that need it

# A shell has its background jobs ignore Ctrl-C, and their children too; tests that interrupt need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes, or is looked for, depends on what else the machine does, the other tests for one. Examples
# are the same in each run; `--hypothesis-profile=explore` draws new ones.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("explore"), derandomize=True)
settings.load_profile("same")

# What is measured of devices is kept there, apart from what the user has.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="corgipile-tests-")
