"""Runs the command line: ``python -m corgipile``."""

from corgipile.cli import main
from corgipile.cli.signals import leave

raise SystemExit(leave(main()))
