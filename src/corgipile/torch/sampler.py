"""Batch samplers for unmodified map-style datasets."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from torch.utils.data import Sampler

from corgipile.errors import BadArgument, BadSize
from corgipile.loader.budget import Fitted, cut, sketched
from corgipile.loader.checkpoint import Part, checked, go_on, identity_of
from corgipile.loader.default_order import fixed
from corgipile.loader.segments import EpochSegment
from corgipile.orders import Order, named, seek, visited_rows
from corgipile.orders.riffle import CONTENT
from corgipile.sizes import MAX_EPOCH, Size, to_rows, whole
from corgipile.tables import MemoryTable, Subset, Table
from corgipile.tables.table import IntArray
from corgipile.torch.rank import RankFinder

__all__ = ["BatchSampler"]


class BatchSampler(Sampler[list[int]]):
    """Yields lists of row numbers in an order of corgipile, for ``DataLoader(dataset, batch_sampler=...)``.

    Datasets that cache rows, or read neighbouring rows faster than scattered ones, gain from any order but a full
    shuffle; with ``labels`` batches are balanced, too. The sampler handles row numbers only and buffers ``buffer`` of
    them. The epoch advances with each iteration, as in `CorgiPileDataset`.

    Args:
        n: The dataset, or its number of rows.
        block: Neighbouring rows that form a block: rows, or a share such as ``"1%"``.
        buffer: Rows to mix, in the same units; at least one block.
        batch_size: Rows per batch.
        seed: Seed of all epochs.
        rank: This process of ``world``.
        world: Number of processes that share each epoch; all take the same number of batches.
        order: An order of `corgipile.orders`, or its name.
        labels: The class or target of each row, by which Riffle balances its blocks; other orders reject it.
        drop_last: Drop the last batch if it is short; several ranks then repeat no rows.
        global_batches: ``"fixed"``: batch i of all ranks together is the same in every world. ``batch_size`` and
            ``buffer`` are then totals over all ranks, see `CorgiPileDataset`.

    Example:
        >>> sampler = BatchSampler(10, block=2, buffer=4, batch_size=4)
        >>> batches = list(sampler)
        >>> [len(batch) for batch in batches], sorted(sum(batches, [])) == list(range(10))
        ([4, 4, 2], True)
    """

    def __init__(
        self,
        n: int | Sized,
        *,
        block: Size = "1%",
        buffer: Size = "10%",
        batch_size: int = 256,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        order: Order | str = "riffle",
        labels: Sequence[Any] | npt.ArrayLike | None = None,
        drop_last: bool = False,
        global_batches: Literal["fixed"] | None = None,
    ) -> None:
        self.batch_size, self.drop_last = whole(batch_size, "batch_size", 1), drop_last
        self._seed, self._place = whole(seed, "seed"), RankFinder(rank, world).find()
        sizes = {"block": block, "buffer": buffer}
        for what, size in sizes.items():
            if isinstance(size, str) and not size.rstrip().endswith("%"):
                raise BadSize(f'{what} must be rows (100) or a share of them ("1%"), got {size!r}')
        sized = replace(named(order), block=block, buffer=buffer, ahead=0)  # type: ignore[type-var]
        self._order: Order = _balance(sized, labels is not None)
        if global_batches is not None:
            self._order = batches = fixed(global_batches, self._order, self.batch_size)
            self.batch_size = batches.batch_rows(self._place.world)
        rows = len(n) if isinstance(n, Sized) and not isinstance(n, str) else whole(n, "n", 0)
        block_rows, buffer_rows = (to_rows(size, rows, 1.0, what) for what, size in sizes.items())
        if buffer_rows < min(block_rows, rows):
            raise BadSize(f"buffer must hold a block of {block_rows} rows, got {buffer!r}; make block smaller")
        self._table = MemoryTable(pa.table({"label": _labels(rows, labels)}))
        self._identity = identity_of(self._table, self._order, self._seed)
        self._whole = self._fit(self._table)
        self._planned: tuple[int, list[EpochSegment]] = 0, []
        self._latest: Part | None = None

    def _fit(self, table: Table) -> Fitted:
        order = self._order.fit(len(table), 1.0, None)
        blocks = cut(table, order, order.block_rows, ["label"])
        return Fitted(order, sketched(table, order, blocks), order.block_rows, ["label"])

    def _begin(self, table: Table) -> tuple[EpochSegment, Fitted]:
        fitted = self._whole if table is self._table else self._fit(table)
        return EpochSegment.begin(fitted, self.batch_size, self._place.world, 1, drop_last=self.drop_last), fitted

    def _walk(self, epoch: int, segments: list[EpochSegment]) -> tuple[Part, Iterator[list[int]]]:
        """Return the part that an iteration runs, and its batches."""
        self._latest = go_on(self._table, self._seed, epoch, segments, self._begin)
        return self._latest, self._batches(self._latest)

    def _batches(self, part: Part) -> Iterator[list[int]]:
        size, segment, (order, blocks, *_) = self.batch_size, part.segment, self._begin(part.table)[1]
        key = segment.key(self._seed, part.epoch, self._place.rank, 0)
        step, skip = seek(order, blocks, key, segment.batches[0] * size)
        waiting: list[int] = []
        for rows in visited_rows(order, blocks, key, step):
            waiting += _places(part.table, rows[skip:]).tolist()
            skip, whole = 0, len(waiting) // size * size
            for at in range(0, whole, size):
                segment.batches[0] += 1
                yield waiting[at : at + size]
            del waiting[:whole]
        if segment.batches < part.totals:
            segment.batches[0] += 1
            yield waiting

    @property
    def epoch(self) -> int:
        """Return the epoch of the latest iteration, or of the next one if none began since `set_epoch`."""
        return self._latest.epoch if self._latest else self._planned[0]

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration run this epoch: from its beginning, or from a state of it that was just loaded."""
        epoch = whole(epoch, "epoch", 0, MAX_EPOCH)
        if self._latest is not None or self._planned[0] != epoch:
            self._planned, self._latest = (epoch, []), None

    def __len__(self) -> int:
        """Return the number of batches of this rank in a whole epoch."""
        segment, fitted = self._begin(self._table)
        return segment.totals(fitted, self._seed, 0)[0]

    def __iter__(self) -> "Walk":
        """Begin an iteration: over all batches, or after `load_state_dict` over the remaining ones."""
        epoch, segments = (self._latest.epoch + 1, []) if self._latest else self._planned
        return Walk(self._walk, self._identity, epoch, segments)

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return the position of the latest iteration: a small dictionary for JSON, the same on every rank.

        Args:
            batches: Batches the training loop got; needed with workers, which run ahead of the loop.
        """
        if self._latest is None:
            epoch, segments = self._planned
            return {**self._identity, "epoch": epoch, "segments": [segment._asdict() for segment in segments]}
        done = self._latest.segment.batches if batches is None else self._latest.after(batches)
        return {**self._identity, **self._latest.standing(done)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state; with another world or batch size each unvisited row is visited once.

        Raises:
            StateMismatch: The state belongs to other rows, another order or seed.
        """
        self._planned, self._latest = checked(state, self._identity), None


