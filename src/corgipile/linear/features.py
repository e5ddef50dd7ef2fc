"""Finds the feature columns of a table and their form."""

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema, LeftOutWarning
from corgipile.features.choose import choose, is_number, item_of, require
from corgipile.features.hashed import PAIR
from corgipile.features.numeric_text import explain_text_columns
from corgipile.features.sparse import is_pair, pair_width
from corgipile.loader.buffer import inner
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.loader.selection import Selection
from corgipile.sizes import Size
from corgipile.suggestions import listed
from corgipile.tables.table import Table, fixed_field

__all__ = ["Features", "find_inputs", "log_unknown", "warn_left_out"]

MAX_WARNINGS = 5  # warnings about left-out columns
log = logging.getLogger("corgipile")

PACKED = inner("features")


@dataclass(frozen=True)
class Features:
    """The features of a table.

    Attributes:
        columns: One list column; a pair of list columns, indices and values, if ``sparse``; or scalar columns, with
            or without lists among them.
        sparse: Whether rows are sparse.
        width: Number of features.
        dtype: The model's number type: float64 for float64 features, else float32.
        lists: Whether it is one list column.
        left_out: Why columns that were not named are not features.
        widths: Numbers per row of each packed column.
    """

    columns: tuple[str, ...]
    sparse: bool
    width: int
    dtype: np.dtype[Any]
    lists: bool
    left_out: dict[str, str] = field(default_factory=dict)
    widths: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Return the name of dense features in the buffer."""
        return self.columns[0] if self.lists else PACKED

    def feeder(
        self,
        table: Table,
        label: str | None,
        order: Any,
        memory: Size | None,
        seed: int,
        *,
        weight: str | None = None,
        **also: Any,
    ) -> BufferedReader:
        """Open a reader of these features, the label and the weight; other arguments are those of `BufferedReader`."""
        selection = self._selection(table, label, [name for name in (label, weight) if name is not None])
        return BufferedReader(table, selection, order=order, memory=memory, seed=seed, **also)

    def _selection(self, table: Table, label: str | None, labels: list[str]) -> Selection:
        halves = [name for name in labels if pa.types.is_float16(table.schema.field(name).type)]
        casts: dict[str, Any] = dict.fromkeys(halves, np.float32)
        if self.sparse:
            return Selection([*self.columns, *labels], casts=casts, label=label)
        sizes = {self.name: self.width} if self.lists else dict(zip(self.columns, self.widths, strict=True))
        lists = {name: size for name, size in sizes.items() if item_of(table.schema.field(name).type) is not None}
        pack = {} if self.lists else {PACKED: self.columns}
        return Selection([self.name, *labels], lists, pack, {**casts, self.name: self.dtype}, label=label)


def find_inputs(
    table: Table,
    features: str | Sequence[str] | None,
    label: str | None,
    width: int | None = None,
    *,
    whose: str = "the table",
) -> Features:
    """Find the feature columns of a table.

    Args:
        table: The table.
        features: A list column, the common prefix of a sparse pair (``x`` for ``x_k`` and ``x_v``), or a list of
            columns; None: ``features``, or the pair ``features_k`` and ``features_v``, or else every numeric scalar
            column except the label and pandas' index.
        label: The label column, which is never a feature.
        width: The number of sparse features, if known.
        whose: The table's name in errors.

    Raises:
        MissingColumn: The table has no such columns.
        BadSchema: A column's type is not supported.

    Example:
        >>> from corgipile.tables import open
        >>> table = open(pa.table({"a": [0.5], "b": [1.5], "label": [1]}))
        >>> find_inputs(table, None, "label").columns
        ('a', 'b')
    """
    names, left_out = (chosen := choose(table.schema, features, label)).names, chosen.left_out
    require(table.schema, names, whose)
    if label in names:
        raise BadArgument(f"the label column {label!r} is among the features; leave it out")
    kinds = [table.schema.field(name).type for name in names]
    lists = [item_of(kind) is not None for kind in kinds]
    if is_pair(table.schema, names):
        return replace(_sparse(table, names, width), left_out=left_out)
    dtype = _dtype(kinds)
    if len(names) == 1 and lists[0]:
        return Features(names, sparse=False, width=_width(table, names[0]), dtype=dtype, lists=True, left_out=left_out)
    for name, kind, is_list in zip(names, kinds, lists, strict=True):
        if not is_number(kind) and not is_list:
            raise BadSchema(f"feature column {name!r} is {kind}; numbers or lists of numbers are needed")
    widths = tuple(_width(table, name) if is_list else 1 for name, is_list in zip(names, lists, strict=True))
    return Features(names, sparse=False, width=sum(widths), dtype=dtype, lists=False, left_out=left_out, widths=widths)


def log_unknown(schema: pa.Schema, params: Mapping[str, Any], label: str | None) -> None:
    """Log which columns are ignored because the training table, whose columns the model recorded, did not have them."""
    if "others" not in params:
        return
    known = {*params["features"], *params["left_out"], *params["others"], params.get("label"), label, *PAIR}
    new = [name for name in schema.names if name not in known]
    if new:
        noun = "column" if len(new) == 1 else "columns"
        log.warning("%s %s: ignored, because the model was trained on a table without", noun, listed(new))


def warn_left_out(table: Table, left_out: Mapping[str, str]) -> list[str]:
    """Warn of columns that only a few cells keep from being features, and return the warnings."""
    text = [name for name, why in left_out.items() if why == str(table.schema.field(name).type)]
    notes = [
        f"column {name!r} is left out as text, though {why}" for name, why in explain_text_columns(table, text).items()
    ]
    if len(notes) > MAX_WARNINGS:
        notes = [*notes[:MAX_WARNINGS], f"{len(notes) - MAX_WARNINGS} more columns are left out likewise"]
    for note in notes:
        warnings.warn(note, LeftOutWarning, stacklevel=8)
    return notes


def _dtype(kinds: Sequence[Any]) -> np.dtype[Any]:
    items = [kind if (inner := item_of(kind)) is None else inner for kind in kinds]
    wide = any(pa.types.is_float64(item) for item in items)
    return np.dtype(np.float64 if wide else np.float32)


def _width(table: Table, name: str) -> int:
    """Return the length of a dense list column's rows, by its type or its first row."""
    kind = table.schema.field(name).type
    fixed = fixed_field(kind)
    if fixed is not None:
        width = int(np.prod(fixed[1], dtype=np.int64))
    elif not is_number(kind.value_type):
        raise BadSchema(f"feature column {name!r} is {kind}; lists of numbers are needed")
    else:
        first = table.read(0, 1, [name]).column(0) if len(table) else []
        width = len(first[0]) if len(first) and first[0].is_valid else 0
    if width < 1:
        raise BadSchema(f"feature column {name!r} has rows of {width} numbers; at least 1 is needed")
    return width


def _sparse(table: Table, names: Sequence[str], width: int | None) -> Features:
    indices, values = (table.schema.field(name).type for name in names)
    number = item_of(values)
    if not pa.types.is_int32(item_of(indices)) or not (pa.types.is_float32(number) or pa.types.is_float64(number)):
        raise BadSchema(
            f"sparse features {names[0]!r} and {names[1]!r} are {indices} and {values}; "
            "list<int32> and list<float> (or double) are needed"
        )
    width = pair_width(table, names[0]) if width is None else width
    dtype = np.dtype(np.float64 if pa.types.is_float64(number) else np.float32)
    return Features(tuple(names), sparse=True, width=max(width, 1), dtype=dtype, lists=True)
