"""Where I/O, memory and order meet: runs an order over a table and yields batches."""

from corgipile.loader.feeder import Feeder
from corgipile.loader.loader import Loader
from corgipile.loader.rewind import Rewind, Visit
from corgipile.loader.stats import LoaderStats

__all__ = ["Feeder", "Loader", "LoaderStats", "Rewind", "Visit"]
