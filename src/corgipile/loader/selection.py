"""Contents of batches: stored columns, or one array of features and the label."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema, BadValue, CorgiPileError
from corgipile.features import Encoding, fit_encoding
from corgipile.features.choose import FeatureColumns, choose, describe_left_out, is_number, item_of, require
from corgipile.features.fit import Encode, Features, Missing, chosen_columns
from corgipile.features.sparse import is_pair, pair_width
from corgipile.loader.array_pool import ArrayPool
from corgipile.loader.budget import Columns, columns_of
from corgipile.loader.buffer import FEATURE_RULE, inner
from corgipile.loader.list_widths import widths_of
from corgipile.loader.materialize import bring
from corgipile.loader.sparse import SparseRows
from corgipile.sizes import Size
from corgipile.suggestions import listed
from corgipile.tables.arrow.spans import Rows, objects
from corgipile.tables.table import Table, fixed_field

__all__ = ["Selected", "Selection", "select"]

FEATURES, LABEL = "features", "label"
PACKED = inner(FEATURES)
DTYPES = ("float32", "float64")
log = logging.getLogger("corgipile")


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

    columns: Sequence[str] | None
    widths: Mapping[str, int]
    pack: Mapping[str, Sequence[str]] = field(default_factory=dict)
    casts: Mapping[str, npt.DTypeLike] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    as_tuple: bool = False
    label: str | None = None
    encoding: Encoding | None = None
    ends: Sequence[int] = ()
    sparse: int = 0
    dtype: str = "float32"

    def found(self, table: Table) -> Columns:
        """Return the layout of the columns in a table."""
        return columns_of(table, self.columns, self.casts, self.pack, self.widths)

    def made(self, columns: dict[str, Any], spare: ArrayPool | None = None) -> dict[str, Any]:
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


class Selected(NamedTuple):
    """A table with encoded features, and the selection of its columns."""

    table: Table
    selection: Selection


def select(
    table: Table,
    columns: Sequence[str] | None,
    widths: Mapping[str, int] | None,
    features: Features | Selection,
    label: str | None,
    *,
    encode: Encode = None,
    missing: Missing = "error",
    classes: Sequence[Any] | None = None,
    dtype: str = "float32",
    as_tuple: bool = False,
    arrow: bool = False,
    memory: Size | None = None,
) -> Selected:
    """Choose the columns of batches; see `corgipile.Loader` for the arguments.

    Raises:
        BadArgument: Arguments that have no effect, or contradict each other.
    """
    if isinstance(features, Selection):  # the table is encoded already
        return Selected(table, features)
    if features is None and label is None:
        _check_useless(encode, classes, missing, dtype, as_tuple=as_tuple)
        known = widths_of(table, columns, {} if widths is None and arrow else widths, memory)
        return Selected(table, Selection(columns, known))
    if dtype not in DTYPES:
        raise BadArgument(f"dtype must be 'float32' or 'float64', got {dtype!r}")
    if isinstance(columns, str):
        raise BadArgument(f"columns must be a list of names, got {columns!r}")
    if isinstance(features, Encoding) and label is None and features.label is not None:
        label = features.label.column
    bring(table, _surveyed(table, features, label, encode, missing), memory)
    chosen = features if encode else _none_beside(table.schema, features, label)
    encoding = fit_encoding(table, chosen, label, encode=encode, missing=missing, classes=classes, memory=memory)
    if as_tuple and (label is None or (columns and encoding.columns) or arrow):
        raise BadArgument(
            "as_tuple=True makes pairs of features and label: give a label, no columns and no format='arrow'"
        )
    log.info("features of %r: %s", table, listed(encoding.columns) or "none; all columns are read as stored")
    if encoding.left_out and not isinstance(features, Encoding):
        log.warning("columns of %r that are not features: %s", table, describe_left_out(encoding.left_out))
    encoded = encoding.table(table, once=True)
    if not encoding.columns and label is not None:
        return Selected(encoded, _as_stored(encoded, encoding, columns, widths, label, memory, as_tuple=as_tuple))
    found = _selection(encoded, encoding, columns, widths, label, dtype, memory, as_tuple=as_tuple, arrow=arrow)
    return Selected(encoded, found)


def _check_useless(encode: Encode, classes: Any, missing: Missing, dtype: str, *, as_tuple: bool) -> None:
    given = {"encode": encode, "classes": classes, "missing": None if missing == "error" else missing}
    given |= {"as_tuple": as_tuple or None, "dtype": None if dtype == "float32" else dtype}
    for name, value in given.items():
        if value is not None:
            raise BadArgument(
                f"{name}={value!r} has no effect without features= or label=; features='numeric' uses all numbers"
            )


def _none_beside(schema: pa.Schema, features: Features, label: str | None) -> Features | FeatureColumns:
    """Return the requested features; no columns if none were requested and no column but the label is numeric."""
    if label is not None:
        require(schema, [label])
    if features is None and label is not None and len(schema) > 1:
        try:
            choose(schema, None, label)
        except BadSchema:
            return FeatureColumns(())
    return features


def _surveyed(
    table: Table, features: Features | Selection, label: str | None, encode: Encode, missing: Missing
) -> list[str]:
    """Return the columns that are read both to fit their encoding and to encode them."""
    schema = table.schema
    try:
        names = [] if isinstance(features, Encoding) else [*chosen_columns(schema, features, label, encode).names]
    except CorgiPileError:  # a later step raises it
        return []
    names += [label] if label is not None and label in schema.names else []
    kinds = {name: schema.field(name).type for name in names}
    lists = any(item_of(kind) is not None for kind in kinds.values())
    if missing == "mean" or (missing != "error" and lists) or is_pair(schema, names[:2]):
        return names
    said = encode if isinstance(encode, Mapping) else {}
    return [name for name, kind in kinds.items() if name in said or not (is_number(kind) or item_of(kind) is not None)]


def _as_stored(
    table: Table,
    encoding: Encoding,
    columns: Sequence[str] | None,
    widths: Mapping[str, int] | None,
    label: str,
    memory: Size | None,
    *,
    as_tuple: bool,
) -> Selection:
    """Select the label and non-numeric columns, such as images or text."""
    others = [name for name in columns or table.schema.names if name != label]
    if LABEL in others or FEATURES in others:
        raise BadArgument(f"columns must not collide with the label {label!r} under 'label', got {listed(others)}")
    if as_tuple and len(others) > 1:
        raise BadArgument(f"as_tuple=True needs one column and the label, got {listed(others)}: give columns=")
    names = {label: LABEL, **({others[0]: FEATURES} if as_tuple else {})}
    read = [*others, label]
    found = widths_of(table, read, widths, memory)
    return Selection(read, found, names=names, as_tuple=as_tuple, label=label, encoding=encoding)


def _selection(
    table: Table,
    encoding: Encoding,
    columns: Sequence[str] | None,
    widths: Mapping[str, int] | None,
    label: str | None,
    dtype: str,
    memory: Size | None,
    *,
    as_tuple: bool,
    arrow: bool,
) -> Selection:
    if encoding.hashing is not None:
        raise BadArgument("hashed features are for linear models; a loader reads text as stored: give columns=")
    sources, besides = encoding.columns, list(columns or ())
    for name in besides:
        if name in sources or name == label:
            raise BadArgument(f"column {name!r} is a feature or the label already: leave it out of columns")
        if name in (FEATURES, LABEL):
            raise BadArgument(f"{name!r} is the batches' name of features or label: leave that column out of columns")
    read = [*sources, *besides, *([] if label is None else [label])]
    found = widths_of(table, read, widths, memory)
    if [name[-2:] for name in sources] == ["_k", "_v"] and is_pair(table.schema, sources):
        if arrow:
            raise BadArgument(f"format='arrow' cannot have sparse features: give columns={list(sources)}")
        width = pair_width(table, sources[0])
        return Selection(
            read, found, names={PACKED: FEATURES, **({} if label is None else {label: LABEL})}, as_tuple=as_tuple,
            label=label, encoding=encoding, sparse=width, dtype=dtype,
        )  # fmt: skip
    lists = [item_of(table.schema.field(name).type) is not None for name in sources]
    names = {} if label is None else {label: LABEL}
    if len(sources) == 1 and lists[0]:
        name, pack, casts = sources[0], {}, {}
        if name not in found and fixed_field(table.schema.field(name).type) is None:
            raise BadSchema(f"feature column {name!r} is {table.schema.field(name).type}; {FEATURE_RULE}")
    else:
        name, pack, casts = PACKED, {PACKED: sources}, {PACKED: np.dtype(dtype)}
    names[name] = FEATURES
    wanted = [name, *besides, *([] if label is None else [label])]
    ends = np.cumsum(columns_of(table, wanted, casts, pack, found).fields[0].widths) if pack else np.zeros(0, int)
    return Selection(wanted, found, pack, casts, names, as_tuple, label, encoding, [int(end) for end in ends])


def _has_nan(values: Any) -> bool:
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f":
        return False
    with np.errstate(all="ignore"):
        return bool(np.isnan(values.sum()) and np.isnan(values).any())


def _learnable(label: Any, features: Any) -> Any:
    """Return labels as int64, or fractions in the type of the features.

    Raises:
        BadValue: A label is NaN, or beyond int64.
    """
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
