"""Lazy access to `pyarrow.compute`, whose import takes as long as importing numpy.

Example:
    >>> import pyarrow as pa
    >>> from corgipile import arrow_compute as pc
    >>> pc.sum(pa.array([1, 2])).as_py()
    3
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """Return a function of `pyarrow.compute`."""
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(import_module("pyarrow.compute"), name)