class Walk:
    """One iteration of a sampler; torchdata stores its state."""

    def __init__(
        self,
        walk: Callable[[int, list[EpochSegment]], tuple[Part, Iterator[list[int]]]],
        identity: Mapping[str, Any],
        epoch: int,
        segments: list[EpochSegment],
    ) -> None:
        self._walk, self._identity = walk, identity
        self._part, self._batches = walk(epoch, segments)

    def __iter__(self) -> "Walk":
        return self

    def __next__(self) -> list[int]:
        return next(self._batches)

    def state_dict(self) -> dict[str, Any]:
        """Return the iteration's position."""
        return {**self._identity, **self._part.state(self._part.segment.batches)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue an iteration from its position."""
        self._part, self._batches = self._walk(*checked(state, self._identity))


def _places(table: Table, rows: IntArray) -> IntArray:
    """Return row numbers in the whole table."""
    while isinstance(table, Subset):
        rows, table = table.places(rows), table.table
    return rows


def _balance(order: Order, labelled: bool) -> Order:
    """Return an order that balances by the given labels only."""
    if order.sketch_column == CONTENT:
        raise BadArgument(
            'a sampler cannot balance by content, since it reads no rows: give order="balanced" and labels='
        )
    if labelled and not hasattr(order, "balance"):
        raise BadArgument(
            f'labels need order="riffle" or "balanced", got {order.name}, which does not balance: leave them out'
        )
    if order.sketch_column is not None and not labelled:
        raise BadArgument(f'this order balances blocks by {order.sketch_column!r}: give labels=, or order="riffle"')
    return replace(order, balance="label") if labelled else order  # type: ignore[type-var]


def _labels(n: int, labels: Any) -> Any:
    """Return labels as a numeric column; without labels, a column that takes no memory."""
    if labels is None:
        return pa.nulls(n)
    values = np.asarray(labels)
    if values.shape != (n,):
        raise BadArgument(f"labels must have shape ({n},), one per row, got shape {values.shape}")
    if values.dtype.kind in "biuf":
        return pa.array(values)
    try:
        return pa.array(np.unique(values, return_inverse=True)[1])
    except TypeError:
        kinds = ", ".join(sorted({type(value).__name__ for value in values}))
        raise BadArgument(f"labels must be all numbers or all text, without missing ones, got {kinds}") from None
