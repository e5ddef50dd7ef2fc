"""Loader that copies the next batch to a device while the current one is in use."""

import logging
from collections import UserDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from functools import partial
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, Protocol
from weakref import finalize

import numpy as np
import numpy.typing as npt
import torch

from corgipile.errors import BadArgument, WriteFailed
from corgipile.loader import Loader
from corgipile.loader.shutdown import closed_at_exit
from corgipile.sizes import Size, parse_bytes
from corgipile.torch.dataset import CorgiPileDataset
from corgipile.torch.device_buffer import DeviceBuffer

if TYPE_CHECKING:
    from corgipile.torch.worker import Source

__all__ = ["DeviceLoader"]

EXHAUSTED = object()
DEVICE_MEMORY, DEVICE_SHARE = 2 << 30, 1 / 4  # default size of a buffer on a device; its largest share of the device
log = logging.getLogger("corgipile")


class DeviceLoader:
    """Iterates over batches on a device and transfers the next one meanwhile.

    A DataLoader without workers gathers, pins and copies a batch on request, and the device waits. Here a native thread
    gathers the next batches' rows into page-locked memory. Each batch is copied from there on a separate stream while
    the previous one is in use. Give the dataset itself if there are no workers. Batches of a DataLoader are pinned by
    its ``pin_memory``, else here. Devices other than CUDA get copies on request.

    On a CUDA device the shuffle buffer itself lies there if the dataset is given without a DataLoader: rows are copied
    once, in large parts, and gathered into batches on the device. ``device_memory`` is the buffer's size. The dataset's
    ``memory`` holds rows on their way; the device holds a copy of these. The batches are those of a dataset with
    ``memory=device_memory``. Encoded rows, such as Parquet, are first unpacked to a spill file, which changes their
    order. The loader fits a copy of the dataset, ``loader.dataset``; the dataset itself keeps its ``memory``.

    Tensors in dictionaries, lists and tuples are moved. Objects with a method ``to`` (a ``PackedSequence``, a graph)
    move themselves when their batch is due; other values (text, bytes, arrays) stay as they are. The device holds two
    batches, the current and the next one. Up to eight arrays per column, each a megabyte or a batch, are page-locked on
    top of ``memory``. If these would exceed half of ``memory``, rows are gathered on request.

    Args:
        batches: A `CorgiPileDataset` with ``batch_size``, a DataLoader, or another iterable that yields batches each
            time it is iterated over.
        device: The target; by default the current CUDA device, or the CPU if there is none.
        device_memory: Bytes of the shuffle buffer on the device, such as ``"2GB"``; 0: the buffer stays on the host.
            None: on a CUDA device 2 GB, or ``memory`` if that is more, but at most a quarter of the device; 0 on others
            and for batches that a device cannot gather (of rows of varying length, or changed by ``transform``). Ranks
            of ``global_batches`` share it.

    Attributes:
        device: The device, with its number.
        device_memory: Bytes of the shuffle buffer on the device; 0: it is on the host.

    Raises:
        BadArgument: The device does not exist, ``batches`` cannot be gathered there, or is a `corgipile.Loader`, whose
            state would run ahead of the training.
        BudgetTooSmall: ``device_memory`` does not hold the smallest buffer. The first batch raises it if the device
            lacks that memory, or if ``memory`` does not hold four rows.

    Example:
        >>> import pyarrow as pa
        >>> from corgipile.torch import CorgiPileDataset
        >>> dataset = CorgiPileDataset(pa.table({"x": [float(i) for i in range(10)]}), batch_size=4, seed=1)
        >>> loader = DeviceLoader(dataset, "cpu")
        >>> [batch["x"].device.type for batch in loader], len(loader)
        (['cpu', 'cpu', 'cpu'], 3)
    """

    def __init__(
        self,
        batches: Iterable[Any],
        device: "str | int | torch.device | None" = None,
        *,
        device_memory: Size | None = None,
    ) -> None:
        if isinstance(batches, Loader):
            raise BadArgument(
                "batches must not be a corgipile.Loader, whose state would run ahead of the training: "
                "give corgipile.torch.CorgiPileDataset, which takes the same arguments"
            )
        self._batches, self.device = batches, _resolve_device(device)
        self._source: Source | None = None
        self.device_memory = self._fit_device(device_memory)
        self._moves: Moves | None = None
        self._yielded: int | None = None
        self._latest: object = None

    def _fit_device(self, wanted: Size | None) -> int:
        """Fit the dataset to the device's memory; return its bytes, 0 if the buffer stays on the host."""
        data, device = self._batches, self.device
        if wanted == 0 or (wanted is None and (device.type != "cuda" or not isinstance(data, CorgiPileDataset))):
            return 0
        if not isinstance(data, CorgiPileDataset):
            raise BadArgument(
                f"device_memory needs a CorgiPileDataset, got {type(data).__name__}: give the dataset itself, "
                "since the buffer of a DataLoader lies in its workers"
            )
        staging = data.memory
        if wanted is None:
            whole = torch.cuda.get_device_properties(device).total_memory
            memory = min(max(DEVICE_MEMORY, staging), int(whole * DEVICE_SHARE))
        else:
            memory = parse_bytes(wanted, "device_memory")
        try:
            self._batches = fitted = data.fitted_to(memory)
        except (BadArgument, WriteFailed) as obstacle:
            if wanted is not None:
                raise
            log.info("the shuffle buffer stays on the host: %s", obstacle)
            return 0
        self._source = partial(DeviceBuffer, device=device, staging=staging)
        finalize(self, fitted.release, self._source).atexit = False
        return memory

    def __repr__(self) -> str:
        return f"DeviceLoader({self._batches!r}, device={str(self.device)!r}, device_memory={self.device_memory})"

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return len(self._batches)  # type: ignore[arg-type]  # an iterable without length raises

    @property
    def dataset(self) -> Any:
        """Return the dataset that the batches come from: a copy that fits ``device_memory``, if that is not 0."""
        return getattr(self._batches, "dataset", self._batches)

    @closed_at_exit
    def __iter__(self) -> Iterator[Any]:
        """Begin an iteration, the next epoch of a `CorgiPileDataset`."""
        if self._moves is None:
            self._moves = Streamed(self.device) if self.device.type == "cuda" else Direct(self.device)
        moves, source = OnDevice(self.device) if self.device_memory else self._moves, iter(self._batches)
        yielded, this = 0, object()
        self._yielded, self._latest = yielded, this
        self._run_ahead(moves)
        pending, failures, more = deque[Any](), list[Exception](), True
        try:
            while pending or more:
                try:
                    while more and len(pending) < 2:
                        batch = next(source, EXHAUSTED)  # catching StopIteration would keep frames alive
                        if more := batch is not EXHAUSTED:
                            pending.append(moves.begin(batch))
                        del batch
                        if not yielded:
                            self._run_ahead(moves)  # some iterables begin only with their first batch
                except Exception as error:  # noqa: BLE001 - raised after the batches before it
                    clear_frames(error.__traceback__)  # a DataLoader's frames form a cycle with the error
                    failures.append(error)
                    more = False
                if pending:
                    yielded += 1
                    if self._latest is this:  # else a state was loaded, or another iteration began
                        self._yielded = yielded
                    yield moves.end(pending.popleft())
            if failures:
                raise failures.pop()
        finally:
            failures.clear()  # a kept error forms a cycle with this frame
            pending.clear()
            moves.drain()

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration run this epoch, see `CorgiPileDataset.set_epoch`."""
        self._own().set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the training loop's position: the batches it got, not those ahead of it.

        Raises:
            BadArgument: The batches do not come from a `CorgiPileDataset`.
        """
        return self._own().state_dict(self._yielded, getattr(self._batches, "batch_size", None) or 1)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, see `CorgiPileDataset.load_state_dict`."""
        self._own().load_state_dict(state)
        self._yielded = self._latest = None

    def _run_ahead(self, moves: "Moves") -> None:
        if isinstance(self.dataset, CorgiPileDataset):
            self.dataset.run_ahead(moves.empty, self._source)

    def _own(self) -> CorgiPileDataset:
        if isinstance(self.dataset, CorgiPileDataset):
            return self.dataset
        raise BadArgument(f"epochs and states need a CorgiPileDataset, got {type(self.dataset).__name__}")


class Moves(Protocol):
    """Transfer of batches to a device."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Allocate an array in the source memory of copies."""

    def begin(self, batch: Any) -> Any:
        """Begin to copy a batch."""

    def end(self, begun: Any) -> Any:
        """Return a batch that later work can use."""

    def drain(self) -> None:
        """Wait for copies and release their sources."""


