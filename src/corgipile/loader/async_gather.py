"""Rows gathered ahead of who asks for batches, by a thread of the kernel."""

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.loader.buffer import Buffer, SlotArray

__all__ = ["AsyncGather"]


class AsyncGather:
    """Gathers rows of a buffer in the order in which that is asked for.

    Args:
        buffer: Holds the rows, which must stay in their slots until they are gathered.

    Attributes:
        asked: The number of the last request, from 1; 0 before the first.

    Example:
        >>> from corgipile.loader.buffer import Field
        >>> buffer = Buffer(3, [Field("x", ["x"], np.dtype("i4"), ())], {})
        >>> buffer.dense("x")[:] = [5, 6, 7]
        >>> aside, out = AsyncGather(buffer), np.empty(2, "i4")
        >>> aside.gather("x", np.array([2, 0], "i4"), out)
        >>> aside.wait(aside.asked), out.tolist(), aside.idle
        (None, [7, 5], True)
    """

    def __init__(self, buffer: Buffer) -> None:
        self._buffer, self._copies, self.asked = buffer, _kernel.aside_new(), 0

    def gather(self, name: str, visit: SlotArray, out: npt.NDArray[np.generic]) -> None:
        """Ask for a column's rows in these slots, which are in ``out`` once `wait` has come back."""
        rows, row_bytes = self._buffer.dense(name), self._buffer.fields[name].row_bytes
        self.asked = _kernel.aside_gather(self._copies, out, rows, row_bytes, visit)

    def wait(self, request: int) -> None:
        """Wait until this request, and those before it, are done."""
        _kernel.aside_wait(self._copies, request)

    @property
    def idle(self) -> bool:
        """Say whether all that was asked for is done."""
        return _kernel.aside_wait(self._copies, 0) == self.asked
