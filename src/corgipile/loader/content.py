"""What is in each block, as a vector made of a few of its rows: what content balance tells blocks apart by."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.arrow_memory import give_back
from corgipile.errors import BadArgument, BadSchema
from corgipile.loader.numbers import Numbers, is_class
from corgipile.loader.row_tap import RowTap
from corgipile.loader.sampled_runs import Made, SampledRuns
from corgipile.orders.riffle import CONTENT
from corgipile.suggestions import listed
from corgipile.tables.encoded import is_encoded
from corgipile.tables.sketch import sketch
from corgipile.tables.table import IntArray, Table

__all__ = ["Content", "Embed"]

Embed = Callable[[pa.RecordBatch], npt.ArrayLike]
Look = Callable[[Table, IntArray, str], npt.NDArray[Any]]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Content:
    """Describes blocks: by what is in them where ``"content"`` is asked for, else by a column.

    A block's vector is the mean of some of its rows, or of the rows nearest to it where blocks are many: of spots that
    are evenly spaced over the table (`corgipile.loader.sampled_runs`). A row is its numbers; more than 32 are mixed
    into 32, and its label (`kernel/plan/content.h`). What is missing counts as the mean. Rows are read where they
    lie; a table that is encoded in large units is read whole. What is found is kept beside the table, unless ``embed``
    makes it.

    Attributes:
        columns: What is read of the table.
        label: Its label column, None if it has none.
        embed: What makes numbers of a record batch of these columns, (rows, numbers) or (rows,), instead of the columns
            that are numbers; the same ones whenever it is called with the same rows.
        unpacked: Whether the columns are unpacked for reading anyway, so that they are to be had one by one.
        look: What describes blocks by one column.
        passing: Keeps the rows that are looked at, where they are read for something else before.

    Example:
        >>> from corgipile.tables import open
        >>> table = open({"x": np.arange(6.0), "label": [0, 0, 0, 1, 1, 1]})
        >>> Content(("x", "label"), "label")(table, table.cuts(3), "content").tolist()
        [[-899, -1024, 899, 1024], [899, 1024, 899, 1024]]
    """

    columns: tuple[str, ...]
    label: str | None
    embed: Embed | None = None
    unpacked: bool = field(default=False, compare=False)
    look: Look = field(default=sketch, compare=False)
    passing: RowTap | None = field(default=None, compare=False, repr=False)

    def __call__(self, table: Table, cuts: IntArray, column: str) -> npt.NDArray[Any]:
        """Describe the blocks between these cuts.

        Returns:
            int16[blocks, numbers] for ``"content"``, else what ``look`` returns.

        Raises:
            BadSchema: There is nothing to describe blocks by.
            BadArgument: ``embed`` returned no numbers, or not as many as there are rows.
        """
        if column != CONTENT:
            return self.look(table, cuts, column)
        spots, made, label = self._seen(table)
        describe = spots.kept if self.embed is None else spots.described
        vectors = describe(made, label, self._unpacked, self.passing)
        if self.passing is not None:
            self.passing.end()
            give_back()
        return spots.spread(vectors, cuts)

    def waiting(self, table: Table) -> "Content":
        """Return the same, for blocks that are described after an epoch: by rows that were kept of it, if that helps.

        Rows are kept where a table must be decoded in units, a few megabytes of them; elsewhere they are read alone.

        Raises:
            BadSchema, BadArgument: There is nothing to describe blocks by: this is said now.
        """
        spots, made, _ = self._seen(table)
        if self.embed is not None:
            made(table.read(0, min(1, len(table)), spots.names))
        encoded = self.embed is None and not self.unpacked and is_encoded(table, spots.names)
        if not encoded or not set(spots.names) <= set(self.columns):
            return self
        return replace(self, passing=RowTap(spots.names, spots.rows()))

    def alike(self, table: Table, *, beyond_label: bool) -> float:
        """Return what rows beside each other have in common: most, of all features, as a share of its variance.

        Columns that number the rows, whole numbers that only ascend, do not count.

        Args:
            table: The table.
            beyond_label: What the label explains does not count; else the label is one of the features.

        Raises:
            BadSchema: There is nothing to describe rows by.

        Example:
            >>> from corgipile.tables import open
            >>> drift = open({"x": np.repeat(np.arange(20.0), 500), "label": [0, 1] * 5000})
            >>> Content(("x", "label"), "label").alike(drift, beyond_label=True) > 0.9
            True
        """
        spots, made, label = self._seen(table)
        return spots.alike(made, label, self._unpacked, beyond_label=beyond_label)

    @property
    def _unpacked(self) -> list[str] | None:
        return list(self.columns) if self.unpacked else None

    def _seen(self, table: Table) -> tuple[SampledRuns, Made, str | None]:
        """Return which rows are looked at, what makes features of them, and the label that tells blocks apart."""
        label = self.label if self.label is not None and is_class(table.schema, self.label) else None
        numbers = Numbers.of(table.schema, self.columns, label) if self.embed is None else None
        names = list(self.columns) if numbers is None else numbers.columns
        if numbers is not None and not names and label is None:
            raise BadSchema(
                f"balance='content' tells blocks apart by columns of numbers, and {listed(self.columns)} are none; "
                "give sketch=, a function that makes numbers of rows, or balance='label'"
            )
        names = [name for name in names if name != label] + ([label] if label is not None else [])
        return SampledRuns.of(table, names), self._made(numbers), label

    def _made(self, numbers: Numbers | None) -> Made:
        """Return what makes features of rows."""
        embed = self.embed
        if numbers is not None:
            return numbers.made

        def made(batch: pa.RecordBatch) -> Floats:
            try:
                found = np.asarray(embed(batch), np.float64)  # type: ignore[misc]
            except (TypeError, ValueError) as error:
                raise BadArgument(f"sketch= must return numbers, (rows, numbers): {error}") from None
            found = found.reshape(-1, 1) if found.ndim == 1 else found
            if found.ndim != 2 or len(found) != batch.num_rows or not found.shape[1]:
                raise BadArgument(f"sketch= must return (rows, numbers) for {batch.num_rows} rows, got {found.shape}")
            return found

        return made
