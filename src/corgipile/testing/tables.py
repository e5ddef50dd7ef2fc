"""The laws of every table."""

import ctypes
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.errors import BadArgument, CorgiPileError, MissingColumn
from corgipile.tables.location import IN_MEMORY
from corgipile.tables.table import Layout, Table, VarlenLayout, adopt
from corgipile.testing.laws import LawBroken, holds, refuses

__all__ = ["check_cuts", "check_damaged", "check_layout", "check_manners", "check_rows", "check_table"]

MAX_READ_ROWS = 100_000  # most rows that a damaged file may claim to have and still be read completely


def check_table(table: Table, expected: pa.Table, seed: int = 0) -> None:
    """Check every law of a table.

    Args:
        table: The table.
        expected: Its rows.
        seed: Seed of the requested rows.

    Raises:
        LawBroken: The table violates a law.

    Example:
        >>> import corgipile as cp
        >>> rows = pa.table({"x": pa.array([1, 2, 3])})
        >>> check_table(cp.open(rows), rows)
    """
    table, rng = adopt(table), np.random.default_rng(seed)
    for _ in range(5):
        check_rows(table, expected, rng)
    fixed = [name for name in expected.schema.names if table.layout([name]) is not None]
    if fixed:
        check_layout(table, fixed)
    for name in expected.schema.names:
        _check_location(table, name)
    if len(table):
        check_manners(table)


def check_rows(table: Table, expected: pa.Table, rng: np.random.Generator) -> None:
    """Check that a table equals the rows that it was written from, read in every way.

    Raises:
        LawBroken: It does not.
    """
    rows, names = expected.num_rows, expected.schema.names
    holds(len(table) == rows, otherwise=f"{table!r} must have {rows} rows, got {len(table)}")
    schema = table.schema
    same = schema.names == names and schema.types == expected.schema.types
    holds(same, otherwise=f"{table!r} must have the schema {expected.schema}, got {schema}")
    _same(table.read(0, rows), expected, f"{table!r}, all rows")
    start, stop = sorted(rng.integers(0, rows + 1, 2).tolist())
    some = rng.permutation(names)[: rng.integers(1, len(names) + 1)].tolist()
    batch = table.read(start, stop, some)
    holds(batch.schema.names == some, otherwise=f"{table!r} must return columns {some}, got {batch.schema.names}")
    _same(batch, expected.select(some).slice(start, stop - start), f"{table!r}, rows {start} to {stop}, {some}")
    wanted = rng.integers(0, rows, rng.integers(0, 20)) if rows else np.zeros(0, np.int64)
    _same(table.take(wanted, some), expected.select(some).take(pa.array(wanted)), f"{table!r}, rows {wanted.tolist()}")
    check_cuts(table, int(rng.integers(1, rows + 2)))


def _same(batch: pa.RecordBatch, expected: pa.Table, where: str) -> None:
    batch.validate(full=True)
    holds(batch.to_pylist() == expected.to_pylist(), otherwise=f"rows differ from the written ones: {where}")


def check_cuts(table: Table, rows: int) -> None:
    """Check that a table's cuts ascend from its first row to its end.

    Raises:
        LawBroken: They do not.
    """
    cuts = table.cuts(rows)
    valid = cuts.dtype == np.int64 and cuts[0] == 0 and cuts[-1] == len(table) and (np.diff(cuts) > 0).all()
    holds(valid, otherwise=f"{table!r}.cuts({rows}) must ascend from 0 to {len(table)}, got {cuts!r}")
    refuses(lambda: table.cuts(0), BadArgument, "at least 1, got 0")


def check_layout(table: Table, columns: Sequence[str]) -> None:
    """Check a layout by reading the bytes that it describes.

    Raises:
        LawBroken: They are not the rows.
    """
    layout = table.layout(columns)
    if layout is None:
        raise LawBroken(f"{table!r} must have a layout of {list(columns)}, got None")
    for name in columns:
        place = layout.columns[name]
        covers = place.starts[0] == 0 and place.starts[-1] == len(table) and (np.diff(place.starts) > 0).all()
        holds(covers, otherwise=f"{table!r}: pieces of {name!r} must cover all rows, got starts {place.starts!r}")
        same = np.array_equal(_bytes_at(layout, name), _numbers(table, name))
        holds(same, otherwise=f"{table!r}: the layout of {name!r} has other bytes than its rows")


