"""Content sketches: a vector per block, the mean of sampled rows, for balance by content."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema
from corgipile.loader.numbers import Numbers, is_class
from corgipile.loader.sampled_runs import Featurizer, SampledRuns
from corgipile.orders.riffle import CONTENT
from corgipile.suggestions import listed
from corgipile.tables.sketch import sketch
from corgipile.tables.table import IntArray, Table

__all__ = ["Content", "Embed"]

Embed = Callable[[pa.RecordBatch], Any]  # numbers, (rows, numbers)
Look = Callable[[Table, IntArray, str], npt.NDArray[Any]]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Content:
    """Describes blocks by their content for ``"content"``, else by a column.

    A block's vector is the mean of its sampled rows, or of the nearest ones if there are more blocks than samples:
    runs of rows evenly spaced over the table (`corgipile.loader.sampled_runs`). A row's features are its numbers and
    its label; more than 32 numbers are projected to 32 (`kernel/plan/content.h`). Missing values count as the mean.
    Only sampled rows are read, but tables encoded in large units are read whole. Vectors are cached with the table
    unless ``embed`` makes them.

    Attributes:
        columns: Columns that are read.
        label: The label column; None: no label.
        embed: Makes numbers, (rows, numbers) or (rows,), from a record batch of these columns instead of the numeric
            columns; it must be deterministic.
        unpacked: Whether the columns are unpacked anyway, so that single rows can be read.
        look: Describes blocks by one column.

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

    def __call__(self, table: Table, cuts: IntArray, column: str) -> npt.NDArray[Any]:
        """Describe the blocks between these cuts.

        Returns:
            int16[blocks, numbers] for ``"content"``, else the result of ``look``.

        Raises:
            BadSchema: The table has no numbers to describe blocks by.
            BadArgument: ``embed`` returned no numbers, or a wrong number of rows.
        """
        if column != CONTENT:
            return self.look(table, cuts, column)
        runs, features, label = self._sample(table)
        describe = runs.vectors if self.embed is None else runs.make_vectors
        return runs.spread(describe(features, label, self._unpacked), cuts)

    def shared_variance(self, table: Table, *, beyond_label: bool) -> float:
        """Return the largest share of a feature's variance that neighbouring rows have in common.

        Ascending whole numbers count as row numbers and are ignored. ``beyond_label`` ignores variance that the label
        explains; else the label is one of the features.

        Raises:
            BadSchema: The table has no numbers to describe rows by.

        Example:
            >>> from corgipile.tables import open
            >>> drift = open({"x": np.repeat(np.arange(20.0), 500), "label": [0, 1] * 5000})
            >>> Content(("x", "label"), "label").shared_variance(drift, beyond_label=True) > 0.9
            True
        """
        runs, features, label = self._sample(table)
        return runs.shared_variance(features, label, self._unpacked, beyond_label=beyond_label)

    @property
    def _unpacked(self) -> list[str] | None:
        return list(self.columns) if self.unpacked else None

    def _sample(self, table: Table) -> tuple[SampledRuns, Featurizer, str | None]:
        """Return the sampled runs, the function that makes features of rows, and the label column."""
        label = self.label if self.label is not None and is_class(table.schema, self.label) else None
        numbers = Numbers.of(table.schema, self.columns, label) if self.embed is None else None
        names = list(self.columns) if numbers is None else numbers.columns
        if numbers is not None and not names and label is None:
            raise BadSchema(
                f"balance='content' needs columns of numbers, got {listed(self.columns)}; "
                "give sketch=, a function that makes numbers of rows, or balance='label'"
            )
        names = [name for name in names if name != label] + ([label] if label is not None else [])
        return SampledRuns.of(table, names), self._featurizer(numbers), label

    def _featurizer(self, numbers: Numbers | None) -> Featurizer:
        embed = self.embed
        if numbers is not None:
            return numbers.matrix

        def features(batch: pa.RecordBatch) -> Floats:
            try:
                vectors = np.asarray(embed(batch), np.float64)  # type: ignore[misc]
            except (TypeError, ValueError) as error:
                raise BadArgument(f"sketch= must return numbers, (rows, numbers): {error}") from None
            vectors = vectors.reshape(-1, 1) if vectors.ndim == 1 else vectors
            if vectors.ndim != 2 or len(vectors) != batch.num_rows or not vectors.shape[1]:
                raise BadArgument(f"sketch= must return (rows, numbers) for {batch.num_rows} rows, got {vectors.shape}")
            return vectors

        return features
