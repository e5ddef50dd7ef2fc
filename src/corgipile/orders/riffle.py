"""Riffle: deal rows from staggered piles, blocks in random or balanced order."""

from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import BadArgument
from corgipile.orders.order import BLOCK_BYTES, Blocks, IntArray, Key, with_sizes
from corgipile.orders.planned import Planned

FEWEST, MOST = 128, 1 << 20  # blocks that are asked for where batches are known, whatever their size
SMALLEST, ROOM = 32 << 10, 64  # bytes of blocks that are no smaller for that; blocks that are on their way beside them
SHARE = 16  # a table has so many times the blocks that are asked for, where they are larger than it has them by itself
CONTENT = "content"  # what blocks are balanced by that is no column
RANDOM = "random"  # what a first epoch is like that is balanced by none


@dataclass(frozen=True, kw_only=True)
class Riffle(Planned):
    """Deal each block's permuted rows evenly over R = 2n block-times, in slots freed by rows visited before.

    The block at position k (N blocks of b rows) deals its p-th row at time k + 1/2 + R ((p + u)/b - 1/2), reflected
    into [0, N], with a jitter u keyed by the row; rows are visited by ascending time. About half of each pile has left
    on average, so R = 2n piles need n + 1/2 blocks of memory, and B consecutive rows come from about B different blocks
    as long as B <= R. With ``balance``, blocks are laid out so that every stretch of the pass samples all kinds of
    blocks evenly: batches then vary less than those of a full shuffle. The method is corgipile's own.

    With whole blocks nothing is copied after the read, but R piles need R blocks of memory. Balanced blocks need few
    piles, so they stay whole by default, and 64 of them, or 4 MB if that is more, are enough; others do where memory
    holds 192 or more.

    Attributes:
        balance: ``"label"`` or another column by whose values blocks are balanced; ``"content"``: by all that is in
            them, features and label; None: random block order.
        first_epoch: A column by which the first epoch is balanced instead, or ``"random"``: by none. Blocks are then
            told apart for ``"content"`` by rows that this epoch reads, not by a look before it, which takes as long as
            an epoch where a table is encoded in large units. None: the first epoch is like all others.
        group: Blocks loaded per step; chosen by `fit` so that a step is worth its overhead.
        whole: Keep blocks as they were read until their last row is visited, R is then n, else 2n; None: as said above,
            and always for rows of varying length.
        spare: Fill no more of the memory than mixes well: 192 blocks, or 4 MB if that is more.
        batch: Rows of a batch. Blocks are a third more, and 128 at least, where memory holds these, of 32 KB if need
            be: then hardly two of its rows are of one block, whatever clusters rows beside what blocks are balanced by.
            Where it holds as many larger ones, and the table 16 times as many, they are larger, up to 64 KB; where it
            holds more of these, they are half more than the batch has rows.

    Example:
        >>> from corgipile.orders import Blocks, Key, visited_rows
        >>> order = Riffle(block=10, buffer=30).fit(100, 8, None)
        >>> visits = np.concatenate(list(visited_rows(order, Blocks(100, even=10), Key(seed=0))))
        >>> bool((np.sort(visits) == np.arange(100)).all()), bool((visits == np.arange(100)).all())
        (True, False)
    """

    name: ClassVar[str] = "riffle"
    kind: ClassVar[str] = "riffle"
    balance: str | None = None
    first_epoch: str | None = None
    group: int = 0
    whole: bool | None = None
    spare: bool = field(default=False, repr=False)
    batch: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group < 0:
            raise BadArgument(f"group must be at least 1 block, got {self.group}")
        for name, column in (("balance", self.balance), ("first_epoch", self.first_epoch)):
            if column is not None and not isinstance(column, str):
                raise BadArgument(f"{name} is the name of a column, got {column!r}")
        if self.first_epoch is not None and (self.balance != CONTENT or self.first_epoch == CONTENT):
            raise BadArgument(
                f"first_epoch is a column, or {RANDOM!r}, where later epochs have balance={CONTENT!r}, "
                f"got first_epoch={self.first_epoch!r}, balance={self.balance!r}"
            )

    @property
    def version(self) -> int | None:
        """Return the version of the balanced block order; version 1 was one fixed cycle in all epochs."""
        return None if self.balance is None else 2

    def shape(self) -> tuple[int, int, bool]:
        """Return the plan's buffer blocks, blocks per step, and whether blocks stay whole."""
        return self.buffer_blocks(), max(1, self.group), bool(self.whole)

    def fit_request(self, whole: bool) -> tuple[int, int, int, bool]:  # by position, into the kernel
        """Return blocks per step (0: any), whether they stay whole (-1: either), how many do, and if no more are kept.

        How many do is asked of balanced blocks only; 0: they are not.
        """
        kept, enough = True if whole else self.whole, self._enough(2) if self.batch else 1
        return self.group, -1 if kept is None else int(kept), enough if self.balance is not None else 0, self.spare

    def _enough(self, part: int) -> int:
        """Return the blocks by which batches are mixed: of their rows one part more."""
        return min(max(FEWEST, self.batch + self.batch // part), MOST)

    def sized(self, block: int, buffer: int, group: int, whole: bool) -> Self:
        """Return this order with sizes in rows, and how blocks are loaded and kept."""
        return with_sizes(self, block=block, buffer=buffer, group=group, whole=whole)

    def fit_block(self, rows: int, row_bytes: float, budget: int | None) -> int:
        """Choose the rows of a block."""
        block = super().fit_block(rows, row_bytes, budget)
        if self.block is not None or self.buffer is not None or not self.batch or budget is None:
            return block
        enough = self._enough(3)
        each, widest = budget // (enough + ROOM), min(int(BLOCK_BYTES / row_bytes), rows // (SHARE * enough))
        return max(1, min(block, max(int(SMALLEST / row_bytes), each)), min(each, widest))

    @property
    def sketch_column(self) -> str | None:
        """Return the column by which blocks are balanced, or ``"content"``."""
        return self.balance

    @property
    def title(self) -> str:
        """Return the order's name, and the column by which it balances."""
        if self.balance is None:
            return self.name
        if self.first_epoch is not None:
            first = self.name if self.first_epoch == RANDOM else f"balanced by {self.first_epoch!r}"
            return f"{first}, from the second epoch on by content"
        return "balanced by content" if self.balance == CONTENT else f"balanced by {self.balance!r}"

    def block_order(self, blocks: Blocks, key: Key) -> IntArray | None:
        """Return the balanced order of blocks where their sketch is known."""
        sketch = None if self.balance is None else blocks.sketch_of(key.epoch)
        return None if sketch is None else _balanced(_Sketch(sketch), key.hash(_kernel.KEY_BALANCE))


class _Sketch:
    """A sketch that is its own key."""

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self.values = values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Sketch) and self.values is other.values

    def __hash__(self) -> int:
        return id(self.values)


@lru_cache(maxsize=1)  # the lanes of a pass have one
def _balanced(sketch: _Sketch, hashed: int) -> IntArray:
    """Return the blocks in an order that is balanced by their sketch."""
    values, order = sketch.values, np.empty(len(sketch.values), np.int64)
    if values.ndim == 2:
        _kernel.balance_vectors(np.ascontiguousarray(values, np.int16), values.shape[1], hashed, order)
    else:
        _kernel.balance(np.ascontiguousarray(values, np.float64), hashed, order)
    return order


@dataclass(frozen=True, kw_only=True)
class Auto(Riffle):
    """Riffle, balanced by the label where a table has one that is cheap to read, or by content: the default everywhere.

    What it is balanced by, if anything, is told by the table (`corgipile.loader.default_order`); of itself it is plain
    Riffle.

    Example:
        >>> Auto(block=10).settled("label")
        Riffle(block=10, buffer=None, ahead=1, balance='label', first_epoch=None, group=0, whole=None)
    """

    name: ClassVar[str] = "auto"

    def settled(self, label: str | None, batch: int = 0) -> Riffle:
        """Return this order with all its sizes, balanced by its own column or this one, for such batches."""
        sizes = {one.name: getattr(self, one.name) for one in fields(self)}
        return Riffle(**{**sizes, "balance": self.balance or label, "batch": self.batch or batch})
