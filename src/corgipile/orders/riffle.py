"""Riffle: deal rows from staggered piles, blocks in random or balanced order."""

from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from corgipile import _kernel
from corgipile.errors import BadArgument
from corgipile.orders.order import BLOCK_BYTES, MAX_PLANNED, Blocks, IntArray, Key, with_sizes
from corgipile.orders.planned import Planned

MIN_BLOCKS, MAX_BLOCKS = 128, 1 << 20  # blocks in memory for known batch sizes
MIN_BLOCK_BYTES, IN_FLIGHT = 32 << 10, 64  # smallest blocks made to get enough of them; further blocks in flight
TABLE_RATIO = 16  # smallest ratio of the table's blocks to the buffered ones, if blocks are made larger
CONTENT = "content"  # balance by block content instead of a column


@dataclass(frozen=True, kw_only=True)
class Riffle(Planned):
    """Deal each block's permuted rows evenly over R = 2n block-times, into slots of rows visited before.

    The block at position k (N blocks of b rows) deals its p-th row at time k + 1/2 + R ((p + u)/b - 1/2), reflected
    into [0, N], with a jitter u keyed by the row; rows are visited by ascending time. On average half of each pile has
    left, so R = 2n piles need n + 1/2 blocks of memory, and B consecutive rows come from about B different blocks for
    B <= R. With ``balance``, every stretch of the pass samples all kinds of blocks evenly: batches then vary less than
    those of a full shuffle. The method is corgipile's own.

    Whole blocks need no copy after the read, but R piles then need R blocks of memory. Balanced blocks need few piles,
    so they stay whole by default, and 64 of them, or 4 MB if that is more, suffice; other blocks stay whole if the
    memory holds 192 or more.

    Attributes:
        balance: ``"label"`` or another column whose values balance blocks; ``"content"``: features and label balance
            them; None: random block order.
        group: Blocks loaded per step; chosen by `fit` for low overhead per step.
        whole: Keep a block in its slots until its last row is visited; R is then n, else 2n. None: the default above,
            and always for variable-length rows.
        spare: Fill only as much of the memory as mixes well: 192 blocks, or 4 MB if that is more.
        batch: Rows of a batch. Blocks shrink, down to 32 KB, until the memory holds 4/3 of this number, and at least
            128: hardly two rows of a batch then come from one block, whatever other clusters the table has. If the
            memory holds that many larger blocks, and the table 16 times as many, they grow up to 64 KB. Still more
            memory holds up to 3/2 of this number.

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
    group: int = 0
    whole: bool | None = None
    spare: bool = field(default=False, repr=False)
    batch: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group < 0:
            raise BadArgument(f"group must be at least 1 block, got {self.group}")
        if self.balance is not None and not isinstance(self.balance, str):
            raise BadArgument(f"balance must be the name of a column, got {self.balance!r}")

    @property
    def version(self) -> int:
        """Return the version: 1 drew orders of one parity or one cycle; 2, by content, ended with the same blocks."""
        return 3 if self.balance == CONTENT else 2

    def shape(self) -> tuple[int, int, bool]:
        """Return the plan's buffer blocks, blocks per step, and whether blocks stay whole."""
        return self.buffer_blocks(), max(1, self.group), bool(self.whole)

    def fit_request(self, whole: bool) -> tuple[int, int, int, bool]:  # passed to the kernel by position
        """Return blocks per step (0: any), whether they stay whole (-1: either), enough balanced blocks, ``spare``.

        The third is the number of balanced blocks that suffices, 0 for blocks in random order.
        """
        intact, enough = True if whole else self.whole, self._needed(2) if self.batch else 1
        return self.group, -1 if intact is None else int(intact), enough if self.balance is not None else 0, self.spare

    def _needed(self, part: int) -> int:
        """Return how many blocks a batch needs: its rows plus 1/part, within bounds."""
        return min(max(MIN_BLOCKS, self.batch + self.batch // part), MAX_BLOCKS)

    def sized(self, block: int, buffer: int, group: int, whole: bool) -> Self:
        """Return this order with sizes in rows, and the group and wholeness of blocks."""
        return with_sizes(self, block=block, buffer=buffer, group=group, whole=whole)

    def fit_block(self, rows: int, row_bytes: float, budget: int | None) -> int:
        """Choose the rows of a block."""
        block = super().fit_block(rows, row_bytes, budget)
        if self.block is not None or self.buffer is not None or not self.batch or budget is None:
            return block
        enough, least = self._needed(3), -(-rows // MAX_PLANNED)
        each, widest = budget // (enough + IN_FLIGHT), min(int(BLOCK_BYTES / row_bytes), rows // (TABLE_RATIO * enough))
        return max(1, least, min(block, max(int(MIN_BLOCK_BYTES / row_bytes), each)), min(each, widest))

    @property
    def sketch_column(self) -> str | None:
        """Return the balance column, or ``"content"``."""
        return self.balance

    @property
    def title(self) -> str:
        """Return the order's name and its balance."""
        if self.balance is None:
            return self.name
        return "balanced by content" if self.balance == CONTENT else f"balanced by {self.balance!r}"

    def block_order(self, blocks: Blocks, key: Key) -> IntArray | None:
        """Return the balanced order of blocks if their sketch is known."""
        sketch = None if self.balance is None else blocks.sketch
        return None if sketch is None else _balanced(_Sketch(sketch), key.hash(_kernel.KEY_BALANCE))


class _Sketch:
    """A sketch that compares and hashes by identity."""

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self.values = values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Sketch) and self.values is other.values

    def __hash__(self) -> int:
        return id(self.values)


@lru_cache(maxsize=1)  # the lanes of a pass share one
def _balanced(sketch: _Sketch, hashed: int) -> IntArray:
    """Return the block order that their sketch balances."""
    values, order = sketch.values, np.empty(len(sketch.values), np.int64)
    if values.ndim == 2:
        _kernel.balance_vectors(np.ascontiguousarray(values, np.int16), values.shape[1], hashed, order)
    else:
        _kernel.balance(np.ascontiguousarray(values, np.float64), hashed, order)
    return order


@dataclass(frozen=True, kw_only=True)
class Auto(Riffle):
    """Riffle balanced by the label if a table has one that is cheap to read, or by content: the default order.

    The table decides the balance (`corgipile.loader.default_order`); without a table it is plain Riffle.

    Example:
        >>> Auto(block=10).settled("label")
        Riffle(block=10, buffer=None, ahead=1, balance='label', group=0, whole=None)
    """

    name: ClassVar[str] = "auto"

    def settled(self, label: str | None, batch: int = 0) -> Riffle:
        """Return a Riffle with this order's sizes, for a batch size, balanced by this order's column or ``label``."""
        sizes = {spec.name: getattr(self, spec.name) for spec in fields(self)}
        return Riffle(**{**sizes, "balance": self.balance or label, "batch": self.batch or batch})
