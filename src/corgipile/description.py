"""Says what a table is and how its labels lie."""

import contextlib
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile import tables
from corgipile.errors import BadArgument, BudgetTooSmall
from corgipile.quality import h_d_of_columns
from corgipile.quality.labels import LabelTally
from corgipile.quality.sampled_blocks import cuts_of
from corgipile.sizes import Size, format_bytes, to_rows
from corgipile.tables import Table
from corgipile.tables.ascending import sorted_columns
from corgipile.tables.encoded import is_encoded
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.table import check_columns, even_cuts, fixed_field, is_list, row_sizes
from corgipile.tables.unit_check import DEFAULT_MEMORY, check_decoding
from corgipile.tables.views import Columns

RUNS, RUN = 300, 4  # of rows that are looked at for what is missing
SAMPLED = 16 << 20  # bytes of rows that are looked at, of long ones fewer
SOME = 16  # blocks at least by which columns are told to be clustered


@dataclass(frozen=True)
class About:
    """Facts about a table.

    Attributes:
        rows: Rows.
        nbytes: Stored bytes of all rows.
        columns: Names and Arrow types.
        unit: Least rows of a block: those that must be read together.
        block_rows: Rows of the blocks described.
        blocks: Number of such blocks.
        h_d: Block-wise variance factor of the label for these blocks; None without labels.
        classes: Rows of each label, most frequent first; empty for labels that are numbers, or more than 1,024 texts.
        label_range: Least, mean and greatest label if labels are numbers.
        advice: What reading costs and how it could cost less, where that is much.
        layout: How rows lie, where columns were asked for.
        sorted_by: Columns by which parts of files ascend or descend, where footers say it and columns were asked for.
        by_column: h_D of each column and its standard error, most clustered first, where it was asked for.
        by_rows: Rows of the blocks that this is of: those described, or fewer where these are less than 16.
        sampled: Rows that were looked at for what is missing, where it was asked for.
        missing: How many of these have null, NaN or infinity, by column, where any has.
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


def about(source: Any, *, label: str = "label", block: Size = "256KB", columns: bool = False) -> About:
    """Describe a table; only its label column is read, and what ``columns`` asks for.

    Args:
        source: Table, or what ``corgipile.open`` takes.
        label: Column of labels; the default need not exist.
        block: Size of the blocks that h_D is measured for.
        columns: Look at all columns, a few rows of a few hundred blocks: h_D, what is missing; and how rows lie.

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
        columns={one.name: str(one.type) for one in table.schema},
        unit=int(np.diff(table.cuts(1)).max(initial=0)) if _coarse(table, rows) else min(1, rows),
        block_rows=int(np.diff(cuts).max(initial=0)),
        blocks=len(cuts) - 1,
        advice=getattr(table, "advice", None),
    )
    asked = table.schema.names if columns else [name for name in table.schema.names if name == label]
    small = [name for name in asked if _decodes(table, name)]
    if columns:
        runs = int(np.clip(SAMPLED / (RUN * max(1.0, _measured_bytes(table, small))), 2, RUNS))
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
    counts = sorted(labels.counts.items(), key=_first)
    names = {f"{value:g}" if isinstance(value, np.floating) else str(value): count for value, count in counts}
    return replace(facts, h_d=labels.h_d, classes=names)


def _first(counted: tuple[Any, int]) -> tuple[int, bool, Any]:
    """Return what sorts classes: the most frequent first, of those alike the smallest."""
    value, count = counted
    return -count, isinstance(value, str), value


def _decodes(table: Table, name: str) -> bool:
    """Return whether a column is decoded within the default budget, and few of its rows within what is looked at."""
    try:
        check_decoding(table, [name])
    except BudgetTooSmall:
        return False
    return 2 * RUN * _measured_bytes(table, [name]) <= DEFAULT_MEMORY


