"""The values of a column of MDS as they are stored, and what makes an Arrow column of them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.tables.table import IntArray

__all__ = ["Encoding", "Stored"]


class Stored(NamedTuple):
    """The values of a column: bytes back to back, where each begins and the last ends, and words for a row's place."""

    data: npt.NDArray[np.uint8]
    ends: IntArray
    place: Callable[[int], str]

    def bytes(self, row: int) -> bytes:
        """Return one value."""
        return self.data[self.ends[row] : self.ends[row + 1]].tobytes()


class Encoding(NamedTuple):
    """How values become a column.

    Attributes:
        kind: Type of the column.
        decode: Makes the column.
        whole: Whether bytes are values as they are.
    """

    kind: pa.DataType
    decode: Callable[[Stored], pa.Array]
    whole: bool = False