class Direct:
    """Copies on request."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Allocate an array."""
        return np.empty(shape, dtype)

    def begin(self, batch: Any) -> Any:
        """Copy a batch."""
        return _map_tensors(batch, self._to, self._to)

    def end(self, begun: Any) -> Any:
        """Return the batch."""
        return begun

    def drain(self) -> None:
        """Do nothing."""

    def _to(self, value: Any) -> Any:
        return value.to(self._device)


class OnDevice(Direct):
    """Batches that lie on the device already, gathered there on the stream that is current as the iteration begins."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._stream = torch.cuda.current_stream(device) if device.type == "cuda" else None

    def begin(self, batch: Any) -> Any:
        """Return the batch."""
        return batch

    def end(self, begun: Any) -> Any:
        """Make another stream of the loop wait for the batch, and keep the batch's memory for its work."""
        if self._stream is not None and (stream := torch.cuda.current_stream(self._device)) != self._stream:
            stream.wait_stream(self._stream)
            _map_tensors(begun, partial(_keep_for, stream))
        return begun


class Streamed:
    """Copies from page-locked memory on a stream next to the work's."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._copying: deque[tuple[torch.cuda.Event, Any]] = deque()  # sources of copies in flight

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Allocate an array of page-locked memory, or of any memory if tensors lack the type."""
        try:
            kind = torch.from_numpy(np.empty(0, dtype)).dtype
        except TypeError:
            return np.empty(shape, dtype)
        return torch.empty(shape, dtype=kind, device="cpu", pin_memory=True).numpy()

    def begin(self, batch: Any) -> tuple["torch.cuda.Event", Any]:
        """Begin to copy, and keep the source until the copy is done."""
        while self._copying and self._copying[0][0].query():  # type: ignore[no-untyped-call]
            self._copying.popleft()
        with torch.cuda.stream(self._stream):
            pinned = _map_tensors(batch, _pin)
            moved = _map_tensors(pinned, lambda value: value.to(self._device, non_blocking=True))
            copied = self._stream.record_event()
        self._copying.append((copied, pinned))
        return copied, moved

    def end(self, begun: tuple["torch.cuda.Event", Any]) -> Any:
        """Make later work wait for the copy, and keep the copy's memory for that work."""
        copied, moved = begun
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(copied)
        # Objects that move themselves do so on the work's stream, since only they know which memory they use.
        return _map_tensors(moved, partial(_keep_for, stream), lambda value: value.to(self._device, non_blocking=True))

    def drain(self) -> None:
        """Wait for the copies and release their memory."""
        while self._copying:
            self._copying.popleft()[0].synchronize()


