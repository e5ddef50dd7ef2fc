"""Batches on a device: the next one is gathered and copied while one is computed with."""

from collections import UserDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from traceback import clear_frames
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from corgipile.errors import BadArgument
from corgipile.loader import Loader
from corgipile.loader.shutdown import closed_at_exit
from corgipile.torch.dataset import CorgiPileDataset

__all__ = ["DeviceLoader"]

OVER = object()


class DeviceLoader:
    """Iterates over batches on a device, the next of which is on its way meanwhile.

    A DataLoader without workers gathers, pins and copies a batch when it is asked for, and the device waits. Here a
    thread of the kernel gathers the rows of the next batches into page-locked memory, without Python, and each is
    copied from there on a stream of its own while the one before it is computed with. Give the dataset itself where
    there are no workers. Batches of a DataLoader are pinned by its ``pin_memory``, else here; other devices than CUDA's
    get copies when they are asked for.

    Tensors are moved wherever they are in dictionaries, lists and tuples; what has a method ``to`` of its own (a
    ``PackedSequence``, a graph) is moved by that, when its turn has come; all else (text, bytes, arrays) stays as it
    is. Two batches are on the device, that of the loop and the next one. Beside ``memory`` up to eight arrays of a
    column, of a megabyte or a batch, are page-locked; where these would take more than half of it, rows are gathered
    when they are asked for.

    Args:
        batches: A `CorgiPileDataset` with ``batch_size``, a DataLoader, or anything else that yields batches anew each
            time it is iterated over.
        device: Where to; by default the current CUDA device, or the CPU where there is none.

    Attributes:
        device: The device, with its number.

    Raises:
        BadArgument: There is no such device, or ``batches`` is a `corgipile.Loader`, whose state would run ahead of the
            training.

    Example:
        >>> import pyarrow as pa
        >>> from corgipile.torch import CorgiPileDataset
        >>> dataset = CorgiPileDataset(pa.table({"x": [float(i) for i in range(10)]}), batch_size=4, seed=1)
        >>> loader = DeviceLoader(dataset, "cpu")
        >>> [batch["x"].device.type for batch in loader], len(loader)
        (['cpu', 'cpu', 'cpu'], 3)
    """

    def __init__(self, batches: Iterable[Any], device: "str | int | torch.device | None" = None) -> None:
        if isinstance(batches, Loader):
            raise BadArgument(
                "batches: a corgipile.Loader says where it stands itself, which is ahead of what a training got here; "
                "give corgipile.torch.CorgiPileDataset, which takes the same arguments"
            )
        self._batches, self.device = batches, _found(device)
        self._moves: Moves | None = None
        self._yielded: int | None = None
        self._latest: object = None

    def __repr__(self) -> str:
        return f"DeviceLoader({self._batches!r}, device={str(self.device)!r})"

    def __len__(self) -> int:
        """Return the batches of an epoch."""
        return len(self._batches)  # type: ignore[arg-type]  # what has no length says so

    @property
    def dataset(self) -> Any:
        """Return the dataset whose batches these are."""
        return getattr(self._batches, "dataset", self._batches)

    @closed_at_exit
    def __iter__(self) -> Iterator[Any]:
        """Begin an iteration, the next epoch of a `CorgiPileDataset`."""
        if self._moves is None:
            self._moves = Streamed(self.device) if self.device.type == "cuda" else Plain(self.device)
        moves, came = self._moves, iter(self._batches)
        yielded, this = 0, object()
        self._yielded, self._latest = yielded, this
        self._run_ahead(moves)
        coming, failures, more = deque[Any](), list[Exception](), True
        try:
            while coming or more:
                try:
                    while more and len(coming) < 2:
                        batch = next(came, OVER)  # catching a StopIteration would keep frames and their batches alive
                        if more := batch is not OVER:
                            coming.append(moves.begin(batch))
                        del batch
                        if not yielded:
                            self._run_ahead(moves)  # again, for batches whose iteration begins with the first of them
                except Exception as error:  # noqa: BLE001 - raised after the batches before it
                    clear_frames(error.__traceback__)  # those of a DataLoader hold the error, and this frame by it
                    failures.append(error)
                    more = False
                if coming:
                    yielded += 1
                    if self._latest is this:  # else a state was loaded, or another iteration began
                        self._yielded = yielded
                    yield moves.end(coming.popleft())
            if failures:
                raise failures.pop()
        finally:
            failures.clear()  # keeping one would create a cycle: its traceback has this frame and those above
            coming.clear()
            moves.rest()

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration run this epoch, see `CorgiPileDataset.set_epoch`."""
        self._own().set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return where the training loop stands: the batches it got, not those that are ahead of it.

        Raises:
            BadArgument: The batches are not those of a `CorgiPileDataset`.
        """
        return self._own().state_dict(self._yielded, getattr(self._batches, "batch_size", None) or 1)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, see `CorgiPileDataset.load_state_dict`."""
        self._own().load_state_dict(state)
        self._yielded = self._latest = None

    def _run_ahead(self, moves: "Moves") -> None:
        if isinstance(self.dataset, CorgiPileDataset):
            self.dataset.run_ahead(moves.empty)

    def _own(self) -> CorgiPileDataset:
        if isinstance(self.dataset, CorgiPileDataset):
            return self.dataset
        raise BadArgument(f"epochs and states are those of a CorgiPileDataset, got {type(self.dataset).__name__}")


class Moves(Protocol):
    """How batches get to a device."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Make an array that batches may begin in."""

    def begin(self, batch: Any) -> Any:
        """Begin to copy a batch."""

    def end(self, begun: Any) -> Any:
        """Return a batch for the work that comes."""

    def rest(self) -> None:
        """Release the sources of copies."""


