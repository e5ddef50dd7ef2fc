"""Estimates of a table's h_D, with standard error, from a few rows of a few hundred blocks."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corgipile import random
from corgipile.errors import BadArgument, BadSchema
from corgipile.quality.keys import Floats, Keys
from corgipile.sizes import whole
from corgipile.tables import open as open_table
from corgipile.tables.encoded import group_columns
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.spans import flat, floats
from corgipile.tables.table import IntArray, Table, check_columns, even_cuts, is_bytes, is_list

__all__ = ["HD", "cuts_of", "h_d_of_columns", "h_d_of_gradients", "h_d_of_samples"]

MAX_EQUAL_BLOCKS = 16  # blocks up to which all get about equal lengths
MAX_FEW_BLOCKS = 64  # blocks up to which a table is unpacked and cut anew
MIN_ROWS_PER_CLASS = 4  # sampled rows per class at least
MAX_GRADIENT_BLOCKS = 32  # blocks whose gradients are in memory at a time


class HD(NamedTuple):
    """Estimate of a table's block-wise variance factor.

    Attributes:
        value: The estimate: 1 for random blocks, the rows of a block for constant ones; a sample's may be slightly
            below 0.
        error: Standard error of the estimate.
        blocks: Number of blocks sampled.
        rows: Rows sampled in each block.

    Example:
        >>> print(HD(6.56, 0.31, 200, 2))
        6.56 ± 0.31 (2 rows of each of 200 blocks)
    """

    value: float
    error: float
    blocks: int
    rows: int

    def __str__(self) -> str:
        """Return the estimate as one line."""
        return f"{self.value:.2f} ± {self.error:.2f} ({self.rows} rows of each of {self.blocks} blocks)"


def h_d_of_samples(samples: npt.ArrayLike, block_rows: float, blocks: int) -> HD:
    """Estimate h_D from some rows of some blocks, sampled uniformly.

    The variance of block means is that of the sampled means minus the contribution of rows within blocks; the variance
    of rows is the sum of both (one-way analysis of variance, finite populations). Both are unbiased. The standard error
    is the jackknife's over blocks, infinite for two sampled blocks unless they are the whole table.

    Args:
        samples: Measured values, numbers of shape [blocks sampled, rows sampled] or [.., .., numbers].
        block_rows: Rows per block.
        blocks: Blocks in the table.

    Raises:
        BadArgument: There are fewer than two blocks or rows, or more than in the table.

    Example:
        >>> h_d_of_samples([[0, 0], [1, 1]], block_rows=2, blocks=2).value
        2.0
    """
    values = np.asarray(samples, np.float64)
    if values.ndim not in (2, 3) or min(values.shape) < 1:
        raise BadArgument(f"samples must have shape [blocks, rows] or [blocks, rows, numbers], got {values.shape}")
    values = values.reshape(*values.shape[:2], -1)
    means = values.mean(axis=1)
    within = ((values - means[:, None]) ** 2).sum(axis=(1, 2))
    return _estimate(means, within, values.shape[1], block_rows, blocks)


def cuts_of(table: Table, block: int) -> IntArray:
    """Return block boundaries for measuring a table, from 0 to its rows; few blocks have about equal lengths.

    Example:
        >>> cuts_of(open_table({"x": range(7)}), 4).tolist()
        [0, 3, 7]
    """
    cuts = table.cuts(block)
    if len(cuts) > MAX_FEW_BLOCKS:
        return cuts
    count = -(-len(table) // block)
    if count > MAX_EQUAL_BLOCKS:
        return even_cuts(len(table), block)
    return np.linspace(0, len(table), count + 1).astype(np.int64)


def h_d_of_columns(
    table: Any, block: int, columns: Sequence[str] | None = None, *, blocks: int = 300, rows: int = 4, seed: int = 0
) -> dict[str, HD]:
    """Estimate h_D by columns, such as the label; only sampled rows are read.

    Classes are one-hot, numbers count as they are (see ``Keys``), and a list's numbers in units of their spreads.
    Missing values count as the mean.

    Args:
        table: A source for `corgipile.open`.
        block: Rows per block; a table that is encoded in many large units has larger blocks.
        columns: The columns; None: all that can be measured.
        blocks: Number of blocks to sample; all if there are fewer.
        rows: Rows to sample per block, more if there are fewer blocks, to keep the sample's size; all if it has fewer.
        seed: Seed of the sample.

    Raises:
        BadArgument: There are fewer than two blocks of two rows.
        BadSchema: A named column has neither numbers nor classes.

    Example:
        >>> table = {"x": np.arange(4000) // 1000, "y": np.arange(4000) % 7}
        >>> {name: round(found.value) for name, found in h_d_of_columns(table, 100).items()}
        {'x': 100, 'y': 0}
    """
    opened = open_table(table)
    names = check_columns(opened.schema, columns)
    sample = _Sample.of(opened, block, blocks, rows, seed)
    estimates = {}
    for some in group_columns({name: int(sample.rows.size * row_bytes(opened, [name])) for name in names}):
        batch = opened.take(sample.rows.ravel(), some)
        for name in some:
            try:
                values = _measure(batch.column(name), sampled=sample.rows.size < len(opened))
            except (BadArgument, ValueError, TypeError) as error:
                if columns is not None:
                    raise BadSchema(f"column {name!r} must have numbers or classes: {error}") from None
                continue
            estimates[name] = h_d_of_samples(values.reshape(*sample.rows.shape, -1), sample.block_rows, sample.blocks)
        del batch
    return estimates


def h_d_of_gradients(
    table: Any,
    block: int,
    gradients: Callable[[Any], npt.ArrayLike],
    *,
    blocks: int = 300,
    rows: int = 4,
    seed: int = 0,
    groups: int = 1,
) -> HD:
    """Estimate h_D from per-row gradients of a model, such as `corgipile.linear.gradients`.

    Any projection of gradients will do, since only their inner products matter. h_D bounds an epoch's error if it holds
    for all weights: take the largest of a few estimates, at the beginning, during and at the end of a training.

    Args:
        table: A source for `corgipile.open`.
        block: Rows per block; a table that is encoded in many large units has larger blocks.
        gradients: Returns (rows, numbers) for a ``pyarrow.Table``.
        blocks: Number of blocks to sample; all if there are fewer.
        rows: Rows to sample per block, more if there are fewer blocks, to keep the sample's size; all if it has fewer.
        seed: Seed of the sample.
        groups: Number of equal parts of the numbers that are independent projections. The spread of their estimates
            adds to the standard error.

    Raises:
        BadArgument: There are fewer than two blocks of two rows, or the function returns another shape.

    Example:
        >>> table = {"x": np.repeat([1.0, 2.0, 3.0], 20), "label": np.repeat([0, 1, 1], 20)}
        >>> h_d_of_gradients(table, 10, lambda rows: rows["x"].to_numpy()[:, None]).value
        10.0
    """
    opened, groups = open_table(table), whole(groups, "groups", 1)
    sample = _Sample.of(opened, block, blocks, rows, seed)
    means, within = [], []
    for block_rows in sample.parts():
        batch = opened.take(block_rows.ravel())
        projected = np.asarray(gradients(pa.Table.from_batches([batch])), np.float64)
        if projected.ndim != 2 or len(projected) != block_rows.size or projected.shape[1] % groups:
            shape = f"(rows, numbers) for {block_rows.size} rows" + f", numbers in {groups} groups" * (groups > 1)
            raise BadArgument(f"gradients must be {shape}, got shape {projected.shape}")
        values = projected.reshape(*block_rows.shape, groups, -1)
        means.append(values.mean(axis=1))
        within.append(((values - means[-1][:, None]) ** 2).sum(axis=(1, 3)))
    return _estimate_groups(np.concatenate(means), np.concatenate(within), sample)


class _Sample(NamedTuple):
    """Rows of blocks, drawn without replacement."""

    rows: IntArray  # [blocks sampled, rows sampled]
    block_rows: float
    blocks: int

    @classmethod
    def of(cls, table: Table, block: int, blocks: int, rows: int, seed: int) -> "_Sample":
        """Draw a sample."""
        block, blocks = whole(block, "block", 2), whole(blocks, "blocks", 2)
        rows, key = whole(rows, "rows", 2), random.derive(whole(seed, "seed"))
        cuts = cuts_of(table, block)
        sizes = np.diff(cuts)
        usual = int(np.median(sizes)) if len(sizes) else 0
        rows = min(max(rows, -(-rows * blocks // max(1, len(sizes)))), usual)
        wide = np.flatnonzero(sizes >= rows) if rows > 1 else np.zeros(0, np.int64)  # leaves out a short last block
        if len(wide) < 2:
            raise BadArgument(f"{table!r} must have two blocks of two rows, got {len(sizes)} blocks of {usual} rows")
        chosen = wide[random.permute(len(wide), key, 0, min(blocks, len(wide)))]
        drawn = [cuts[at] + random.permute(int(sizes[at]), random.derive(key, at), 0, rows) for at in chosen.tolist()]
        return cls(np.array(drawn), float(sizes[wide].mean()), len(wide))

    def parts(self) -> Iterator[IntArray]:
        """Yield the sampled rows, some blocks at a time."""
        for first in range(0, len(self.rows), MAX_GRADIENT_BLOCKS):
            yield self.rows[first : first + MAX_GRADIENT_BLOCKS]


def _estimate_groups(means: Floats, within: Floats, sample: _Sample) -> HD:
    """Estimate h_D from means, [blocks, groups, numbers], and squares within blocks, [blocks, groups]."""
    facts = sample.rows.shape[1], sample.block_rows, sample.blocks
    estimate = _estimate(means.reshape(len(means), -1), within.sum(axis=1), *facts)
    groups = within.shape[1]
    if groups == 1:
        return estimate
    values = [_estimate(means[:, at], within[:, at], *facts).value for at in range(groups)]
    return estimate._replace(error=float(np.hypot(estimate.error, np.std(values, ddof=1) / groups**0.5)))


def _measure(column: pa.Array, *, sampled: bool) -> Floats:
    """Return a column's measured values, (rows, numbers).

    In a sample, values that rarely repeat are not classes, even if few: numbers count as they are, text by its rank in
    alphabetical order.
    """
    kind, rows = column.type, len(column)
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
    if pa.types.is_nested(kind):
        numbers = known = _numbers(column.drop_null())
        if len(known) < rows:
            numbers = np.full((rows, known.shape[1] if len(known) else 1), np.nan)
            numbers[flat(column.is_valid())] = known
        filled = _fill_missing(numbers)
        filled /= np.where((spread := filled.std(axis=0)) > 0, spread, 1)
        return filled
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f" and np.isnan(values).any():
        return _fill_missing(values.reshape(rows, 1))
    if sampled and values.dtype.kind in "iufSUO" and not column.null_count:
        names, places = np.unique(values, return_inverse=True)
        if len(names) > rows // MIN_ROWS_PER_CLASS:
            return np.asarray(values if values.dtype.kind in "iuf" else places, np.float64).reshape(rows, 1)
    return Keys(values).rows(slice(None))


def _numbers(column: pa.Array) -> Floats:
    """Return rows as (rows, numbers), without a Python object per number; raise ValueError if lengths differ."""
    items = column
    while pa.types.is_fixed_size_list(items.type) or (is_list(items.type) and not items.null_count):
        if is_list(items.type) and len(pc.unique(pc.list_value_length(items))) > 1:
            raise ValueError("lists must have the same length")
        items = items.flatten()
    if pa.types.is_dictionary(items.type) or is_bytes(items.type):
        raise ValueError("lists must hold numbers")
    if items is column or not len(column) or not (pa.types.is_integer(items.type) or pa.types.is_floating(items.type)):
        return np.array([np.ravel(row) for row in column.to_pylist()], np.float64)
    values: Floats = floats(items).astype(np.float64)
    return values.reshape(len(column), -1)


def _fill_missing(numbers: Floats) -> Floats:
    """Return numbers with missing ones replaced by the mean."""
    known = np.isfinite(numbers)
    if known.all():
        return numbers
    means = np.where(known, numbers, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return np.where(known, numbers, means)


def _factor(between: Floats | float, within: Floats | float, rows: int, block_rows: float, blocks: int) -> Any:
    """Return h_D where sampled means vary by ``between`` and rows within blocks by ``within``."""
    true = (between - (1 - rows / block_rows) * within / rows) * (blocks - 1) / blocks
    total = true + (block_rows - 1) / block_rows * within
    return np.where(total > 0, block_rows * true / np.where(total > 0, total, 1), 0.0)


def _estimate(means: Floats, within: Floats, rows: int, block_rows: float, blocks: int) -> HD:
    """Estimate h_D from the mean of each sampled block, and the squared deviations of its rows."""
    count = len(means)
    if count < 2 or rows < 2 or count > blocks or rows > block_rows:
        raise BadArgument(
            f"a sample must have at least 2 blocks of 2 rows, and at most {blocks} blocks of {block_rows:g} rows, "
            f"got {count} blocks of {rows} rows"
        )
    off = ((means - means.mean(axis=0)) ** 2).sum(axis=1)
    between, inside = off.sum(), within.sum() / (rows - 1)
    value = float(_factor(between / (count - 1), inside / count, rows, block_rows, blocks))
    error = 0.0 if count == blocks and rows == block_rows else float("inf")
    if count > 2:
        without = (between - off * count / (count - 1)) / (count - 2), (inside - within / (rows - 1)) / (count - 1)
        values = _factor(*without, rows, block_rows, blocks)
        # finite-population correction if whole blocks are known
        left = 1 - count / blocks if rows == block_rows else 1.0
        error = float(np.sqrt(left * (count - 1) / count * ((values - values.mean()) ** 2).sum()))
    return HD(value, error, count, rows)
