"""Runs an order over a table: reads the rows of each step into slots ahead of their visit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument
from corgipile.loader.fill import Filler, filler
from corgipile.loader.fitting import fit
from corgipile.loader.run import Run, begin
from corgipile.loader.store import SlotArray, Store, fields_of
from corgipile.orders import Blocks, Key, Order, Riffle, named
from corgipile.sizes import Size
from corgipile.tables import open as open_table
from corgipile.tables.base import IntArray, Table, check_columns, even_cuts
from corgipile.tables.sketch import Sketch, row_bytes, sketch

__all__ = ["Feeder"]

MOST_PREFETCH = 64


class Feeder:
    """Joins one table and one order; the buffer is allocated once and serves every epoch.

    Args:
        table: What to read: a table, or what `corgipile.open` takes.
        order: An order or its name.
        memory: Bytes for rows in memory, read-ahead included; None: what the order's buffer needs, or 64 MB.
        columns: Columns to read; None for all.
        casts: Number types to convert columns to, float32 or float64, by name.
        pack: Columns made of several scalar columns side by side, by name.
        widths: List columns that are dense, with their row length, by name.
        seed: Seed of all epochs.
        prefetch: Steps read ahead; 0 reads in the consumer's thread.
        rank: This process of ``world``.
        world: Number of processes that share the table.
        disjoint: Let fewer than ``world`` rows go unvisited, where they do not divide, rather than visit some twice.

    Raises:
        BudgetTooSmall: The memory does not hold the smallest buffer that works; says what would.

    Example:
        >>> import pyarrow as pa
        >>> from corgipile.tables import MemoryTable
        >>> table = MemoryTable(pa.table({"x": pa.array(range(10), pa.int32())}))
        >>> with Feeder(table, order="riffle", memory=None) as feeder:
        ...     seen = [feeder.store.dense("x")[visit].tolist() for visit in feeder.epoch(0)]
        >>> sorted(sum(seen, []))
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    def __init__(
        self,
        table: Any,
        order: Order | str = "riffle",
        memory: Size | None = None,
        columns: Sequence[str] | None = None,
        *,
        casts: Mapping[str, npt.DTypeLike] | None = None,
        pack: Mapping[str, Sequence[str]] | None = None,
        widths: Mapping[str, int] | None = None,
        seed: int = 0,
        prefetch: int = 1,
        rank: int = 0,
        world: int = 1,
        disjoint: bool = False,
    ) -> None:
        _check(columns, seed, prefetch, rank, world)
        table = open_table(table)
        pack = pack or {}
        names = list(columns) if columns is not None else list(table.schema.names)
        sources = [source for name in names for source in pack.get(name, (name,))]
        check_columns(table.schema, sources)
        fields, held = fields_of(table.schema, names, casts or {}, pack, widths or {})
        self.table, self.seed, self.rank, self.world = table, int(seed), rank, world
        self._closed, self._disjoint = False, disjoint
        fixed = {source for field in fields for source in field.sources}
        loose = [source for source in sources if source not in fixed]
        self.row_bytes = sum(f.row_bytes for f in fields) + (row_bytes(table, loose) if loose else 0.0) or 1.0
        wanted = replace(named(order), ahead=int(prefetch))  # type: ignore[type-var]
        self.order, blocks = fit(table, wanted, memory, self.row_bytes, whole=bool(held))
        self.blocks = _sketched(table, self.order, blocks)
        self.slots = max(1, self.order.slots(self.blocks))
        if self.slots >= 1 << 31:
            raise BadArgument(f"a buffer has at most 2^31 - 1 rows, got {self.slots}: give a smaller memory or buffer")
        self.store = Store(self.slots, fields, held)
        self._run: Run | None = None
        self._filler: Filler = filler(table, self.store, sources, sequential=self.order.name == "no_shuffle")

    @property
    def buffer_bytes(self) -> int:
        """Return the bytes of rows in memory at most, read-ahead included."""
        return int(self.order.resident(self.blocks) * self.row_bytes)

    @property
    def bytes_read(self) -> int:
        """Return the bytes read so far."""
        return self._filler.bytes_read

    def key(self, epoch: int) -> Key:
        """Return the key of an epoch."""
        return Key(self.seed, epoch, self.rank, self.world, self._disjoint)

    def visits(self, epoch: int) -> int:
        """Return the rows that an epoch visits."""
        return self.order.visits(self.blocks, self.key(epoch))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[SlotArray]:
        """Yield the slots each step visits; a yielded step's rows may be gone once the next is asked for.

        There is one buffer, so a new epoch ends one that is still under way.
        """
        if self._closed:
            raise BadArgument("this loader was closed; make a new one")
        if self._run is not None:
            self._run.stop()
        self._run = begin(self.order, self.blocks, self.key(epoch), start, self.store, self._filler, self.row_bytes)
        return self._run.visits()

    def close(self) -> None:
        """Close files and reading threads."""
        self._closed = True
        if self._run is not None:
            self._run.stop()
        self._filler.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check(columns: Sequence[str] | None, seed: int, prefetch: int, rank: int, world: int) -> None:
    if isinstance(columns, str) or (columns is not None and not len(columns)):
        raise BadArgument(f"columns must be a list of names, at least one, got {columns!r}")
    for name, value in (("seed", seed), ("prefetch", prefetch), ("rank", rank), ("world", world)):
        if not isinstance(value, (int, np.integer)):
            raise BadArgument(f"{name} must be a whole number, got {value!r}")
    if not 0 <= prefetch <= MOST_PREFETCH:
        raise BadArgument(f"prefetch must be 0 to {MOST_PREFETCH} steps, got {prefetch}")
    if not 0 <= rank < world:
        raise BadArgument(f"rank must be 0 to world - 1, got rank {rank} of world {world}")


def _sketched(table: Table, order: Order, blocks: Blocks) -> Blocks:
    """Add the sketch of each block that balancing needs."""
    if not isinstance(order, Riffle) or order.balance is None:
        return blocks
    return replace(blocks, sketch=seriate(sketch(table, _cuts(blocks), order.balance)))


def _cuts(blocks: Blocks) -> IntArray:
    return even_cuts(blocks.rows, blocks.even) if blocks.cuts is None else blocks.cuts


def seriate(blocks: Sketch) -> npt.NDArray[np.float64]:
    """Return one number a block by which alike blocks become neighbours (RIFFLE, balanced blocks, step 1).

    Means and shares of one of two classes are such numbers; of more classes, the dominant one and its share.

    Example:
        >>> seriate(Sketch(np.array([[0.9, 0.1, 0.0], [0.2, 0.2, 0.6]]), np.arange(3.0))).tolist()
        [0.45, 2.3]
    """
    if not blocks.values.size:
        return np.zeros(len(blocks.values))
    if blocks.classes is None or blocks.values.shape[1] <= 2:
        return np.ascontiguousarray(blocks.values[:, -1])
    dominant = blocks.values.argmax(axis=1)
    return np.asarray(dominant + blocks.values.max(axis=1) / 2, np.float64)
