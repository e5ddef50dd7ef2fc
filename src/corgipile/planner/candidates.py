"""Ways to read a table: fitted to the memory, followed over row numbers, told by the labels."""

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
from corgipile.planner.mixing import MOST, Visits, followed, worst
from corgipile.quality.spread import deff_of
from corgipile.sizes import Size, parse_bytes, to_rows
from corgipile.tables.io.remote import is_remote
from corgipile.tables.table import Table, shared_bytes

__all__ = ["BLOCK_READS", "Candidate", "Setting", "candidates"]

FOLLOWED, BESIDE = 12, 8 << 20  # bytes that what is found by following an order takes a visit; of all at least
LEAST = 1 << 16  # visits that tell an order
REQUEST = 1 << 20  # bytes of a request to a store, or of a read, where a table is taken as it lies
BLOCK_READS, ROW_READS, SHORT = 4, 32, 8  # reads that a loader has under way; of runs of fewer rows than the last


@dataclass(frozen=True)
class Setting:
    """What is the same for all candidates.

    Attributes:
        table: The table.
        memory: The budget of a process.
        batch_size: Rows of a batch.
        label: The column of labels; None: deff is what it is at worst.
        alike: Share of its variance by which blocks of the most clustered other column differ; None: not looked at.
        world: Ranks that share the table.
        seconds: How long each candidate is tried.
        seed: Of the epoch.
    """

    table: Table
    memory: Size
    batch_size: int
    label: str | None
    world: int
    seconds: float
    seed: int
    alike: float | None = None


