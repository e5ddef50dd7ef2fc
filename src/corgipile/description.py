"""Description of tables: layout, labels, clustering."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corgipile import tables
from corgipile.errors import BadArgument, BadSchema, BudgetTooSmall
from corgipile.quality import h_d_of_columns
from corgipile.quality.labels import LabelTally
from corgipile.quality.sampled_blocks import cuts_of
from corgipile.sizes import Size, format_bytes, to_rows
from corgipile.tables import Table
from corgipile.tables.ascending import sorted_columns
from corgipile.tables.encoded import group_columns
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.spans import flat, floats
from corgipile.tables.table import check_columns, even_cuts, fixed_field, is_list
from corgipile.tables.unit_check import DEFAULT_MEMORY, check_decoding
from corgipile.tables.views import Columns

RUNS, RUN = 300, 4  # sampled runs; rows of a run
SAMPLED_BYTES = 8 << 20  # sampled rows; fewer runs if rows are long
MIN_BLOCKS = 16  # blocks that clustering is measured with


@dataclass(frozen=True)
class About:
    """Facts about a table.

    Attributes:
        rows: Number of rows.
        nbytes: Stored bytes of all rows.
        columns: Names and Arrow types.
        unit: Smallest number of rows that must be read together.
        block_rows: Rows of the described blocks.
        blocks: Number of these blocks.
        h_d: Block-wise variance factor of the label for these blocks; None without labels.
        classes: Rows of each label, most frequent first; empty for numeric labels, or more than 1,024 texts.
        label_range: Smallest, mean and largest label if labels are numbers.
        advice: Cost of reading and how to reduce it, if it is high.
        layout: How rows are stored, if columns were requested.
        sorted_by: Columns that ascend or descend within files according to footers, if columns were requested.
        by_column: h_D of each column and its standard error, most clustered first, if columns were requested.
        by_rows: Rows of the blocks of ``by_column``: the described ones, or smaller for less than 16 blocks.
        sampled: Number of rows sampled for missing values, if columns were requested.
        missing: Sampled rows with null, NaN or infinity, by column that has any.
        unmeasured: Columns left out of the measurements, since the default budget does not hold one of their units.
    """

    rows: int
    nbytes: int
    columns: dict[str, str]
    unit: int
    block_rows: int
    blocks: int
    h_d: float | None = None
    classes: dict[str, int] = field(default_factory=dict)
    label_range: tuple[float, float, float] | None = None
    advice: str | None = None
    layout: str = ""
    sorted_by: dict[str, str] = field(default_factory=dict)
    by_column: dict[str, tuple[float, float]] = field(default_factory=dict)
    by_rows: int = 0
    sampled: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    unmeasured: tuple[str, ...] = ()


def about(source: Any, *, label: str = "label", block: Size = "256KB", columns: bool = False) -> About:
    """Describe a table; this reads its label column only, unless ``columns`` is set.

    Args:
        source: Table, or a source that ``corgipile.open`` takes.
        label: Column of labels; the default need not exist.
        block: Size of the blocks for which h_D is measured.
        columns: Sample all columns, a few rows of a few hundred blocks: h_D, missing values, and the layout.

    Example:
        >>> from corgipile.datasets import clustered
        >>> facts = about(clustered(1000, classes=2), block=100)
        >>> facts.classes, facts.h_d
        ({'0': 500, '1': 500}, 100.0)
    """
    table = tables.open(source)
    rows = len(table)
    wanted = to_rows(block, rows, max(1.0, table.nbytes / max(1, rows)), "block")
    cuts = table.cuts(wanted)
    facts = About(
        rows=rows,
        nbytes=table.nbytes,
        columns={column.name: str(column.type) for column in table.schema},
        unit=int(np.diff(table.cuts(1)).max(initial=0)) if _reads_in_groups(table, rows) else min(1, rows),
        block_rows=int(np.diff(cuts).max(initial=0)),
        blocks=len(cuts) - 1,
        advice=table.advice,
    )
    asked = table.schema.names if columns else [name for name in table.schema.names if name == label]
    small = [name for name in asked if _decodes(table, name)]
    facts = replace(facts, unmeasured=tuple(name for name in asked if name not in small))
    if columns:
        runs = int(np.clip(SAMPLED_BYTES / (RUN * max(1.0, _measured_bytes(table, small))), 2, RUNS))
        sampled, missing = _missing(table, small, runs)
        facts = replace(facts, layout=_layout(table), sorted_by=sorted_columns(table), sampled=sampled, missing=missing)
        by_column, by_rows = _by_column(table, small, wanted, runs)
        facts = replace(facts, by_column=by_column, by_rows=by_rows)
    if label != "label":
        check_columns(table.schema, [label])
        check_decoding(table, [label])
    elif label not in small:
        return facts
    if not rows:
        return facts
    labels = LabelTally.of(table, label, cuts)
    if labels.counts is None:
        return replace(facts, h_d=labels.h_d, label_range=labels.range)
    counts = sorted(labels.counts.items(), key=_class_key)
    names = {f"{value:g}" if isinstance(value, np.floating) else str(value): count for value, count in counts}
    return replace(facts, h_d=labels.h_d, classes=names)


def _class_key(counted: tuple[Any, int]) -> tuple[int, bool, Any]:
    """Return the sort key of a class: most frequent first, then by value."""
    value, count = counted
    return -count, isinstance(value, str), value


def _decodes(table: Table, name: str) -> bool:
    """Return whether the default budget holds a column's units and a sample of its rows."""
    try:
        check_decoding(table, [name], DEFAULT_MEMORY // 2)  # a sample of rows takes the other half
    except (BadSchema, BudgetTooSmall):
        return False
    return 2 * RUN * _measured_bytes(table, [name]) <= DEFAULT_MEMORY


def _measured_bytes(table: Table, names: Sequence[str]) -> float:
    """Return the bytes of a row while it is measured: each number of a list becomes a double, copied twice."""
    total = 0.0
    for name in names:
        kind, copies = table.schema.field(name).type, 1.0
        fixed = fixed_field(kind.value_type if is_list(kind) else kind)
        if fixed is not None and (fixed[1] or is_list(kind)):
            copies += 3 * 8 / fixed[0].itemsize
        total += copies * row_bytes(table, [name])
    return total


def _by_column(table: Table, names: list[str], block: int, runs: int) -> tuple[dict[str, tuple[float, float]], int]:
    """Estimate h_D of all measurable columns, and return the block size; nothing for a table of a few rows."""
    block = max(2, min(block, len(table) // MIN_BLOCKS))
    try:
        estimates = h_d_of_columns(Columns(table, names), block, blocks=runs, rows=RUN)
    except BadArgument:
        return {}, 0
    order = sorted(estimates, key=lambda name: -estimates[name].value)
    return {name: estimates[name][:2] for name in order}, int(np.diff(cuts_of(table, block)).max())


def _layout(table: Table) -> str:
    """Describe how rows are located and which are read together."""
    names = table.schema.names
    layout = table.layout(names) if len(table) else None
    if layout is not None:
        return f"in place: {len(names)} columns of fixed width in {len(layout.paths) or 'no'} files"
    if (units := table.units(names)) is not None:
        return (
            f"encoded in {units.pieces:,} units of up to {units.rows:,} rows, {format_bytes(units.nbytes)} decoded, "
            f"{format_bytes(units.total)} in all"
        )
    alone = len(table) and table.row_sizes(np.array([0, len(table) - 1]), names) is not None
    return "rows of varying length, each located alone" if alone else "rows are located by the table"


def _missing(table: Table, names: list[str], runs: int) -> tuple[int, dict[str, int]]:
    """Count sampled rows with null, NaN or infinity, by column, in runs all over a table."""
    starts = np.unique(np.linspace(0, max(0, len(table) - RUN), runs).astype(np.int64))
    rows = np.unique((starts[:, None] + np.arange(RUN)).clip(0, max(0, len(table) - 1)))
    if not len(table) or not names:
        return 0, {}
    counts = Counter[str]()
    for some in group_columns({name: int(len(rows) * row_bytes(table, [name])) for name in names}):
        step = max(1, int(SAMPLED_BYTES / max(1, table.longest_row(some), row_bytes(table, some))))
        for at in range(0, len(rows), step):
            batch = table.take(rows[at : at + step], some)
            counts.update({name: _bad_cells(cells) for name, cells in zip(some, batch.columns, strict=True)})
    return len(rows), {name: count for name, count in counts.items() if count}


def _bad_cells(cells: pa.Array) -> int:
    """Return how many cells are or contain null, NaN or infinity."""
    bad = flat(cells.is_null())
    if pa.types.is_floating(cells.type):
        bad = ~np.isfinite(floats(cells).astype(np.float64))
    elif is_list(cells.type) and pa.types.is_floating(cells.type.value_type):
        items, lengths = floats(cells.flatten()), flat(pc.fill_null(pc.list_value_length(cells), 0))
        bad = bad.copy()
        bad[np.repeat(np.arange(len(bad)), lengths)[~np.isfinite(items.astype(np.float64))]] = True
    return int(bad.sum())


def _reads_in_groups(table: Table, rows: int) -> bool:
    """Return whether rows of this table must be read several at a time."""
    # An odd size: row groups, often of round sizes, do not add up to it by chance.
    probe = (rows // 1000) | 1
    return rows > 0 and len(table.cuts(probe)) != len(even_cuts(rows, probe))
