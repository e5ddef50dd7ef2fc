"""The PostgreSQL extension: building it for a server, and running a server from PyPI that has it.

Example:
    >>> from corgipile.pg import sources
    >>> sorted(path.name for path in sources().iterdir() if path.name in ("kernel", "postgres"))
    ['kernel', 'postgres']
"""

from corgipile.pg.copy import copy_table
from corgipile.pg.installation import EMBEDDED, Installation, embedded, install, installed, sources
from corgipile.pg.server import Server, default_home

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
