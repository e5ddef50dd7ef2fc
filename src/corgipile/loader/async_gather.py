"""Gathering of buffered rows ahead of their use, in a kernel thread."""

from corgipile import _kernel
from corgipile.loader.buffer import Arrays, Buffer, SlotArray

__all__ = ["AsyncGather"]


class AsyncGather:
    """Gathers rows of a buffer in the order of the requests.

    Args:
        buffer: Buffer whose rows must stay in their slots until they are gathered.

    Attributes:
        last_request: Number of the last request, from 1; 0 before the first.

    Example:
        >>> import numpy as np
        >>> from corgipile.loader.buffer import Field
        >>> buffer = Buffer(3, [Field("x", ["x"], np.dtype("i4"), ())], {})
        >>> buffer.dense("x")[:] = [5, 6, 7]
        >>> ahead, out = AsyncGather(buffer), np.empty(2, "i4")
        >>> ahead.gather(np.array([2, 0], "i4"), (out,), 0)
        >>> ahead.wait(ahead.last_request), out.tolist(), ahead.idle
        (None, [7, 5], True)
    """

    def __init__(self, buffer: Buffer) -> None:
        self._buffer, self._copies, self.last_request = buffer, _kernel.async_gather_new(), 0

    def gather(self, visit: SlotArray, out: Arrays, at: int) -> None:
        """Request all columns' rows in these slots; ``out`` holds them from row ``at`` once `wait` returns."""
        for (name, field), array in zip(self._buffer.fields.items(), out, strict=True):
            rows, to = self._buffer.dense(name), array[at : at + len(visit)]
            self.last_request = _kernel.async_gather_request(self._copies, to, rows, field.row_bytes, visit)

    def wait(self, request: int) -> None:
        """Wait for this request and all earlier ones."""
        _kernel.async_gather_wait(self._copies, request)

    @property
    def idle(self) -> bool:
        """Return whether all requests are done."""
        return _kernel.async_gather_wait(self._copies, 0) == self.last_request
