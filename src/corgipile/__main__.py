"""Runs the command line: ``python -m corgipile``."""

from corgipile.cli import main

raise SystemExit(main())
