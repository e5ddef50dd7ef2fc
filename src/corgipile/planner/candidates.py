"""Candidate orders of a plan: fitted to the memory, simulated over row numbers, rated by the labels."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from corgipile.errors import BudgetTooSmall
from corgipile.loader.budget import Columns, Fitted, columns_of, fit, sketched
from corgipile.loader.content import Content
from corgipile.loader.default_order import LABEL
from corgipile.orders import Blocks, Key, Order
from corgipile.orders.riffle import CONTENT, Riffle
from corgipile.planner.labels import Labels
from corgipile.planner.mixing import MAX_VISITS, Visits, simulate, worst
from corgipile.quality.spread import deff_of
from corgipile.sizes import Size, parse_bytes, to_rows
from corgipile.tables.io.remote import is_remote
from corgipile.tables.table import Table

__all__ = ["BLOCK_READS", "Candidate", "Setting", "candidates"]

VISIT_BYTES, MIN_VISIT_BYTES = 12, 8 << 20  # bytes per simulated visit; bytes for all visits at least
MIN_VISITS = 1 << 16  # simulated visits per order at least
REQUEST = 1 << 20  # bytes per request or read of a table read in storage order
BLOCK_READS, ROW_READS = 4, 32  # reads in flight of blocks and of rows
SHORT_RUN = 8  # runs with fewer rows count as rows


@dataclass(frozen=True)
class Setting:
    """Settings that all candidates share, ``memory`` of each process.

    Without a label deff is a worst case. ``shared_variance`` is the share of variance between blocks of the most
    clustered other column, None if unmeasured; ``seconds`` is the duration of each candidate's trial.
    """

    table: Table
    memory: Size
    batch_size: int
    label: str | None
    world: int
    seconds: float
    seed: int
    shared_variance: float | None = None


@dataclass(frozen=True)
class Candidate:
    """An order with its costs.

    Attributes:
        order: Order for a loader.
        title: Name of the order.
        block_rows: Rows per block.
        blocks: Blocks in memory at most; other buffered rows are converted to blocks.
        memory: Bytes of rows in memory at most.
        deff: Design effect of a batch's labels; the worst case without labels.
        rest: deff of the most clustered other column, from its blocks' variance; None: unmeasured.
        seconds: Seconds of an epoch of one rank, reading and batching: ``warm`` or ``cold``; None: unknown.
        warm: Seconds if the table is in the page cache, from a trial; None: not tried.
        cold: Seconds if the table comes from the device or bucket, from a trial of an uncached table, else predicted
            from a probe; None: not probed.
        reads: Runs of bytes that an epoch of all ranks reads; requests for a remote table.
        nbytes: Bytes that it reads.
        run_bytes: Bytes per run, for each column stored separately.
        at_once: Reads in flight.
        unpacked: Bytes that are unpacked once, before the first epoch.
        flaw: Why it cannot run; None if it can.
    """

    order: Order
    title: str
    block_rows: int = 0
    blocks: float = 0.0
    memory: int = 0
    deff: float = 1.0
    rest: float | None = None
    seconds: float | None = None
    warm: float | None = None
    cold: float | None = None
    reads: int = 0
    nbytes: int = 0
    run_bytes: tuple[float, ...] = ()
    at_once: int = BLOCK_READS
    unpacked: int = 0
    flaw: str | None = None

    @property
    def most(self) -> float:
        """Return the larger of ``deff`` and ``rest``."""
        return self.deff if self.rest is None else max(self.deff, self.rest)


class _Fit(NamedTuple):
    order: Order
    fitted: Fitted | None
    flaw: str | None = None


def candidates(orders: Sequence[Order], setting: Setting) -> list[Candidate]:
    """Fit orders to the memory and simulate them over row numbers; only labels are read.

    Labels are read once, then once more for each group of orders that the memory can hold. For a remote table, where
    each scan costs requests, one group holds all orders, each simulated over as many visits as fit.

    Example:
        >>> from corgipile.datasets import clustered
        >>> from corgipile.orders import NoShuffle, Riffle
        >>> from corgipile.tables import open
        >>> setting = Setting(open(clustered(9000, classes=2)), "64KB", 100, "label", 1, 0.0, 0)
        >>> [candidate.deff > 10 for candidate in candidates([Riffle(), NoShuffle()], setting)]
        [False, True]
    """
    columns = columns_of(setting.table)
    ways = _distinct(_fit(order, setting, columns) for order in orders)
    feasible = [(at, way.fitted) for at, way in enumerate(ways) if way.fitted is not None]
    results = [Candidate(way.order, getattr(way.order, "title", way.order.name), flaw=way.flaw) for way in ways]
    if not feasible:
        return results
    labels, blocks = _read_labels(setting, [fitted for _, fitted in feasible])
    room = parse_bytes(setting.memory, whole=setting.table.nbytes) - setting.table.shared_bytes(columns.sources)
    visits = int(max(room, MIN_VISIT_BYTES) / VISIT_BYTES)
    group_size, far = max(1, visits // min(MAX_VISITS, len(setting.table))), MAX_VISITS
    if is_remote(setting.table):
        group_size, far = len(feasible), max(MIN_VISITS, min(MAX_VISITS, visits // len(feasible)))
    for first in range(0, len(feasible), group_size):
        group = slice(first, first + group_size)
        simulated = _simulate(feasible[group], blocks[group], labels, setting, far)
        for (at, fitted), seen in zip(feasible[group], simulated, strict=True):
            shared_variance = None if fitted.order.sketch_column == CONTENT else setting.shared_variance
            rest = None if shared_variance is None else 1 + shared_variance * (seen.most - 1)
            costs = _costs(results[at], fitted, seen.visits, setting, columns)
            results[at] = replace(costs, deff=seen.deff, rest=rest)
    return results


class _Simulation(NamedTuple):
    """Simulation of an order: its visits, deff of their labels, and deff in the worst case."""

    visits: Visits
    deff: float
    most: float


def _simulate(
    feasible: Sequence[tuple[int, Fitted]], blocks: Sequence[Blocks], labels: Labels | None, setting: Setting, far: int
) -> Iterator[_Simulation]:
    """Simulate a group of orders, so that labels are read once for all of them."""
    key, batch = Key(setting.seed, 0, 0, setting.world), setting.batch_size
    visits = [simulate(fitted.order, cut, key, batch, far) for (_, fitted), cut in zip(feasible, blocks, strict=True)]
    keys = labels.of([visit.rows for visit in visits]) if labels is not None else [None] * len(visits)
    for seen, cut, known in zip(visits, blocks, keys, strict=True):
        most = worst(seen.rows, cut, batch)
        deff = most if known is None else deff_of(known, None, min(batch, len(seen.rows)))
        yield _Simulation(seen, deff, most)


def _fit(order: Order, setting: Setting, columns: Columns) -> _Fit:
    try:
        fitted = fit(setting.table, order, setting.memory, columns)
        widest = fitted.blocks.widest
        if isinstance(order, Riffle) and _is_coarser(order.block, widest, len(setting.table), columns):
            coarse = replace(order, block=widest)  # report the block size that is used: whole units
            again = fit(setting.table, coarse, setting.memory, columns)
            return _Fit(coarse, again) if again.blocks.widest == widest else _Fit(order, fitted)
    except BudgetTooSmall as error:
        return _Fit(order, None, str(error))
    return _Fit(order, fitted)


def _is_coarser(block: Size | None, widest: int, rows: int, columns: Columns) -> bool:
    """Return whether blocks are larger than requested."""
    return block is not None and widest > to_rows(block, rows, columns.row_bytes, "block")


def _distinct(found: Iterable[_Fit]) -> list[_Fit]:
    """Leave out duplicate candidates."""
    seen: dict[object, _Fit] = {}
    for way in found:
        sizes = way.flaw if way.fitted is None else (way.fitted.order, way.fitted.blocks.widest)
        seen.setdefault((getattr(way.order, "title", way.order.name), sizes), way)
    return list(seen.values())


def _read_labels(setting: Setting, fitted: Sequence[Fitted]) -> tuple[Labels | None, list[Blocks]]:
    """Read the labels once; return them, and the blocks, with sketches where an order balances them."""
    blocks = [fitting.blocks for fitting in fitted]
    for at, (order, cut, _, sources, way) in enumerate(fitted):
        if order.sketch_column == CONTENT:
            look = Content(tuple(sources), setting.label or LABEL, unpacked=way.spilled)
            blocks[at] = sketched(setting.table, order, cut, look)
    if setting.label is None:
        return None, blocks
    balanced = [at for at, way in enumerate(fitted) if way.order.sketch_column not in (None, CONTENT)]
    labels, sketches = Labels.read(setting.table, setting.label, [blocks[at] for at in balanced])
    for at, sketch in zip(balanced, sketches, strict=True):
        blocks[at] = replace(blocks[at], sketch=sketch)
    return labels, blocks


def _costs(candidate: Candidate, fitted: Fitted, seen: Visits, setting: Setting, columns: Columns) -> Candidate:
    """Return a candidate with its memory and reads."""
    table, way, order, blocks = setting.table, fitted.way, fitted.order, fitted.blocks
    unpacked = int(way.units.total) if way.spilled and way.units is not None else 0
    layout = table.layout(columns.sources)
    widths = [columns.row_bytes] if layout is None else [float(column.width) for column in layout.columns.values()]
    reads, nbytes = seen.runs * len(table) * len(widths), int(sum(widths) * len(table))
    sizes = tuple(width / max(seen.runs, 1e-12) for width in widths)
    if (unpacked and is_remote(table)) or (way.units is not None and not unpacked):  # read in storage order
        reads, nbytes, sizes = -(-table.nbytes // REQUEST), table.nbytes, (float(REQUEST),)
    depth = ROW_READS if seen.runs * SHORT_RUN > 1 else BLOCK_READS
    if way.ahead:
        depth = max(1, int(way.ahead * reads / max(1, nbytes)))
    return replace(
        candidate, block_rows=blocks.widest, blocks=order.slots(blocks) / max(1, blocks.widest),
        memory=int(order.resident(blocks) * columns.row_bytes), reads=max(1, int(reads)), nbytes=nbytes,
        run_bytes=sizes, at_once=depth, unpacked=unpacked,
    )  # fmt: skip
