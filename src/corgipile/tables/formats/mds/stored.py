"""Stored values of an MDS column, and the encoding that decodes them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.tables.table import IntArray

__all__ = ["Encoding", "Stored"]


class Stored(NamedTuple):
    """The values of a column: contiguous bytes, starts and the last end, and a row's place for errors."""

    data: npt.NDArray[np.uint8]
    ends: IntArray
    place: Callable[[int], str]

    def bytes(self, row: int) -> bytes:
        """Return a value."""
        return self.data[self.ends[row] : self.ends[row + 1]].tobytes()


class Encoding(NamedTuple):
    """The decoding of values to a column.

    Attributes:
        kind: Type of the column.
        decode: Makes the column.
        whole: Whether stored bytes are the values.
    """

    kind: pa.DataType
    decode: Callable[[Stored], pa.Array]
    whole: bool = False
