"""Sends tensors from a worker through shared memory that is used again: making it anew costs more than filling it.

PyTorch maps new memory for each tensor that a worker sends and passes its file descriptor over a new connection. Here a
worker keeps the memory it made; the main process says, in its last byte, when nobody looks at it any more. Rows of
varying length, a tensor or bytes each, go as one.
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

__all__ = ["Column", "Sender", "Split", "Together", "share_tensors"]

SMALL = 16 << 10  # bytes that go through the pipe as they are
KEPT = 64  # pieces of memory of a worker at most; what does not fit goes the usual way
SPARE = 2 << 20  # bytes of a worker's memory that may lie idle; more, if more are in use
FREE, LENT, FORKED = range(3)  # last byte of a piece; forked: another process than the main one may look at it for ever
Bytes = npt.NDArray[np.uint8]

_opened: dict[tuple[int, int], Bytes] = {}  # in the main process, by the worker's process and the piece's number


@cache
def share_tensors() -> "Sender":
    """Make this process, a worker, send tensors so; return what does."""
    sender = Sender()
    ForkingPickler.register(torch.Tensor, sender.reduce)
    return sender


class Sender:
    """Keeps the memory that a worker sends tensors in.

    Example:
        >>> make, parts = Sender().reduce(torch.arange(6).reshape(2, 3))
        >>> make(*parts)
        tensor([[0, 1, 2],
                [3, 4, 5]])
    """

    def __init__(self) -> None:
        self._pieces: dict[int, tuple[torch.Tensor, Bytes]] = {}  # the one used last is the last
        self._made, self._process = 0, os.getpid()
        self._dropped: list[int] = []

    def reduce(self, tensor: torch.Tensor) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]]:
        """Copy a tensor into free memory, and return what pickle needs to open it in the main process."""
        if not _is_plain(tensor) or not tensor.nbytes or _is_shared(tensor):
            return reduce_tensor(tensor)  # type: ignore[no-any-return,no-untyped-call]
        data: Bytes = tensor.view(-1).view(torch.uint8).numpy()
        if len(data) <= SMALL:
            return _unpacked, (data.tobytes(), tensor.dtype, tensor.shape)
        number, fresh = self._free(len(data))
        if number < 0:
            return reduce_tensor(tensor)  # type: ignore[no-any-return,no-untyped-call]
        self._pieces[number][1][: len(data)] = data  # by NumPy: torch was told to run alone, after a fork
        return _open, (*self._lent(number, fresh=fresh), len(data), tensor.dtype, tensor.shape)

    def join(self, rows: Sequence[bytes]) -> tuple[Callable[..., list[bytes]], tuple[Any, ...]] | None:
        """Copy rows of bytes into free memory, see `reduce`; None where there is too much in use."""
        ends = list(accumulate(map(len, rows), initial=0))
        number, fresh = self._free(ends[-1])
        if number < 0:
            return None
        piece = self._pieces[number][1].data
        for row, start, end in zip(rows, ends[:-1], ends[1:], strict=True):
            piece[start:end] = row
        return _parted, (*self._lent(number, fresh=fresh), ends)

    def write(self, rows: pa.RecordBatch) -> tuple[Callable[..., list[Any]], tuple[Any, ...]]:
        """Write rows of one column into free memory, see `reduce`, or for the pipe, where they are few."""
        sized = pa.MockOutputStream()
        _write(sized, rows)
        number, fresh = self._free(sized.size()) if sized.size() > SMALL else (-1, False)
        if number < 0:
            out = pa.BufferOutputStream()
            _write(out, rows)
            return _read, (out.getvalue().to_pybytes(),)
        _write(pa.FixedSizeBufferWriter(pa.py_buffer(self._pieces[number][1][: sized.size()])), rows)
        return _looked_through, (*self._lent(number, fresh=fresh), sized.size())

    def _lent(self, number: int, *, fresh: bool) -> tuple[tuple[int, int], torch.Tensor | None, list[int]]:
        """Lend a piece to the main process; return what it needs to find it, and which ones to forget."""
        handle, piece = self._pieces[number]
        piece[-1] = LENT
        dropped, self._dropped = self._dropped, []
        return (self._process, number), handle if fresh else None, dropped

    def _free(self, size: int) -> tuple[int, bool]:
        """Return the number of a piece that is free, and whether it is new; -1 if there are too many, or in a fork.

        Pieces more than twice as large are left to larger tensors, or each piece would grow to the largest size.
        """
        if os.getpid() != self._process:
            return -1, False
        self._tidy()
        idle = {number: len(piece) - 1 for number, (_, piece) in self._pieces.items() if piece[-1] == FREE}
        fitting = [(room, number) for number, room in idle.items() if size <= room <= 2 * size]
        if fitting:
            number = min(fitting)[1]
            self._pieces[number] = self._pieces.pop(number)
            return number, False
        if len(self._pieces) == KEPT and not idle:
            return -1, False
        if len(self._pieces) == KEPT:
            self._drop(next(iter(idle)))
        step = 1 << max(12, (size - 1).bit_length() - 4)  # eight sizes for each power of two, in whole pages
        room = torch.UntypedStorage._new_shared(-(-size // step) * step + 1)  # type: ignore[no-untyped-call] # noqa: SLF001
        handle = torch.empty(0, dtype=torch.uint8).set_(room)  # made shared later, it would be copied first
        self._made += 1
        self._pieces[self._made] = handle, handle.numpy()
        return self._made, True

    def _tidy(self) -> None:
        """Drop what other processes may see, and idle pieces beyond what may lie idle, the longest idle first."""
        states = {number: (int(piece[-1]), len(piece)) for number, (_, piece) in self._pieces.items()}
        room = max(SPARE, sum(size for state, size in states.values() if state == LENT))
        for number, (state, size) in reversed(states.items()):
            room -= size if state == FREE else 0
            if state == FORKED or (state == FREE and room < 0):
                self._drop(number)

    def _drop(self, number: int) -> None:
        del self._pieces[number]
        self._dropped.append(number)


class Together(list[Any]):
    """A list that a worker sends as one, of tensors of one dimension or of bytes: each alone takes longer.

    Example:
        >>> split, parts = Together([torch.tensor([1, 2]), torch.tensor([3])]).__reduce__()
        >>> split(*parts)
        [tensor([1, 2]), tensor([3])]
    """

    def __copy__(self) -> Self:
        return type(self)(self)

    def __reduce__(self) -> tuple[Any, ...]:
        if all(type(row) is bytes for row in self):
            large = sum(map(len, self)) > SMALL
            return (share_tensors().join(self) if large else None) or (list, (list(self),))
        kinds = {row.dtype if _is_row(row) else None for row in self}
        if len(kinds) != 1 or None in kinds:
            return list, (list(self),)
        lengths = [len(row) for row in self]
        flat = _side_by_side(self, lengths)
        if flat is None:
            data = np.concatenate([row.view(torch.uint8).numpy() for row in self])  # by NumPy: see `Sender.reduce`
            flat = torch.from_numpy(data).view(self[0].dtype)
        return _split, (flat, lengths)


class Split(NamedTuple):
    """Rows of varying length that nobody looks at before they are sent: a process gets a list with a tensor each.

    Attributes:
        flat: The numbers of all rows.
        lengths: How many each row has.
    """

    flat: torch.Tensor
    lengths: list[int]

    def __reduce__(self) -> tuple[Any, ...]:
        return _split, tuple(self)


class Column(NamedTuple):
    """The same of rows that are no numbers, as Arrow has them; a process gets a list with an object each."""

    rows: pa.Array

    def __reduce__(self) -> tuple[Any, ...]:
        return share_tensors().write(pa.RecordBatch.from_arrays([self.rows], names=["rows"]))


def _side_by_side(rows: list[torch.Tensor], lengths: list[int]) -> torch.Tensor | None:
    """Return rows that lie one after another in the same memory as one tensor; None if they do not."""
    first, total, item = rows[0], sum(lengths), rows[0].element_size()
    at = first.data_ptr()
    for row, length in zip(rows, lengths, strict=True):
        if length and row.data_ptr() != at:
            return None
        at += length * item
    begin = first.storage_offset()
    inside = first.untyped_storage().nbytes() >= (begin + total) * item  # else other memory lies beside it by chance
    return first.as_strided((total,), (1,), begin) if inside else None


def _is_row(value: Any) -> bool:
    return type(value) is torch.Tensor and value.dim() == 1 and _is_plain(value)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Say whether a tensor is its bytes, one after another."""
    simple = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad
    return simple and not tensor.is_quantized and tensor.is_contiguous()