class Plain:
    """Copies at once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Make an array."""
        return np.empty(shape, dtype)

    def begin(self, batch: Any) -> Any:
        """Copy a batch."""
        return _mapped(batch, self._to, self._to)

    def end(self, begun: Any) -> Any:
        """Return it."""
        return begun

    def rest(self) -> None:
        """Do nothing."""

    def _to(self, one: Any) -> Any:
        return one.to(self._device)


class Streamed:
    """Copies from page-locked memory on a stream beside that of the work."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._copying: deque[tuple[torch.cuda.Event, Any]] = deque()  # what copies are made of, until they are

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Make an array of page-locked memory; of a type that tensors do not have one of any memory."""
        try:
            kind = torch.from_numpy(np.empty(0, dtype)).dtype
        except TypeError:
            return np.empty(shape, dtype)
        return torch.empty(shape, dtype=kind, pin_memory=True).numpy()

    def begin(self, batch: Any) -> tuple["torch.cuda.Event", Any]:
        """Begin to copy; the memory that is copied stays as it is until that is done."""
        while self._copying and self._copying[0][0].query():  # type: ignore[no-untyped-call]
            self._copying.popleft()
        with torch.cuda.stream(self._stream):
            pinned = _mapped(batch, _pinned)
            moved = _mapped(pinned, lambda one: one.to(self._device, non_blocking=True))
            copied = self._stream.record_event()
        self._copying.append((copied, pinned))
        return copied, moved

    def end(self, begun: tuple["torch.cuda.Event", Any]) -> Any:
        """Let the work that comes wait for the copy, and the copy's memory for that work."""
        copied, moved = begun
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(copied)

        def kept(one: torch.Tensor) -> torch.Tensor:
            one.record_stream(stream)
            return one

        # What moves itself does so on the work's stream: whose memory is used by which, it alone knows.
        return _mapped(moved, kept, lambda one: one.to(self._device, non_blocking=True))

    def rest(self) -> None:
        """Wait for the copies and release their memory."""
        while self._copying:
            self._copying.popleft()[0].synchronize()


def _found(device: "str | int | torch.device | None") -> torch.device:
    """Return a device with its number."""
    try:
        found = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device is None else device)
    except (RuntimeError, TypeError) as error:
        raise BadArgument(f"device is a name such as 'cuda' or 'cuda:1', got {device!r}: {error}") from None
    if found.type == "cuda":
        if (found.index or 0) >= torch.cuda.device_count():
            raise BadArgument(f"device {device!r}: there are {torch.cuda.device_count()} CUDA devices here")
        return torch.device("cuda", torch.cuda.current_device() if found.index is None else found.index)
    return found


def _pinned(one: torch.Tensor) -> torch.Tensor:
    """Return a tensor in page-locked memory, itself where it lies there."""
    return one.pin_memory() if one.device.type == "cpu" and not one.is_pinned() else one


def _itself(one: Any) -> Any:
    return one


def _mapped(batch: Any, change: Callable[[torch.Tensor], torch.Tensor], move: Callable[[Any], Any] = _itself) -> Any:
    """Change the tensors of a batch, and what else has a way to move."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, dict | UserDict):
        changed = copy(batch)  # of its own kind, with what it has beside
        for name, one in batch.items():
            changed[name] = _mapped(one, change, move)
        return changed
    if callable(getattr(batch, "to", None)):
        return move(batch)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_mapped(one, change, move) for one in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(_mapped(one, change, move) for one in batch)
    return batch
