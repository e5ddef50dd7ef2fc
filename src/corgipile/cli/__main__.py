"""Entry point of ``python -m corgipile.cli``."""

from corgipile.cli import main
from corgipile.cli.signals import leave

raise SystemExit(leave(main()))