def _measured_bytes(table: Table, names: Sequence[str]) -> float:
    """Return the bytes of a row of some columns while it is measured: each number of a list as a double."""
    kinds = [table.schema.field(name).type for name in names]
    times = [1 if fixed is None or not fixed[1] else 8 / fixed[0].itemsize for fixed in map(fixed_field, kinds)]
    return sum(factor * row_bytes(table, [name]) for factor, name in zip(times, names, strict=True))


def _by_column(table: Table, names: list[str], block: int, runs: int) -> tuple[dict[str, tuple[float, float]], int]:
    """Estimate h_D of all columns that can be measured, and say of which blocks; none of a table of a few rows."""
    block = max(2, min(block, len(table) // SOME))
    try:
        found = h_d_of_columns(Columns(table, names), block, blocks=runs, rows=RUN)
    except BadArgument:
        return {}, 0
    order = sorted(found, key=lambda name: -found[name].value)
    return {name: found[name][:2] for name in order}, int(np.diff(cuts_of(table, block)).max())


def _layout(table: Table) -> str:
    """Say how rows are found and what is read together."""
    names = table.schema.names
    layout = table.layout(names) if len(table) else None
    if layout is not None:
        return f"in place: {len(names)} columns of fixed width in {len(layout.paths) or 'no'} files"
    if is_encoded(table, names) and (units := table.units(names)) is not None:
        return (
            f"encoded in {units.pieces:,} units of up to {units.rows:,} rows, {format_bytes(units.nbytes)} decoded, "
            f"{format_bytes(units.total)} in all"
        )
    alone = len(table) and row_sizes(table, np.array([0, len(table) - 1]), names) is not None
    return "rows of varying length, each found alone" if alone else "rows are asked for from the table"


def _missing(table: Table, names: list[str], runs: int) -> tuple[int, dict[str, int]]:
    """Count what has null, NaN or infinity, by column, in some runs of neighbours all over a table."""
    starts = np.unique(np.linspace(0, max(0, len(table) - RUN), runs).astype(np.int64))
    rows = np.unique((starts[:, None] + np.arange(RUN)).clip(0, max(0, len(table) - 1)))
    if not len(table) or not names:
        return 0, {}
    batch, found = table.take(rows, names), {}
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        bad = values.is_null().to_numpy(zero_copy_only=False)
        if pa.types.is_floating(values.type):
            bad = bad | ~np.isfinite(values.to_numpy(zero_copy_only=False).astype(np.float64))
        elif is_list(values.type) and pa.types.is_floating(values.type.value_type):
            flat = values.flatten().to_numpy(zero_copy_only=False)
            lengths = [len(one) if one.is_valid else 0 for one in values]
            bad = bad.copy()
            bad[np.repeat(np.arange(len(bad)), lengths)[~np.isfinite(flat.astype(np.float64))]] = True
        if bad.any():
            found[name] = int(bad.sum())
    return len(rows), found


def machine() -> dict[str, Any]:
    """Say which version of what runs where, to be kept beside results.

    Example:
        >>> sorted(machine())
        ['corgipile', 'machine']
    """
    from corgipile import __version__  # noqa: PLC0415 - which imports us

    cpus = [line for line in _text("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    facts = {
        "cpu": cpus[0].partition(":")[2].strip() if cpus else platform.processor(),
        "cores": os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return {"corgipile": __version__, "machine": facts}


def versions() -> dict[str, Any]:
    """Say the same in one dictionary, for people; nothing of it says whose computer it is.

    Example:
        >>> "python" in versions()
        True
    """
    made = machine()
    facts = made.pop("machine")
    return {**made, **facts, "memory": format_bytes(facts["memory"])}


def _text(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(errors="replace")
    return ""


def _coarse(table: Table, rows: int) -> bool:
    """Say whether rows of this table must be read several at a time."""
    # An odd size: row groups, often of round sizes, don't add up to it by chance.
    probe = (rows // 1000) | 1
    return rows > 0 and len(table.cuts(probe)) != len(even_cuts(rows, probe))