def _numbers(table: Table, name: str) -> Any:
    """Return the numbers of a fixed-width column, read through the table."""
    array = table.read(0, len(table), [name]).column(0)
    while pa.types.is_fixed_size_list(array.type):
        array = array.flatten()
    return array.to_numpy()


def _bytes_at(layout: Layout, name: str) -> Any:
    """Return the numbers at the locations of a layout."""
    place = layout.columns[name]
    items = int(np.prod(place.shape))
    parts = [np.empty(0, place.dtype)]
    for file, offset, count in zip(place.files, place.offsets, np.diff(place.starts) * items, strict=True):
        if file == IN_MEMORY:
            parts.append(np.frombuffer(ctypes.string_at(int(offset), int(count) * place.dtype.itemsize), place.dtype))
        else:
            parts.append(np.fromfile(layout.paths[file], place.dtype, count=int(count), offset=int(offset)))
    return np.concatenate(parts)


def _check_location(table: Table, name: str) -> None:
    """Check the location of a column that a table passes to the kernel, if any."""
    placed = table.location([name])
    if placed is None or isinstance(placed.layout.columns[name], VarlenLayout):
        return
    numbers = _bytes_at(placed.layout, name)
    if placed.bits is not None:
        numbers = numbers.reshape(int(placed.layout.columns[name].starts[-1]), -1)[placed.bits.within(0, len(table))]
    same = np.array_equal(numbers.reshape(-1), _numbers(table, name))
    holds(same, otherwise=f"{table!r}: the kernel's location of {name!r} has other rows")


def check_manners(table: Table) -> None:
    """Check the laws of every non-empty table: pickling, threads, and errors for invalid requests.

    Raises:
        LawBroken: A law is violated.
    """
    again = pickle.loads(pickle.dumps(table))  # noqa: S301 - pickled above
    same = again.fingerprint == table.fingerprint and again.nbytes == table.nbytes > 0
    holds(same, otherwise=f"{table!r} must keep its fingerprint and size when pickled")
    rows = len(table)
    whole = table.read(0, rows).to_pylist()
    holds(again.read(0, rows).to_pylist() == whole, otherwise=f"{table!r} must keep its rows when pickled")

    def reads_correctly(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        start, stop = sorted(rng.integers(0, rows + 1, 2).tolist())
        some = rng.integers(0, rows, 5)
        taken = table.take(some).to_pylist() == [whole[row] for row in some]
        return bool(taken and table.read(start, stop).to_pylist() == whole[start:stop])

    with ThreadPoolExecutor(8) as pool:
        holds(
            all(pool.map(reads_correctly, range(40))),
            otherwise=f"{table!r} must return the same rows to several threads",
        )
    _check_errors(table)


def _check_errors(table: Table) -> None:
    rows = len(table)
    refuses(lambda: table.read(0, 1, ["no such column"]), MissingColumn, "no column 'no such column'; the table has '")
    refuses(lambda: table.layout(["no such column"]), MissingColumn, "no such column")
    refuses(lambda: table.read(0, rows + 1), BadArgument, f"the table has rows 0 to {rows}")
    refuses(lambda: table.take(np.array([0, rows])), BadArgument, f"row {rows} asked for")
    refuses(lambda: table.take(np.array([-1])), BadArgument, "row -1 asked for")
    refuses(lambda: table.take(np.array([0.5])), BadArgument, "list of integers")


def check_damaged(path: Any, open: Callable[[], Table]) -> None:  # noqa: A002 - named like corgipile.open
    """Check that a damaged file is either read, or rejected by an error of corgipile that names it.

    Args:
        path: The file.
        open: Opens it.

    Raises:
        LawBroken: The error does not name the file.
    """
    try:
        _read_all_ways(open())
    except CorgiPileError as error:
        holds(str(path) in str(error), otherwise=f"the error must name {path}, got: {error}")


def _read_all_ways(table: Table) -> None:
    rows = len(table)
    holds(isinstance(table.fingerprint, str), otherwise=f"{table!r} must have a fingerprint")
    table.cuts(7)
    table.layout([name for name in ("features", "label") if name in table.schema.names])
    if rows > MAX_READ_ROWS:
        table.read(rows // 2, rows // 2 + 5)
        return
    batch = table.read(0, rows)
    batch.validate(full=True)
    batch.to_pylist()
    if rows:
        table.take(np.array([rows - 1, 0, rows // 2])).to_pylist()
        table.read(rows // 3, rows // 2)
