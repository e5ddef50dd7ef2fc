"""What all tests need."""

import signal

import pytest

# A shell has its background jobs ignore Ctrl-C, and their children too; tests that interrupt need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TOGETHER = {"tests/postgres": "postgres", "tests/cli/test_pg.py": "postgres"}  # they share servers, built once


def pytest_collection_modifyitems(config, items):
    """Under several processes: the tests of a file stay in one, those of the servers too and first, since they last."""
    if not config.pluginmanager.has_plugin("dsession") and not hasattr(config, "workerinput"):
        return
    for item in items:
        path = item.path.relative_to(config.rootpath).as_posix()
        group = next((name for start, name in TOGETHER.items() if path.startswith(start)), path)
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: item.get_closest_marker("xdist_group").args[0] != "postgres")
