"""Exchanges and live epochs in a network of their own, whose packets come late or not at all."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

BAD = "ip link set lo up && tc qdisc add dev lo root netem delay 5ms 2ms loss 1%"
TESTS = ("test_exchange.py", "test_elastic.py")


def alone(script, *words):
    """Run a script of the shell in a network namespace of its own."""
    return subprocess.run(
        [shutil.which("unshare") or "unshare", "-n", "sh", "-c", script, "sh", *words],
        capture_output=True, text=True, check=False, timeout=3 * PATIENCE,
        env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"},
    )  # fmt: skip


@pytest.mark.skipif("CORGIPILE_BAD_NETWORK" not in os.environ, reason="CORGIPILE_BAD_NETWORK=1 asks for it")
def test_ranks_whose_network_delays_and_loses():
    if not shutil.which("unshare"):
        pytest.skip("no unshare here")
    permitted = alone(BAD)
    if permitted.returncode:
        pytest.skip(f"no network may be made bad here: {permitted.stderr.strip()}")
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    done = alone(f'{BAD} && exec "$@"', *command, *(str(Path(__file__).with_name(name)) for name in TESTS))
    assert done.returncode == 0, done.stdout[-4000:]