def _resolve_device(device: "str | int | torch.device | None") -> torch.device:
    """Return a device with its index."""
    try:
        target = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device is None else device)
    except (RuntimeError, TypeError) as error:
        raise BadArgument(f"device must be a name such as 'cuda' or 'cuda:1', got {device!r}: {error}") from None
    if target.type == "cuda":
        if (target.index or 0) >= torch.cuda.device_count():
            raise BadArgument(f"device must be one of {torch.cuda.device_count()} CUDA devices, got {device!r}")
        return torch.device("cuda", torch.cuda.current_device() if target.index is None else target.index)
    return target


def _pin(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor in page-locked memory, itself if it lies there."""
    return value.pin_memory() if value.device.type == "cpu" and not value.is_pinned() else value


def _keep_for(stream: "torch.cuda.Stream", value: torch.Tensor) -> torch.Tensor:
    """Keep a tensor's memory, once it is freed, until a stream's work so far is done."""
    value.record_stream(stream)
    return value


def _identity(value: Any) -> Any:
    return value


def _map_tensors(
    batch: Any, change: Callable[[torch.Tensor], torch.Tensor], move: Callable[[Any], Any] = _identity
) -> Any:
    """Change the tensors of a batch, and move other objects that can move."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, dict | UserDict):
        changed = copy(batch)  # keeps its type and attributes
        for name, value in batch.items():
            changed[name] = _map_tensors(value, change, move)
        return changed
    if callable(getattr(batch, "to", None)):
        return move(batch)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_map_tensors(value, change, move) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(_map_tensors(value, change, move) for value in batch)
    return batch
