"""Feed SGD from data larger than memory: full-shuffle accuracy at the speed of a sequential read.

Example:
    >>> import corgipile as cp, pyarrow as pa
    >>> table = cp.open(pa.table({"x": [1.0, 2.0, 3.0], "label": [0, 0, 1]}))
    >>> sum(len(batch["x"]) for batch in cp.Loader(table, batch_size=2))
    3
"""

from corgipile import errors, orders
from corgipile.loader import Loader
from corgipile.tables import open  # noqa: A004  # used as corgipile.open

__all__ = ["Loader", "errors", "open", "orders"]
__version__ = "0.1.0"
