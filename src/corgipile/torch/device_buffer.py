"""The shuffle buffer on a device: rows reach it in large copies and are gathered there into batches.

The host reads pieces of steps into page-locked staging memory, one after the other, and a copy stream sends each
to the device. There its rows are scattered to slots, and batches are gathered from slots, on the stream of the
training loop: the order of the stream is what keeps a slot's old row until its last visit.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from corgipile.errors import BudgetTooSmall
from corgipile.loader.buffer import Field
from corgipile.loader.buffered_reader import WIDE, BufferedReader
from corgipile.loader.groups import Group, Place
from corgipile.loader.selection import Selection
from corgipile.loader.staging import Piece, Stage
from corgipile.loader.stats import Progress
from corgipile.orders import GlobalBatches
from corgipile.sizes import format_bytes
from corgipile.tables.io.remote import is_remote
from corgipile.torch.worker import Settings

__all__ = ["DeviceBuffer", "obstacle_of", "torch_type"]

SLOT_BYTES = 8  # bytes of a row's slot and of its visit
PLACES = 4  # places of the staging memory: two are read into or wait, one is copied, and one is scattered
MAX_PLACE_BYTES, GROUP_BYTES = 32 << 20, 16 << 20  # largest place of the staging memory; bytes gathered at a time
SUSPECTS = ("f2", "f4", "f8", "u8")
# Types that PyTorch cannot index, and those of the same width that move their bytes.
MOVED_AS = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def torch_type(dtype: np.dtype[Any]) -> torch.dtype:
    """Return PyTorch's type for a NumPy dtype.

    Raises:
        TypeError: It has none.

    Example:
        >>> torch_type(np.dtype("f4"))
        torch.float32
    """
    return torch.from_numpy(np.empty(0, dtype)).dtype


def _is_tensor_type(dtype: np.dtype[Any]) -> bool:
    try:
        torch_type(dtype)
    except TypeError:
        return False
    return True


def obstacle_of(settings: Settings) -> str | None:
    """Return why a dataset's batches cannot be gathered on a device, None if they can."""
    table, columns = settings.table, settings.selection.columns_in(settings.table)
    if settings.reading.batch_size is None:
        return "the dataset yields rows; give it batch_size="
    if settings.transform is not None:
        return "transform= takes batches of the host; apply it to the batches of the loader"
    loose = [*columns.varlen, *(columns.sources[:1] if settings.selection.sparse else [])]
    loose += [of.name for of in columns.fields if not _is_tensor_type(of.dtype)]
    if loose:
        return f"column {loose[0]!r} has no tensor of rows of one length; choose others by columns= or features="
    if columns.row_bytes >= WIDE and all(len(of.sources) == 1 for of in columns.fields):
        return f"rows of {format_bytes(columns.row_bytes)} are read one by one; buffers are for rows below 32 KB"
    if table.units(columns.sources) is not None:
        spill = "the rows are encoded, and spill files are not allowed; open the table with spill=FOLDER"
        return spill if table.spill is None else None
    return "the table lies in a store; download it first" if is_remote(table) else None


class StagingBuffer:
    """One place of the staging memory and its copy on the device."""

    def __init__(self, host: dict[str, torch.Tensor], room: int, device: torch.device) -> None:
        pinned = device.type == "cuda"
        self.host, self.staged = host, {name: _movable(rows) for name, rows in host.items()}
        self.rows = {name: torch.empty_like(rows, device=device) for name, rows in self.staged.items()}
        # Slots of rows, then of visits.
        self.staged_slots = torch.empty(2 * room, dtype=torch.int32, device="cpu", pin_memory=pinned)
        self.host_slots = self.staged_slots.numpy().view(np.uint32)
        self.slots = torch.empty_like(self.staged_slots, device=device)
        # Whether the host must look at the rows.
        self.suspect = torch.zeros((), dtype=torch.bool, device="cpu", pin_memory=pinned)
        self.copied: Any = torch.cuda.Event() if pinned else None  # type: ignore[no-untyped-call]  # the latest piece
        self.scattered: Any = torch.cuda.Event() if pinned else None  # type: ignore[no-untyped-call]


