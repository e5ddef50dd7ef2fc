"""Contents of batches: stored columns, or one array of features and the label."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadValue
from corgipile.features import Encoding
from corgipile.loader.array_pool import ArrayPool
from corgipile.loader.budget import Columns, columns_of
from corgipile.loader.buffer import inner
from corgipile.loader.sparse import SparseRows
from corgipile.tables.spans import Rows, objects
from corgipile.tables.table import Table

__all__ = ["Selection"]

FEATURES, LABEL = "features", "label"
PACKED = inner(FEATURES)


@dataclass(frozen=True)
class Selection:
    """Columns that are read from a table, and their names in batches.

    Attributes:
        columns: Columns that are read; None for all.
        widths: Row lengths of list columns that are read as arrays.
        pack: Columns made of several, by name.
        casts: Number types to convert to, by name.
        names: Names in batches of columns that have another name there.
        as_tuple: Whether a batch is a pair of features and label instead of a dictionary.
        label: The label column; None: no label.
        encoding: How columns become features; None: columns are read as stored.
        ends: End of each packed column's numbers in a row.
        sparse: Row length of sparse features; 0 for dense ones.
        dtype: Number type of sparse features.
    """

    columns: Sequence[str] | None = None
    widths: Mapping[str, int] = field(default_factory=dict)
    pack: Mapping[str, Sequence[str]] = field(default_factory=dict)
    casts: Mapping[str, npt.DTypeLike] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    as_tuple: bool = False
    label: str | None = None
    encoding: Encoding | None = None
    ends: Sequence[int] = ()
    sparse: int = 0
    dtype: str = "float32"

    def columns_in(self, table: Table) -> Columns:
        """Return the layout of the columns in a table."""
        return columns_of(table, self.columns, self.casts, self.pack, self.widths)

    def finish(self, columns: dict[str, Any], spare: ArrayPool | None = None) -> dict[str, Any]:
        """Return columns under their names in batches, with labels in the type that learners take."""
        if not self.names and not self.sparse:
            return columns
        columns = self._with_rows(dict(columns), spare) if self.sparse else columns
        made = {self.names.get(name, name): values for name, values in columns.items()}
        self._check(made.get(FEATURES))
        if self.label is not None:
            made[LABEL] = _learnable(made[LABEL], made.get(FEATURES))
        return made

    def _with_rows(self, columns: dict[str, Any], spare: ArrayPool | None) -> dict[str, Any]:
        """Replace the index and value columns by one column of sparse rows."""
        assert self.encoding is not None  # noqa: S101 - sparse features have an encoding
        pair = self.encoding.columns
        found = []
        for name in pair:
            rows = columns.pop(name)
            rows = objects(rows, own=True) if isinstance(rows, pa.Array) else rows
            if not isinstance(rows, Rows):
                raise BadValue(f"column {name!r} holds nulls; fill or drop such rows first")
            found.append(rows)
        called = f"the pair {pair[0]!r}, {pair[1]!r}"
        return {PACKED: SparseRows(found[0], found[1], self.sparse, np.dtype(self.dtype), called, spare), **columns}

    def _check(self, features: Any) -> None:
        """Raise BadValue for NaN, which is pandas' null; a sum is the fastest check."""
        if isinstance(features, SparseRows) and _has_nan(features.values):
            raise BadValue(f"feature column {self.encoding.columns[1]!r} holds NaN")  # type: ignore[union-attr]
        if not _has_nan(features):
            return
        flat = features.reshape(len(features), -1)
        place = int(np.flatnonzero(np.isnan(flat).any(axis=0))[0])
        packed = self.pack.get(PACKED)
        column = packed[int(np.searchsorted(self.ends, place, side="right"))] if packed else self.called(FEATURES)
        raise BadValue(f"feature column {column!r} holds NaN; fill it by missing= (in lists, a number)")

    def called(self, name: str) -> str:
        """Return the table's name of a column of batches."""
        return next(stored for stored, called in self.names.items() if called == name)

    def batch(self, batch: Any) -> Any:
        """Return a batch as a pair if requested."""
        return (batch[FEATURES], batch[LABEL]) if self.as_tuple else batch


def _has_nan(values: Any) -> bool:
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f":
        return False
    with np.errstate(all="ignore"):
        return bool(np.isnan(values.sum()) and np.isnan(values).any())


def _learnable(label: Any, features: Any) -> Any:
    """Return labels as int64, or fractions in the features' type; raise BadValue for NaN and beyond int64."""
    if not isinstance(label, np.ndarray) or label.dtype.kind not in "biuf":
        return label
    if label.dtype.kind != "f":
        if label.dtype == np.uint64 and len(label) and label.max() > np.iinfo(np.int64).max:
            raise BadValue(f"integer labels must be at most 2^63 - 1, got {label.max()} in the label column")
        return label.astype(np.int64, copy=False)
    if _has_nan(label):
        raise BadValue("the label column holds NaN; fill or drop such rows first")
    kind = features.dtype if isinstance(features, np.ndarray) and features.dtype.kind == "f" else label.dtype
    return label.astype(kind, copy=False)