def _split(flat: torch.Tensor, lengths: list[int]) -> list[torch.Tensor]:
    return list(torch.unsafe_split_with_sizes(flat, lengths))


def _is_shared(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_shared())  # type: ignore[no-untyped-call]


def _unpacked(data: bytes, dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=dtype).view(shape)


def _open(
    name: tuple[int, int],
    piece: torch.Tensor | None,
    dropped: list[int],
    size: int,
    dtype: torch.dtype,
    shape: torch.Size,
) -> torch.Tensor:
    lent = _look(name, piece, dropped, size)
    return torch.frombuffer(lent, dtype=dtype).view(shape)


def _parted(name: tuple[int, int], piece: torch.Tensor | None, dropped: list[int], ends: list[int]) -> list[bytes]:
    rows = _look(name, piece, dropped, ends[-1]).data
    return [bytes(rows[start:end]) for start, end in pairwise(ends)]


def _write(out: pa.NativeFile, rows: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(out, rows.schema) as stream:
        stream.write_batch(rows)


def _read(data: Any) -> list[Any]:
    with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
        return tensors_of(stream.read_next_batch().column(0))


def _looked_through(name: tuple[int, int], piece: torch.Tensor | None, dropped: list[int], size: int) -> list[Any]:
    return _read(_look(name, piece, dropped, size))


def _look(name: tuple[int, int], piece: torch.Tensor | None, dropped: list[int], size: int) -> Bytes:
    """Return what a worker wrote to a piece, which it is given back when nobody looks at it any more."""
    worker, _ = name
    if piece is not None:
        _guard_forks()
        for process in {process for process, _ in list(_opened)}:
            _forget_if_dead(process)
        _opened[name] = piece.numpy()
    for number in dropped:
        _opened.pop((worker, number), None)
    whole = _opened[name]
    lent: Bytes = np.frombuffer(whole.data, np.uint8, size)  # who looks holds it, so it dies with the last of them
    weakref.finalize(lent, _release, whole, worker, os.getpid()).atexit = False
    return lent


def _release(whole: Bytes, worker: int, process: int) -> None:
    if os.getpid() != process:
        return  # a fork, where the tensor dies too
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
    """See to it that what a fork of this process sees stays as it is: the worker is not given it back."""
    os.register_at_fork(before=_mark_lent, after_in_child=_opened.clear)


def _mark_lent() -> None:
    for whole in list(_opened.values()):
        if whole[-1] == LENT:
            whole[-1] = FORKED
