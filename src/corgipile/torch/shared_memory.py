"""Transfer of tensors from workers through reused shared memory: new memory costs more than filling it.

PyTorch maps new memory for each tensor that a worker sends and passes its file descriptor over a new connection. Here a
worker keeps its memory; the main process marks a piece as free in its last byte once nothing refers to it. Rows of
varying length, each a tensor or bytes, go as one.
"""

import os
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, pairwise
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch.multiprocessing.reductions import reduce_tensor

from corgipile.loader.batches import tensors_of

__all__ = ["Column", "PackedRows", "Sender", "Split", "share_tensors"]

MAX_PIPED = 16 << 10  # bytes of a tensor that goes through the pipe at most
MAX_PIECES = 64  # pieces of a worker at most; further tensors go PyTorch's way
MAX_IDLE = 2 << 20  # idle bytes of a worker at most, or as many as are in use
FREE, LENT, FORKED = range(3)  # last byte of a piece; FORKED: a forked process may read it
Bytes = npt.NDArray[np.uint8]

_opened: dict[tuple[int, int], Bytes] = {}  # in the main process, by worker process and piece number


@cache
def share_tensors() -> "Sender":
    """Register and return the sender of this worker process."""
    sender = Sender()
    ForkingPickler.register(torch.Tensor, sender.reduce)
    return sender


