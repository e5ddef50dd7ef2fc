"""Ports for servers that cannot choose their own."""

import contextlib
import os
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port():
    """Return a free port below the ephemeral ones, which any connection may take meanwhile."""
    above = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32768
    for port in range(above - 1 - 7 * os.getpid() % 8000, 1024, -1):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError("no port is free")
