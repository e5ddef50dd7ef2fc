"""Where I/O, memory and order meet: runs an order over a table and yields batches."""

from corgipile.loader.feeder import Feeder
from corgipile.loader.loader import Loader

__all__ = ["Feeder", "Loader"]
