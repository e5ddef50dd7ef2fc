"""What all tests need."""

import os
import signal
import tempfile

from hypothesis import settings
from pgservers import pytest_generate_tests, server

__all__ = ["pytest_generate_tests", "server"]  # of one server, for all that need it

# A shell has its background jobs ignore Ctrl-C, and their children too; tests that interrupt need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on what else the machine does, the other half of the tests for one.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# What is measured of devices is kept there, apart from what the user has.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="corgipile-tests-")
