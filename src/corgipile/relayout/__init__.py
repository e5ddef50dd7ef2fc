"""Re-layouts: a table written once in a better order, within a memory budget."""

from corgipile.relayout.reshuffle import METHODS, reshuffle

__all__ = ["METHODS", "reshuffle"]
