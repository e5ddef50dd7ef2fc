"""Runs an order over a table within a memory budget and yields batches."""

from corgipile.loader.buffered_reader import BufferedReader
from corgipile.loader.loader import Loader
from corgipile.loader.rewind import Rewind, Visit
from corgipile.loader.stats import LoaderStats

__all__ = ["BufferedReader", "Loader", "LoaderStats", "Rewind", "Visit"]
