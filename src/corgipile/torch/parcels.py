"""Sends tensors from a worker through shared memory that is used again: making it anew costs more than filling it.

PyTorch maps new memory for each tensor that a worker sends and passes its file descriptor over a new connection. Here a
worker keeps the memory it made; the main process says, in its last byte, when nobody looks at it any more.
"""

import os
import weakref
from collections.abc import Callable
from functools import cache
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.multiprocessing.reductions import reduce_tensor

__all__ = ["Sender", "send_parcels"]

SMALL = 16 << 10  # bytes that go through the pipe as they are
KEPT = 64  # pieces of memory of a worker at most; what does not fit goes the usual way
Bytes = npt.NDArray[np.uint8]

_opened: dict[tuple[int, int], Bytes] = {}  # in the main process, by the worker's process and the piece's number


@cache
def send_parcels() -> None:
    """Make this process, a worker, send tensors so."""
    ForkingPickler.register(torch.Tensor, Sender().reduce)


class Sender:
    """Keeps the memory that a worker sends tensors in.

    Example:
        >>> make, parts = Sender().reduce(torch.arange(6).reshape(2, 3))
        >>> make(*parts)
        tensor([[0, 1, 2],
                [3, 4, 5]])
    """

    def __init__(self) -> None:
        self._pieces: list[tuple[torch.Tensor, Bytes]] = []

    def reduce(self, tensor: torch.Tensor) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]]:
        """Copy a tensor into free memory, and return what pickle needs to open it in the main process."""
        plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad
        if not plain or tensor.is_quantized or not tensor.is_contiguous() or not tensor.nbytes or _is_shared(tensor):
            return reduce_tensor(tensor)  # type: ignore[no-any-return,no-untyped-call]
        data: Bytes = tensor.view(-1).view(torch.uint8).numpy()
        if len(data) <= SMALL:
            return _unpacked, (data.tobytes(), tensor.dtype, tensor.shape)
        number, fresh = self._free(-(-tensor.nbytes // 4096) * 4096 + 1)
        if number < 0:
            return reduce_tensor(tensor)  # type: ignore[no-any-return,no-untyped-call]
        handle, piece = self._pieces[number]
        piece[: len(data)] = data  # by NumPy: this is another thread than torch was told to run alone, after a fork
        piece[-1] = 1
        return _open, ((os.getpid(), number), handle if fresh else None, len(data), tensor.dtype, tensor.shape)

    def _free(self, size: int) -> tuple[int, bool]:
        """Return the number of a piece that is free, and whether it is new; -1 if there are too many."""
        for number, (_, piece) in enumerate(self._pieces):
            if len(piece) == size and not piece[-1]:
                return number, False
        if len(self._pieces) == KEPT:
            return -1, False
        handle = torch.empty(size, dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]
        self._pieces.append((handle, handle.numpy()))
        return len(self._pieces) - 1, True


def _is_shared(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_shared())  # type: ignore[no-untyped-call]


def _unpacked(data: bytes, dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=dtype).view(shape)


def _open(
    name: tuple[int, int], piece: torch.Tensor | None, size: int, dtype: torch.dtype, shape: torch.Size
) -> torch.Tensor:
    if piece is not None:
        for old in [old for old in _opened if not _alive(old[0])]:
            del _opened[old]
        _opened[name] = piece.numpy()
    whole = _opened[name]
    lent: Bytes = np.frombuffer(whole.data, np.uint8, size)  # the tensor's own: it dies with the tensor
    weakref.finalize(lent, _release, whole, os.getpid()).atexit = False
    return torch.frombuffer(lent, dtype=dtype).view(shape)


def _release(whole: Bytes, process: int) -> None:
    if os.getpid() == process:  # not in a fork of it, where the tensor dies too
        whole[-1] = 0


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
