"""Feed SGD from data larger than memory: full-shuffle accuracy at the speed of a sequential read.

Example:
    >>> import corgipile as cp, pyarrow as pa
    >>> table = cp.open(pa.table({"x": [1.0, 2.0, 3.0], "label": [0, 0, 1]}))
    >>> sum(len(batch["x"]) for batch in cp.Loader(table, batch_size=2))
    3
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from corgipile import errors

if TYPE_CHECKING:
    from corgipile import orders
    from corgipile.comparison import compare
    from corgipile.conversion import convert  # type: ignore[no-redef]  # a submodule has this name
    from corgipile.linear.model import Model, load
    from corgipile.linear.search import search
    from corgipile.linear.train import train
    from corgipile.loader import Loader
    from corgipile.relayout import reshuffle  # type: ignore[no-redef]  # a submodule has this name
    from corgipile.tables import open  # noqa: A004  # used as corgipile.open
    from corgipile.tables.mixing import mix
    from corgipile.tables.opening import concat
    from corgipile.tables.splitting import train_test_split

__all__ = [
    "Loader",
    "Model",
    "compare",
    "concat",
    "convert",
    "errors",
    "load",
    "mix",
    "open",
    "orders",
    "reshuffle",
    "search",
    "train",
    "train_test_split",
]
__version__ = "0.1.0"

_LAZY = {
    "Loader": "corgipile.loader",
    "Model": "corgipile.linear",
    "compare": "corgipile.comparison",
    "concat": "corgipile.tables.opening",
    "convert": "corgipile.conversion",
    "load": "corgipile.linear",
    "mix": "corgipile.tables.mixing",
    "open": "corgipile.tables",
    "reshuffle": "corgipile.relayout",
    "search": "corgipile.linear.search",
    "train": "corgipile.linear",
    "train_test_split": "corgipile.tables.splitting",
}
_ROOMS = {
    "comparison",
    "conversion",
    "features",
    "linear",
    "loader",
    "orders",
    "outputs",
    "planner",
    "relayout",
    "sizes",
    "tables",
}


def __getattr__(name: str) -> Any:
    """Import an attribute on first access, which keeps the import of the package fast."""
    if name in _ROOMS:
        return import_module(f"corgipile.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'corgipile' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__", *(name for name in globals() if name in _ROOMS)})
