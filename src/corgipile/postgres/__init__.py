"""Builds the PostgreSQL extension for a server, and runs a server from PyPI with it.

Example:
    >>> from corgipile.postgres import sources
    >>> sorted(path.name for path in sources().iterdir() if path.name in ("kernel", "postgres"))
    ['kernel', 'postgres']
"""

from corgipile.postgres.copy import copy_table
from corgipile.postgres.installation import EMBEDDED, Installation, embedded, install, installed, sources
from corgipile.postgres.server import Server, default_home

__all__ = [
    "EMBEDDED",
    "Installation",
    "Server",
    "copy_table",
    "default_home",
    "embedded",
    "install",
    "installed",
    "sources",
]
