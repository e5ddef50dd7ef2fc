"""Runs the command line: ``python -m corgipile.cli``."""

from corgipile.cli import main

raise SystemExit(main())