@dataclass(frozen=True)
class Candidate:
    """A way to read a table.

    Attributes:
        order: What is given to a loader as its order.
        title: Its name.
        block_rows: Rows of a block.
        blocks: Blocks in memory at most, rows of any others there counted as such.
        memory: Bytes of rows in memory at most.
        deff: Design effect of a batch's labels, as they lie; at worst where none are known.
        rest: The same of the most clustered other column, by what its blocks have in common; None: not looked at.
        seconds: Of an epoch of one rank, as long as reading and batches take: ``warm`` or ``cold``, whichever applies;
            None: not known.
        warm: The same where the table is in the page cache, as tried; None: not tried.
        cold: The same where it comes from the device or the bucket: as tried, if the table was not cached, else as
            predicted; None: that was not probed.
        reads: Runs of bytes that an epoch of all ranks reads; of a table in a store, requests.
        nbytes: Bytes that it reads.
        run_bytes: Bytes of such a run, of each column that lies apart.
        at_once: Reads under way at a time.
        unpacked: Bytes that are unpacked once, before the first epoch.
        flaw: Why it cannot be, None if it can.
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
        """Return the larger deff of both."""
        return self.deff if self.rest is None else max(self.deff, self.rest)


class _Way(NamedTuple):
    order: Order
    fitted: Fitted | None
    flaw: str | None = None


def candidates(orders: Sequence[Order], setting: Setting) -> list[Candidate]:
    """Fit orders to the memory and follow them over row numbers; of the table only labels are read.

    They are read once, and once more for as many orders as are followed together, which the memory decides. Of a table
    in a store, where each reading costs requests, all are, each over as many visits as there is room for.

    Example:
        >>> from corgipile.datasets import clustered
        >>> from corgipile.orders import NoShuffle, Riffle
        >>> from corgipile.tables import open
        >>> setting = Setting(open(clustered(9000, classes=2)), "64KB", 100, "label", 1, 0.0, 0)
        >>> [one.deff > 10 for one in candidates([Riffle(), NoShuffle()], setting)]
        [False, True]
    """
    columns = columns_of(setting.table)
    ways = _distinct(_fitted(order, setting, columns) for order in orders)
    right = [(at, way.fitted) for at, way in enumerate(ways) if way.fitted is not None]
    made = [Candidate(way.order, getattr(way.order, "title", way.order.name), flaw=way.flaw) for way in ways]
    if not right:
        return made
    labels, blocks = _described(setting, [fitted for _, fitted in right])
    room = parse_bytes(setting.memory, whole=setting.table.nbytes) - shared_bytes(setting.table, columns.sources)
    visits = int(max(room, BESIDE) / FOLLOWED)
    together, far = max(1, visits // min(MOST, len(setting.table))), MOST
    if is_remote(setting.table):
        together, far = len(right), max(LEAST, min(MOST, visits // len(right)))
    for first in range(0, len(right), together):
        some = slice(first, first + together)
        found = _seen(right[some], blocks[some], labels, setting, far)
        for (at, fitted), seen in zip(right[some], found, strict=True):
            alike = None if fitted.order.sketch_column == CONTENT else setting.alike  # all columns are balanced then
            rest = None if alike is None else 1 + alike * (seen.most - 1)
            costs = _costs(made[at], fitted, seen.visits, setting, columns)
            made[at] = replace(costs, deff=seen.deff, rest=rest)
    return made


class _Seen(NamedTuple):
    """What following an order tells: its visits, deff of their labels, and deff at most."""

    visits: Visits
    deff: float
    most: float


def _seen(
    right: Sequence[tuple[int, Fitted]], blocks: Sequence[Blocks], labels: Labels | None, setting: Setting, far: int
) -> Iterator[_Seen]:
    """Follow some orders together, so that labels are read once for all of them."""
    key, batch = Key(setting.seed, 0, 0, setting.world), setting.batch_size
    visits = [followed(fitted.order, one, key, batch, far) for (_, fitted), one in zip(right, blocks, strict=True)]
    keys = labels.of([one.rows for one in visits]) if labels is not None else [None] * len(visits)
    for seen, one, known in zip(visits, blocks, keys, strict=True):
        most = worst(seen.rows, one, batch)
        deff = most if known is None else deff_of(known, None, min(batch, len(seen.rows)))
        yield _Seen(seen, deff, most)


def _fitted(order: Order, setting: Setting, columns: Columns) -> _Way:
    try:
        found = fit(setting.table, order, setting.memory, columns)
        widest = found.blocks.widest
        if isinstance(order, Riffle) and _coarser(order.block, widest, len(setting.table), columns):
            coarse = replace(order, block=widest)  # what is told is to be asked for: blocks of whole units
            again = fit(setting.table, coarse, setting.memory, columns)
            return _Way(coarse, again) if again.blocks.widest == widest else _Way(order, found)
    except BudgetTooSmall as error:
        return _Way(order, None, str(error))
    return _Way(order, found)


def _coarser(block: Size | None, widest: int, rows: int, columns: Columns) -> bool:
    """Say whether blocks are larger than was asked for."""
    return block is not None and widest > to_rows(block, rows, columns.row_bytes, "block")


def _distinct(found: Iterable[_Way]) -> list[_Way]:
    """Leave out what turned out to be another candidate."""
    seen: dict[object, _Way] = {}
    for way in found:
        sizes = way.flaw if way.fitted is None else (way.fitted.order, way.fitted.blocks.widest)
        seen.setdefault((getattr(way.order, "title", way.order.name), sizes), way)
    return list(seen.values())


def _described(setting: Setting, fitted: Sequence[Fitted]) -> tuple[Labels | None, list[Blocks]]:
    """Read the labels once; return them, and blocks with their sketch where an order balances them."""
    blocks = [one.blocks for one in fitted]
    for at, (order, cut, _, sources, way) in enumerate(fitted):
        if order.sketch_column == CONTENT:
            look = Content(tuple(sources), setting.label or LABEL, unpacked=way.spilled)
            blocks[at] = sketched(setting.table, order, cut, look)
    if setting.label is None:
        return None, blocks
    balanced = [at for at, one in enumerate(fitted) if one.order.sketch_column not in (None, CONTENT)]
    labels, sketches = Labels.read(setting.table, setting.label, [blocks[at] for at in balanced])
    for at, sketch in zip(balanced, sketches, strict=True):
        blocks[at] = replace(blocks[at], sketch=sketch)
    return labels, blocks


def _costs(one: Candidate, fitted: Fitted, seen: Visits, setting: Setting, columns: Columns) -> Candidate:
    """Say what it holds and reads."""
    table, way, order, blocks = setting.table, fitted.way, fitted.order, fitted.blocks
    unpacked = int(way.units.total) if way.spilled and way.units is not None else 0
    layout = table.layout(columns.sources)
    widths = [columns.row_bytes] if layout is None else [float(one.width) for one in layout.columns.values()]
    reads, nbytes = seen.runs * len(table) * len(widths), int(sum(widths) * len(table))
    sizes = tuple(width / max(seen.runs, 1e-12) for width in widths)
    if (unpacked and is_remote(table)) or (way.units is not None and not unpacked):  # taken as it lies
        reads, nbytes, sizes = -(-table.nbytes // REQUEST), table.nbytes, (float(REQUEST),)
    depth = ROW_READS if seen.runs * SHORT > 1 else BLOCK_READS
    if way.ahead:
        depth = max(1, int(way.ahead * reads / max(1, nbytes)))
    return replace(
        one, block_rows=blocks.widest, blocks=order.slots(blocks) / max(1, blocks.widest),
        memory=int(order.resident(blocks) * columns.row_bytes), reads=max(1, int(reads)), nbytes=nbytes,
        run_bytes=sizes, at_once=depth, unpacked=unpacked,
    )  # fmt: skip
