"""h_D of a table from a few rows of a few hundred blocks, with its standard error."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import random
from corgipile.errors import BadArgument, BadSchema
from corgipile.quality.keys import Floats, Keys
from corgipile.sizes import whole
from corgipile.tables import open as open_table
from corgipile.tables.table import IntArray, Table, check_columns, even_cuts

__all__ = ["HD", "cuts_of", "h_d_of_columns", "h_d_of_gradients", "h_d_of_samples"]

LEVEL = 16  # blocks, of fewer of which a short last one is not to be
FEW = 64  # blocks that mix too little to be read as such: a table of so few large units is unpacked, and cut anyhow
TWICE = 4  # of a sample, rows for each class at least
TOGETHER = 32  # blocks whose gradients are in memory at a time


class HD(NamedTuple):
    """The block-wise variance factor of a table, estimated.

    Attributes:
        value: The estimate: 1 for blocks that are random samples, the rows of a block for constant ones; from a sample
            it may be a little below 0.
        error: Its standard error.
        blocks: How many blocks were looked at.
        rows: Rows looked at in each of them.

    Example:
        >>> print(HD(6.56, 0.31, 200, 2))
        6.56 ± 0.31 (2 rows of each of 200 blocks)
    """

    value: float
    error: float
    blocks: int
    rows: int

    def __str__(self) -> str:
        """Say it in a line."""
        return f"{self.value:.2f} ± {self.error:.2f} ({self.rows} rows of each of {self.blocks} blocks)"


def h_d_of_samples(samples: npt.ArrayLike, block_rows: float, blocks: int) -> HD:
    """Estimate h_D from some rows of some blocks, all blocks being as likely, and all rows of a block.

    The variance of block means is that of the sampled ones, less what the rows within blocks add to it; the variance of
    rows is both together (one-way analysis of variance, finite populations). Both are unbiased. The standard error is
    the jackknife's over blocks, infinite where two are sampled, which do not tell it, unless they are all there is.

    Args:
        samples: What is measured, [blocks sampled, rows sampled] numbers or [.., .., numbers].
        block_rows: Rows of a block.
        blocks: Blocks of the table.

    Raises:
        BadArgument: There are fewer than two blocks or rows, or more than the table has.

    Example:
        >>> h_d_of_samples([[0, 0], [1, 1]], block_rows=2, blocks=2).value
        2.0
    """
    values = np.asarray(samples, np.float64)
    if values.ndim not in (2, 3) or min(values.shape) < 1:
        raise BadArgument(f"samples of shape {values.shape}; [blocks, rows] or [blocks, rows, numbers] are wanted")
    values = values.reshape(*values.shape[:2], -1)
    means = values.mean(axis=1)
    within = ((values - means[:, None]) ** 2).sum(axis=(1, 2))
    return _estimate(means, within, values.shape[1], block_rows, blocks)


def cuts_of(table: Table, block: int) -> IntArray:
    """Return where the blocks begin by which a table is measured, and its end: of a few, all of about one length.

    Example:
        >>> cuts_of(open_table({"x": range(7)}), 4).tolist()
        [0, 3, 7]
    """
    cuts = table.cuts(block)
    if len(cuts) > FEW:
        return cuts
    count = -(-len(table) // block)
    if count > LEVEL:
        return even_cuts(len(table), block)
    return np.linspace(0, len(table), count + 1).astype(np.int64)


def h_d_of_columns(
    table: Any,
    block: int,
    columns: Sequence[str] | None = None,
    *,
    blocks: int = 300,
    rows: int = 4,
    seed: int = 0,
) -> dict[str, HD]:
    """Estimate h_D by each of some columns: the label, or any other; only sampled rows are read.

    Classes count one-hot, numbers as they are (see ``Keys``), the numbers of a list in units of their spreads. What is
    missing counts as the mean.

    Args:
        table: What `corgipile.open` takes.
        block: Rows of a block; a table that is encoded in many large units has larger ones.
        columns: The columns; None: all that have values that can be measured.
        blocks: Blocks to look at, all if there are no more.
        rows: Rows to look at in each, more where there are fewer blocks, so that as many are looked at; all if it has
            no more.
        seed: Decides which.

    Raises:
        BadArgument: There are fewer than two blocks of two rows.
        BadSchema: A column that was named has neither numbers nor classes.

    Example:
        >>> table = {"x": np.arange(4000) // 1000, "y": np.arange(4000) % 7}
        >>> {name: round(found.value) for name, found in h_d_of_columns(table, 100).items()}
        {'x': 100, 'y': 0}
    """
    opened = open_table(table)
    names = check_columns(opened.schema, columns)
    sample = _Sample.of(opened, block, blocks, rows, seed)
    batch = opened.take(sample.rows.ravel(), names)
    found = {}
    for name in names:
        try:
            values = _measured(batch.column(name), sampled=sample.rows.size < len(opened))
        except (BadArgument, ValueError, TypeError) as error:
            if columns is not None:
                raise BadSchema(f"column {name!r} has no numbers or classes to measure: {error}") from None
            continue
        found[name] = h_d_of_samples(values.reshape(*sample.rows.shape, -1), sample.block_rows, sample.blocks)
    return found


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
    """Estimate h_D by what a function makes of rows: the gradients of a model, `corgipile.linear.gradients` for ours.

    Any projection of gradients serves, for only their inner products matter. h_D bounds an epoch's error where it holds
    for all weights: take the largest of a few, at the beginning, on the way and at the end.

    Args:
        table: What `corgipile.open` takes.
        block: Rows of a block; a table that is encoded in many large units has larger ones.
        gradients: Makes (rows, numbers) of a ``pyarrow.Table``.
        blocks: Blocks to look at, all if there are no more.
        rows: Rows to look at in each, more where there are fewer blocks, so that as many are looked at; all if it has
            no more.
        seed: Decides which.
        groups: Equal parts of the numbers of which each is a projection of its own: how far their estimates are apart
            counts in the standard error.

    Raises:
        BadArgument: There are fewer than two blocks of two rows, or the function makes other numbers.

    Example:
        >>> table = {"x": np.repeat([1.0, 2.0, 3.0], 20), "label": np.repeat([0, 1, 1], 20)}
        >>> h_d_of_gradients(table, 10, lambda rows: rows["x"].to_numpy()[:, None]).value
        10.0
    """
    opened, groups = open_table(table), whole(groups, "groups", 1)
    sample = _Sample.of(opened, block, blocks, rows, seed)
    means, within = [], []
    for some in sample.parts():
        batch = opened.take(some.ravel())
        made = np.asarray(gradients(pa.Table.from_batches([batch])), np.float64)
        if made.ndim != 2 or len(made) != some.size or made.shape[1] % groups:
            right = f"(rows, numbers) for {some.size} rows" + f", numbers in {groups} groups" * (groups > 1)
            raise BadArgument(f"gradients must be {right}, got shape {made.shape}")
        values = made.reshape(*some.shape, groups, -1)
        means.append(values.mean(axis=1))
        within.append(((values - means[-1][:, None]) ** 2).sum(axis=(1, 3)))
    return _of_groups(np.concatenate(means), np.concatenate(within), sample)


class _Sample(NamedTuple):
    """Rows of blocks drawn without replacement."""

    rows: IntArray  # [blocks sampled, rows sampled]
    block_rows: float
    blocks: int

    @classmethod
    def of(cls, table: Table, block: int, blocks: int, rows: int, seed: int) -> "_Sample":
        """Draw them."""
        block, blocks = whole(block, "block", 2), whole(blocks, "blocks", 2)
        rows, key = whole(rows, "rows", 2), random.derive(whole(seed, "seed"))
        cuts = cuts_of(table, block)
        sizes = np.diff(cuts)
        usual = int(np.median(sizes)) if len(sizes) else 0
        rows = min(max(rows, -(-rows * blocks // max(1, len(sizes)))), usual)
        wide = np.flatnonzero(sizes >= rows) if rows > 1 else np.zeros(0, np.int64)  # a short last one is left out
        if len(wide) < 2:
            raise BadArgument(f"{table!r} has {len(sizes)} blocks of {usual} rows; two blocks of two rows are needed")
        chosen = wide[random.permute(len(wide), key, 0, min(blocks, len(wide)))]
        drawn = [
            cuts[one] + random.permute(int(sizes[one]), random.derive(key, int(one)), 0, rows)
            for one in chosen.tolist()
        ]
        return cls(np.array(drawn), float(sizes[wide].mean()), len(wide))

    def parts(self) -> Iterator[IntArray]:
        """Yield the rows of some blocks at a time."""
        for first in range(0, len(self.rows), TOGETHER):
            yield self.rows[first : first + TOGETHER]


def _of_groups(means: Floats, within: Floats, sample: _Sample) -> HD:
    """Estimate h_D from means, [blocks, groups, numbers], and squares within blocks, [blocks, groups]."""
    facts = sample.rows.shape[1], sample.block_rows, sample.blocks
    found = _estimate(means.reshape(len(means), -1), within.sum(axis=1), *facts)
    groups = within.shape[1]
    if groups == 1:
        return found
    each = [_estimate(means[:, at], within[:, at], *facts).value for at in range(groups)]
    return found._replace(error=float(np.hypot(found.error, np.std(each, ddof=1) / groups**0.5)))


def _measured(column: pa.Array, *, sampled: bool) -> Floats:
    """Return what is measured of a column, (rows, numbers).

    Of a sample, values that hardly ever come twice are no classes, however few they are: numbers are taken as they are,
    words by their places in the alphabet.
    """
    kind, rows = column.type, len(column)
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
    if pa.types.is_nested(kind):
        known = _numbers(column.drop_null())
        numbers = np.full((rows, known.shape[1] if len(known) else 1), np.nan)
        numbers[column.is_valid().to_numpy(zero_copy_only=False)] = known
        filled = _filled(numbers)
        return filled / np.where((spread := filled.std(axis=0)) > 0, spread, 1)
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f" and np.isnan(values).any():
        return _filled(values.reshape(rows, 1))
    if sampled and values.dtype.kind in "iufSUO" and not column.null_count:
        names, places = np.unique(values, return_inverse=True)
        if len(names) > rows // TWICE:
            return np.asarray(values if values.dtype.kind in "iuf" else places, np.float64).reshape(rows, 1)
    return Keys(values).rows(slice(None))


def _numbers(column: pa.Array) -> Floats:
    """Return rows as (rows, numbers); lists of one length without a Python object for each number."""
    items = column
    while pa.types.is_fixed_size_list(items.type):
        items = items.flatten()
    if items is column or not len(column) or not (pa.types.is_integer(items.type) or pa.types.is_floating(items.type)):
        return np.array([np.ravel(one) for one in column.to_pylist()], np.float64)
    values: Floats = items.to_numpy(zero_copy_only=False).astype(np.float64)
    return values.reshape(len(column), -1)


def _filled(numbers: Floats) -> Floats:
    """Return numbers with means in place of what is missing."""
    known = np.isfinite(numbers)
    means = np.where(known, numbers, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return np.where(known, numbers, means)


def _factor(between: Floats | float, within: Floats | float, rows: int, block_rows: float, blocks: int) -> Any:
    """Return h_D where sampled means vary by ``between``, and rows within blocks by ``within``."""
    true = (between - (1 - rows / block_rows) * within / rows) * (blocks - 1) / blocks
    total = true + (block_rows - 1) / block_rows * within
    return np.where(total > 0, block_rows * true / np.where(total > 0, total, 1), 0.0)


def _estimate(means: Floats, within: Floats, rows: int, block_rows: float, blocks: int) -> HD:
    """Estimate h_D from the mean of each sampled block, and the squares of its rows' differences from it."""
    count = len(means)
    if count < 2 or rows < 2 or count > blocks or rows > block_rows:
        raise BadArgument(
            f"{rows} rows of {count} blocks are sampled, of {blocks} blocks of {block_rows:g} rows; two of each at "
            "least, and no more than there are, are right"
        )
    off = ((means - means.mean(axis=0)) ** 2).sum(axis=1)
    between, inside = off.sum(), within.sum() / (rows - 1)
    value = float(_factor(between / (count - 1), inside / count, rows, block_rows, blocks))
    error = 0.0 if count == blocks and rows == block_rows else float("inf")
    if count > 2:
        without = (between - off * count / (count - 1)) / (count - 2), (inside - within / (rows - 1)) / (count - 1)
        each = _factor(*without, rows, block_rows, blocks)
        left = 1 - count / blocks if rows == block_rows else 1.0  # of the blocks, where they are known as a whole
        error = float(np.sqrt(left * (count - 1) / count * ((each - each.mean()) ** 2).sum()))
    return HD(value, error, count, rows)