class Sender:
    """Keeps the shared memory in which a worker sends tensors.

    Example:
        >>> make, parts = Sender().reduce(torch.arange(6).reshape(2, 3))
        >>> make(*parts)
        tensor([[0, 1, 2],
                [3, 4, 5]])
    """

    def __init__(self) -> None:
        self._pieces: dict[int, tuple[torch.Tensor, Bytes]] = {}  # least recently used first
        self._created, self._process = 0, os.getpid()
        self._dropped: list[int] = []

    def reduce(self, tensor: torch.Tensor) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]]:
        """Copy a tensor into a free piece; return what pickle needs to open it in the main process."""
        if not _is_plain(tensor) or not tensor.nbytes or _is_shared(tensor):
            return reduce_tensor(tensor)  # type: ignore[no-any-return,no-untyped-call]
        data: Bytes = tensor.view(-1).view(torch.uint8).numpy()
        if len(data) <= MAX_PIPED:
            return _unpack, (data.tobytes(), tensor.dtype, tensor.shape)
        number, is_new = self._take_free(len(data))
        if number < 0:
            return reduce_tensor(tensor)  # type: ignore[no-any-return,no-untyped-call]
        self._pieces[number][1][: len(data)] = data  # by NumPy: torch runs single-threaded after a fork
        return _open_tensor, (*self._lend(number, is_new=is_new), len(data), tensor.dtype, tensor.shape)

    def join(self, rows: Sequence[bytes]) -> tuple[Callable[..., list[bytes]], tuple[Any, ...]] | None:
        """Copy rows of bytes into a free piece, see `reduce`; None if too many are in use."""
        ends = list(accumulate(map(len, rows), initial=0))
        number, is_new = self._take_free(ends[-1])
        if number < 0:
            return None
        piece = self._pieces[number][1].data
        for row, start, end in zip(rows, ends[:-1], ends[1:], strict=True):
            piece[start:end] = row
        return _open_rows, (*self._lend(number, is_new=is_new), ends)

    def write(self, rows: pa.RecordBatch) -> tuple[Callable[..., list[Any]], tuple[Any, ...]]:
        """Write rows of one column into a free piece, see `reduce`; few rows go through the pipe."""
        sized = pa.MockOutputStream()
        _write(sized, rows)
        number, is_new = self._take_free(sized.size()) if sized.size() > MAX_PIPED else (-1, False)
        if number < 0:
            out = pa.BufferOutputStream()
            _write(out, rows)
            return _read, (out.getvalue().to_pybytes(),)
        _write(pa.FixedSizeBufferWriter(pa.py_buffer(self._pieces[number][1][: sized.size()])), rows)
        return _open_column, (*self._lend(number, is_new=is_new), sized.size())

    def _lend(self, number: int, *, is_new: bool) -> tuple[tuple[int, int], torch.Tensor | None, list[int]]:
        """Lend a piece to the main process; return its address there, and the pieces to forget."""
        handle, piece = self._pieces[number]
        piece[-1] = LENT
        dropped, self._dropped = self._dropped, []
        return (self._process, number), handle if is_new else None, dropped

    def _take_free(self, size: int) -> tuple[int, bool]:
        """Return the number of a free piece and whether it is new; -1 if too many are in use, or in a fork.

        Pieces over twice the size stay free for larger tensors; otherwise each piece would grow to the largest size.
        """
        if os.getpid() != self._process:
            return -1, False
        self._drop_surplus()
        idle = {number: len(piece) - 1 for number, (_, piece) in self._pieces.items() if piece[-1] == FREE}
        fitting = [(room, number) for number, room in idle.items() if size <= room <= 2 * size]
        if fitting:
            number = min(fitting)[1]
            self._pieces[number] = self._pieces.pop(number)
            return number, False
        if len(self._pieces) == MAX_PIECES and not idle:
            return -1, False
        if len(self._pieces) == MAX_PIECES:
            self._drop(next(iter(idle)))
        step = 1 << max(12, (size - 1).bit_length() - 4)  # eight sizes for each power of two, in whole pages
        room = torch.UntypedStorage._new_shared(-(-size // step) * step + 1)  # type: ignore[no-untyped-call] # noqa: SLF001
        handle = torch.empty(0, dtype=torch.uint8, device="cpu").set_(room)  # sharing it later would copy it
        self._created += 1
        self._pieces[self._created] = handle, handle.numpy()
        return self._created, True

    def _drop_surplus(self) -> None:
        """Drop pieces that forks may read, and idle pieces beyond the limit, longest idle first."""
        states = {number: (int(piece[-1]), len(piece)) for number, (_, piece) in self._pieces.items()}
        room = max(MAX_IDLE, sum(size for state, size in states.values() if state == LENT))
        for number, (state, size) in reversed(states.items()):
            room -= size if state == FREE else 0
            if state == FORKED or (state == FREE and room < 0):
                self._drop(number)

    def _drop(self, number: int) -> None:
        del self._pieces[number]
        self._dropped.append(number)


class PackedRows(list[Any]):
    """A list of one-dimensional tensors or of bytes that a worker sends as one, which is faster.

    Example:
        >>> split, parts = PackedRows([torch.tensor([1, 2]), torch.tensor([3])]).__reduce__()
        >>> split(*parts)
        [tensor([1, 2]), tensor([3])]
    """

    def __copy__(self) -> Self:
        return type(self)(self)

    def __reduce__(self) -> tuple[Any, ...]:
        if all(type(row) is bytes for row in self):
            large = sum(map(len, self)) > MAX_PIPED
            return (share_tensors().join(self) if large else None) or (list, (list(self),))
        kinds = {row.dtype if _is_row(row) else None for row in self}
        if len(kinds) != 1 or None in kinds:
            return list, (list(self),)
        lengths = [len(row) for row in self]
        flat = _join_consecutive(self, lengths)
        if flat is None:
            data = np.concatenate([row.view(torch.uint8).numpy() for row in self])  # by NumPy: see `Sender.reduce`
            flat = torch.from_numpy(data).view(self[0].dtype)
        return _split, (flat, lengths)


class Split(NamedTuple):
    """Rows of varying length for sending: the receiver gets a list of tensors.

    Attributes:
        flat: The numbers of all rows.
        lengths: The length of each row.
    """

    flat: torch.Tensor
    lengths: list[int]

    def __reduce__(self) -> tuple[Any, ...]:
        return _split, tuple(self)


class Column(NamedTuple):
    """Rows of an Arrow array for sending: the receiver gets a list of objects."""

    rows: pa.Array

    def __reduce__(self) -> tuple[Any, ...]:
        return share_tensors().write(pa.RecordBatch.from_arrays([self.rows], names=["rows"]))


def _join_consecutive(rows: list[torch.Tensor], lengths: list[int]) -> torch.Tensor | None:
    """Return consecutive rows in the same memory as one tensor; None if they are not consecutive."""
    first, total, item = rows[0], sum(lengths), rows[0].element_size()
    at = first.data_ptr()
    for row, length in zip(rows, lengths, strict=True):
        if length and row.data_ptr() != at:
            return None
        at += length * item
    begin = first.storage_offset()
    inside = first.untyped_storage().nbytes() >= (begin + total) * item  # else adjacent memory is separate by chance
    return first.as_strided((total,), (1,), begin) if inside else None


def _is_row(value: Any) -> bool:
    return type(value) is torch.Tensor and value.dim() == 1 and _is_plain(value)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is contiguous CPU memory without gradient."""
    simple = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad
    return simple and not tensor.is_quantized and tensor.is_contiguous()


def _split(flat: torch.Tensor, lengths: list[int]) -> list[torch.Tensor]:
    return list(torch.unsafe_split_with_sizes(flat, lengths))


def _is_shared(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_shared())  # type: ignore[no-untyped-call]


def _unpack(data: bytes, dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=dtype).view(shape)


def _open_tensor(
    name: tuple[int, int],
    piece: torch.Tensor | None,
    dropped: list[int],
    size: int,
    dtype: torch.dtype,
    shape: torch.Size,
) -> torch.Tensor:
    lent = _borrow(name, piece, dropped, size)
    return torch.frombuffer(lent, dtype=dtype).view(shape)


def _open_rows(name: tuple[int, int], piece: torch.Tensor | None, dropped: list[int], ends: list[int]) -> list[bytes]:
    rows = _borrow(name, piece, dropped, ends[-1]).data
    return [bytes(rows[start:end]) for start, end in pairwise(ends)]


def _write(out: pa.NativeFile, rows: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(out, rows.schema) as stream:
        stream.write_batch(rows)


def _read(data: Any) -> list[Any]:
    with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
        return tensors_of(stream.read_next_batch().column(0))


def _open_column(name: tuple[int, int], piece: torch.Tensor | None, dropped: list[int], size: int) -> list[Any]:
    return _read(_borrow(name, piece, dropped, size))


def _borrow(name: tuple[int, int], piece: torch.Tensor | None, dropped: list[int], size: int) -> Bytes:
    """Return the content of a worker's piece, and free the piece when nothing refers to it."""
    worker, _ = name
    if piece is not None:
        _guard_forks()
        for process in {process for process, _ in list(_opened)}:
            _forget_if_dead(process)
        _opened[name] = piece.numpy()
    for number in dropped:
        _opened.pop((worker, number), None)
    whole = _opened[name]
    lent: Bytes = np.frombuffer(whole.data, np.uint8, size)  # all views hold it, so it dies with the last one
    weakref.finalize(lent, _release, whole, worker, os.getpid()).atexit = False
    return lent


def _release(whole: Bytes, worker: int, process: int) -> None:
    if os.getpid() != process:
        return  # a fork frees its copy of the tensor
    if whole[-1] == LENT:
        whole[-1] = FREE
    _forget_if_dead(worker)


def _forget_if_dead(worker: int) -> None:
    try:
        os.kill(worker, 0)
    except OSError:
        for name in [name for name in list(_opened) if name[0] == worker]:
            _opened.pop(name, None)


@cache
def _guard_forks() -> None:
    """Keep pieces that a fork of this process may read from being reused."""
    os.register_at_fork(before=_mark_lent, after_in_child=_opened.clear)


def _mark_lent() -> None:
    for whole in list(_opened.values()):
        if whole[-1] == LENT:
            whole[-1] = FORKED