class DeviceBuffer:
    """Gathers batches from slots on a device, in the order and memory of a reader.

    Host and device each have ``staging`` bytes of staging memory.

    Raises:
        BudgetTooSmall: The staging memory holds no row, or the device lacks memory for the slots.
    """

    def __init__(
        self, feeder: BufferedReader, batch_size: int, selection: Selection, device: torch.device, staging: int
    ) -> None:
        self._feeder, self._batch_size, self._selection, self._device = feeder, batch_size, selection, device
        self._fields = feeder.columns.fields
        row_bytes = max(1, sum(field.row_bytes for field in self._fields))
        ranks = feeder.shard.world if isinstance(feeder.order, GlobalBatches) else 1  # that share the memory
        room = min(staging // ranks // PLACES, MAX_PLACE_BYTES) // (row_bytes + SLOT_BYTES)
        if room < 1:
            needed = format_bytes(ranks * PLACES * (row_bytes + SLOT_BYTES)).replace(" ", "")
            raise BudgetTooSmall(
                f"memory must hold {PLACES} rows of {format_bytes(row_bytes)} on their way to the device, got "
                f"{format_bytes(staging)}: give memory={needed!r}"
            )
        self._stage = Stage(min(room, max(1, len(feeder.table))), PLACES)
        self._group = batch_size * max(1, GROUP_BYTES // (row_bytes * batch_size))
        self._cuda = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if self._cuda else None  # type: ignore[no-untyped-call]
        self._work: Any = None  # the training loop's stream when the iteration began
        self._here = True  # whether it is the current one
        self._dropped = np.uint32(feeder.slots)  # the slot of unwanted rows
        made = selection.finish({of.name: np.empty((0, *of.shape), of.dtype) for of in self._fields})
        stored = {of.name: torch_type(of.dtype) for of in self._fields}
        types = {name: (kind, torch_type(made[selection.names.get(name, name)].dtype)) for name, kind in stored.items()}
        # Columns that are moved, or stored, in another type than that of batches.
        self._types = {name: pair for name, pair in types.items() if pair[0] != pair[1] or pair[0] in MOVED_AS}
        # Features and labels with values that no learner takes: NaN, and integers beyond int64.
        self._checked = [f.name for f in self._fields if f.name in selection.names and f.dtype.str[1:] in SUSPECTS]
        with _on(None):
            self._slots, self._ring = self._allocate()

    def _allocate(self) -> tuple[dict[str, torch.Tensor], list[StagingBuffer]]:
        """Allocate the slots and the staging memory."""
        stage, device, count = self._stage, self._device, self._feeder.slots + 1  # the last slot takes unwanted rows
        buffer = self._feeder.stage(stage, self._pinned)
        host = {of.name: torch.from_numpy(buffer.dense(of.name)) for of in self._fields}
        try:
            slots = {of.name: self._empty(count, of) for of in self._fields}
            ring = [
                StagingBuffer({name: rows[stage.rows(at)] for name, rows in host.items()}, stage.room, device)
                for at in range(PLACES)
            ]
        except torch.OutOfMemoryError as error:
            size = format_bytes(count * self._feeder.row_bytes)
            raise BudgetTooSmall(f"{device} has no memory for {size} of rows: lower device_memory") from error
        return slots, ring

    def _pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        return torch.empty(shape, dtype=torch_type(dtype), device="cpu", pin_memory=self._cuda).numpy()

    def _empty(self, rows: int, of: Field) -> torch.Tensor:
        """Allocate rows of a column, of a type that can be indexed."""
        kind = torch_type(of.dtype)
        return torch.empty((rows, *of.shape), dtype=MOVED_AS.get(kind, kind), device=self._device)

    def _sent(self, pieces: Iterator[Piece]) -> Iterator[tuple[Piece, StagingBuffer]]:
        """Send each piece to the device; yield it once the next one is sent, too."""
        earlier: tuple[Piece, StagingBuffer] | None = None
        for number, piece in enumerate(pieces):
            staging = self._ring[number % PLACES]
            self._send(piece, staging)
            if earlier is not None:
                yield earlier
                if self._cuda:
                    earlier[1].copied.synchronize()  # its place in the staging memory is read into again
            earlier = piece, staging
        if earlier is not None:
            yield earlier

    def _send(self, piece: Piece, staging: StagingBuffer) -> None:
        """Copy a piece to the device on the copy stream, and look there for values that no learner takes."""
        rows, visits = len(piece.into), len(piece.visit)
        np.minimum(piece.into.view(np.uint32), self._dropped, out=staging.host_slots[:rows])  # -1 is the largest number
        staging.host_slots[rows : rows + visits] = piece.visit
        with _on(self._stream):
            if self._stream is not None:
                self._stream.wait_event(staging.scattered)
            for name, staged in staging.staged.items():
                staging.rows[name][:rows].copy_(staged[:rows], non_blocking=self._cuda)
            staging.slots[: rows + visits].copy_(staging.staged_slots[: rows + visits], non_blocking=self._cuda)
            if self._checked:
                flags = torch.stack([_suspect(staging.rows[name][:rows]) for name in self._checked])
                staging.suspect.copy_(flags.any(), non_blocking=self._cuda)
        if self._cuda:
            staging.copied.record(self._stream)

    def groups(self, epoch: int, step: int, skip: int, rows: int) -> Iterator[Group]:
        """Gather this many rows of an epoch, starting at an offset in a step."""
        self._begin()
        pieces, begun = self._feeder.epoch(epoch, step), 0  # visits of the step in earlier pieces
        group = _DeviceGroup(self, self._batch_size)
        try:
            for piece, staging in self._sent(pieces):
                visit, visits = self._scattered(piece, staging), len(piece.visit)
                at, skip = min(skip, visits), max(0, skip - visits)
                while at < visits and rows:
                    taken = group.add(visit, at, min(visits, at + rows))
                    group.places.append((step, begun + at, taken))
                    at, rows = at + taken, rows - taken
                    if group.rows == group.most:
                        yield group.finish()
                        self._here = self._work is None or torch.cuda.current_stream(self._device) == self._work
                        group = _DeviceGroup(self, min(self._group, 2 * group.grown))
                step, begun = (step + 1, 0) if piece.last else (step, begun + visits)
                if not rows:
                    break
            if group.rows:
                yield group.finish()
        finally:
            pieces.close()  # type: ignore[attr-defined]  # a generator: ends its reading thread
            if self._stream is not None:
                self._stream.synchronize()  # copies read the staging memory

    def _begin(self) -> None:
        """Choose the training loop's stream for this iteration's work, after that of earlier iterations."""
        if self._stream is not None:
            stream = torch.cuda.current_stream(self._device)
            if self._work not in (None, stream):
                stream.wait_stream(self._work)
            self._work, self._here = stream, True
            self._stream.wait_stream(stream)  # the last use of reused memory may still run there

    def _working(self) -> AbstractContextManager[None]:
        return _on(None if self._here else self._work)

    def _scattered(self, piece: Piece, staging: StagingBuffer) -> torch.Tensor:
        """Move a piece's rows to their slots once they have arrived; return the slots to visit."""
        rows = len(piece.into)
        if self._cuda:
            self._work.wait_event(staging.copied)
        if self._checked:
            self._check(piece, staging)
        with self._working():
            slots = staging.slots[: rows + len(piece.visit)].long()  # the type that `index_copy_` takes
            into = slots[:rows]
            for name, column in self._slots.items():
                if rows:
                    column.index_copy_(0, into, staging.rows[name][:rows])
        if self._cuda:
            staging.scattered.record(self._work)
        return slots[rows:]

    def _check(self, piece: Piece, staging: StagingBuffer) -> None:
        """Raise the error of a value that no learner takes, if the piece has one."""
        if self._cuda:
            staging.copied.synchronize()
        if staging.suspect:
            kept = np.flatnonzero(piece.into >= 0)
            self._selection.finish({name: values.numpy()[kept] for name, values in staging.host.items()})

    @property
    def progress(self) -> Progress:
        """Return the reading progress."""
        return self._feeder.progress

    @property
    def resident(self) -> int:
        """Return the bytes of rows on the device and in staging memory."""
        return sum(slots.nbytes for slots in self._slots.values()) + self._feeder.buffer.nbytes

    def close(self) -> None:
        """Free the device's memory; the reader owns the files."""
        self._slots.clear()
        self._ring.clear()

    def finished(self, columns: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return columns in the types of batches."""
        with self._working():
            for name, (stored, made) in self._types.items():
                columns[name] = columns[name].view(stored).to(made)
        return columns

    def take(self, visit: torch.Tensor, into: dict[str, torch.Tensor], rows: slice) -> None:
        """Gather visited slots into rows."""
        with self._working():
            for name, slots in self._slots.items():
                torch.index_select(slots, 0, visit, out=into[name][rows])

    def fresh(self, rows: int) -> dict[str, torch.Tensor]:
        """Allocate rows on the device, which will belong to the caller of the loader."""
        with self._working():
            return {of.name: self._empty(rows, of) for of in self._fields}


class _DeviceGroup:
    """A group that is being gathered."""

    def __init__(self, buffer: DeviceBuffer, most: int) -> None:
        self.most = self.grown = most
        self._buffer, self._columns = buffer, buffer.fresh(most)
        self.places: list[Place] = []
        self.rows = 0

    def add(self, visit: torch.Tensor, at: int, end: int) -> int:
        """Gather the rows visited from ``at`` to ``end``, as many as fit; return their number."""
        end = min(end, at + self.most - self.rows)
        before, self.rows = self.rows, self.rows + end - at
        self._buffer.take(visit[at:end], self._columns, slice(before, self.rows))
        return end - at

    def finish(self) -> Group:
        """Return the gathered rows."""
        columns = {name: rows[: self.rows] for name, rows in self._columns.items()}
        return Group(self.places, self.rows, self._buffer.finished(columns))


@contextmanager
def _on(stream: Any) -> Iterator[None]:
    """Work on a stream, None: the current one; with tensors that training can use if the loop is in inference mode."""
    with torch.inference_mode(mode=False), nullcontext() if stream is None else torch.cuda.stream(stream):
        yield


def _movable(rows: torch.Tensor) -> torch.Tensor:
    """Return a view of rows with a type that PyTorch can index."""
    return rows.view(MOVED_AS.get(rows.dtype, rows.dtype))


def _suspect(rows: torch.Tensor) -> torch.Tensor:
    """Return whether rows may hold NaN, or bits of integers beyond int64, in a tensor on their device."""
    return rows.sum().isnan() if rows.dtype.is_floating_point else rows.lt(0).any()
