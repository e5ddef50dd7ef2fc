"""Encoders, which turn a column into numbers: numbers of any type, categories, label classes."""

import math
import sys
import zlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import arrow_compute as pc
from corgipile.errors import BadLabel, BadSchema, BadValue
from corgipile.features.choose import is_number, item_of
from corgipile.tables.spans import flat
from corgipile.tables.values import as_type, value_type

__all__ = [
    "WAYS",
    "Categories",
    "Classes",
    "Encoder",
    "Number",
    "Vector",
    "as_text",
    "encoder_of",
    "family_of",
    "plain_type",
]

UNITS_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
WAYS = ("onehot", "ordinal", "hash")  # an unseen value has ordinal -1
FREE_BYTES, ENTRY_BYTES = 4 << 20, 110  # category bytes that no budget counts; bytes per category, besides its text
RowName = Callable[[int], str]


def category_bytes(values: Iterable[str | None]) -> int:
    """Return the bytes of categories: their text and the index over them.

    Example:
        >>> 100 < category_bytes(["Oslo"]) < 200
        True
    """
    return sum(sys.getsizeof(value) + ENTRY_BYTES for value in values)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column's values: of a dictionary its value type, of large text plain text."""
    kind = value_type(kind)
    return pa.string() if pa.types.is_large_string(kind) else kind


def plain(column: pa.Array) -> pa.Array:
    """Return a column's values, decoded."""
    return as_type(column, value_type(column.type)).cast(plain_type(column.type))


def family_of(kind: pa.DataType) -> str:
    """Return how values of a type compare: as ``"text"``, ``"number"`` or ``"time"``; empty if they do not."""
    kind, types = plain_type(kind), pa.types
    if types.is_string(kind):
        return "text"
    if types.is_date(kind) or types.is_timestamp(kind):
        return "time"
    is_interval = types.is_time(kind) or types.is_duration(kind)
    return "number" if is_number(kind) or types.is_decimal(kind) or is_interval else ""


@dataclass(frozen=True)
class Encoder:
    """Turns one column into numbers; stored with models and states."""

    column: str
    how: ClassVar[str]

    @property
    def names(self) -> list[str]:
        """Return the name of each number of an encoded row."""
        return [self.column]

    @property
    def quoted(self) -> list[str]:
        """Return the same names, quoted if they join a column and a category."""
        return self.names

    @property
    def always(self) -> bool:
        """Return whether encoding changes values even if the type stays."""
        return False

    @property
    def nbytes(self) -> int:
        """Return the bytes that a budget counts."""
        return 0

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        """Return the encoded type of a column type; the same if encoding changes nothing."""
        raise NotImplementedError

    def encode(self, column: pa.Array, row: RowName) -> pa.Array:
        """Encode rows; ``row`` names a row for errors."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return the JSON state from which `encoder_of` restores this encoder."""
        fields = {name: list(value) if type(value) is tuple else value for name, value in asdict(self).items()}
        return {"how": self.how, **fields}


@dataclass(frozen=True)
class Number(Encoder):
    """Numbers, with ``fill`` for null and NaN.

    Dates and timestamps become days since 1970, times and durations seconds.
    """

    fill: float | None = None
    how: ClassVar[str] = "number"

    @property
    def always(self) -> bool:
        """Return whether there is a fill value."""
        return self.fill is not None

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        """Return a plain number type, a float type if values may be missing."""
        if family_of(kind) not in ("number", "time"):
            raise BadSchema(f"column {self.column!r} is {kind}; numbers, dates or times are needed")
        if not is_number(kind):
            inner = plain_type(kind)
            return inner if is_number(inner) and self.fill is None else pa.float64()
        if self.fill is None:
            return kind
        small = pa.types.is_float32(kind) or pa.types.is_float16(kind) or pa.types.is_boolean(kind)
        return pa.float32() if small or kind.bit_width <= 16 else pa.float64()

    def encode(self, column: pa.Array, row: RowName) -> pa.Array:
        """Return plain numbers."""
        target, column = self.type_of(column.type), plain(column)
        if not is_number(column.type):
            column = _as_float(column)
        column = column.cast(target, safe=False)
        if self.fill is None:
            return column
        missing = pc.is_null(column, nan_is_null=True)
        return pc.if_else(missing, pa.scalar(self.fill, target), column) if missing.true_count else column


def _as_float(column: pa.Array) -> pa.Array:
    """Return decimals as floats, dates as days, times as seconds."""
    kind, types = column.type, pa.types
    if types.is_decimal(kind):
        return column.cast(pa.float64())
    if types.is_date32(kind):
        return column.cast(pa.int32()).cast(pa.float64())
    unit = "ms" if types.is_date64(kind) else kind.unit
    whole = "days" if types.is_date64(kind) or types.is_timestamp(kind) else "seconds"
    number = column.cast(pa.int32() if types.is_time32(kind) else pa.int64()).cast(pa.float64(), safe=False)
    return pc.divide(number, UNITS_PER_SECOND[unit] * (86_400.0 if whole == "days" else 1.0))


@dataclass(frozen=True)
class Vector(Encoder):
    """Lists of numbers, with ``fill`` for null and NaN in them; None: they stay."""

    fill: float | None = None
    how: ClassVar[str] = "vector"

    @property
    def always(self) -> bool:
        """Return whether there is a fill value."""
        return self.fill is not None

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        """Return the same type."""
        item = item_of(kind)
        while item is not None and item_of(item) is not None:
            item = item_of(item)
        if item is None or not is_number(item):
            raise BadSchema(f"column {self.column!r} is {kind}; lists of numbers are needed")
        return kind

    def encode(self, column: pa.Array, row: RowName) -> pa.Array:
        """Return lists without missing items; a null list stays null."""
        kind = column.type
        if item_of(kind.value_type) is not None:
            return column
        whole = pa.concat_arrays([column])  # drops the rows outside a slice
        items = whole.values
        missing = pc.is_null(items, nan_is_null=True)
        items = pc.if_else(missing, pa.scalar(self.fill, items.type), items) if missing.true_count else items
        if pa.types.is_fixed_size_list(kind):
            return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=whole.is_null())
        return type(whole).from_arrays(whole.offsets, items, type=kind, mask=whole.is_null())


@dataclass(frozen=True)
class Categories(Encoder):
    """Values of any type as categories, compared as text; those of another family never match.

    A null that is not a category counts as unseen if ``unknown``; else it is an error if ``strict``, or NaN.
    """

    way: str = "onehot"
    values: tuple[str | None, ...] = ()
    buckets: int = 0
    family: str = "text"
    strict: bool = True
    unknown: bool = False
    how: ClassVar[str] = "categories"

    @property
    def names(self) -> list[str]:
        """Return the name of each number of an encoded row."""
        if self.way == "ordinal":
            return [self.column]
        values = range(self.buckets) if self.way == "hash" else self.values
        return [self._named(value) for value in values]

    @property
    def quoted(self) -> list[str]:
        """Return the same names, with columns and categories quoted."""
        if self.way != "onehot":
            return self.names
        return [f"{self.column!r} missing" if value is None else f"{self.column!r}={value!r}" for value in self.values]

    @property
    def nbytes(self) -> int:
        """Return the bytes of the categories above a few MB."""
        return max(0, category_bytes(self.values) - FREE_BYTES)

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        """Return a number type, or a list with an item per category."""
        if family_of(kind) != self.family:
            raise BadSchema(f"column {self.column!r} is {kind}; its categories are {self.family}s")
        return pa.float32() if self.way == "ordinal" else pa.list_(pa.float32(), len(self.names))

    def encode(self, column: pa.Array, row: RowName) -> pa.Array:
        """Return ordinals, or rows with a single 1; rows of an unknown category are all 0."""
        text = as_text(column)
        may_miss = text.null_count and not self.unknown and None not in self.values
        is_missing = flat(text.is_null()) if may_miss else np.zeros(len(text), bool)
        if self.strict and is_missing.any():
            raise _missing(row(int(np.flatnonzero(is_missing)[0])), self.column)
        codes = self._codes(text)
        if self.way == "ordinal":
            return pa.array(np.where(is_missing, np.nan, codes).astype(np.float32))
        width = len(self.names)
        rows = np.zeros((len(codes), width), np.float32)
        known = np.flatnonzero(codes >= 0)
        rows[known, codes[known]] = 1.0
        rows[is_missing] = np.nan
        return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), width)

    def state(self) -> dict[str, Any]:
        """Return the JSON state; ``unknown`` is omitted when False, as in models saved before it existed."""
        fields = super().state()
        return fields if self.unknown else {name: value for name, value in fields.items() if name != "unknown"}

    def _codes(self, text: pa.Array) -> npt.NDArray[np.int64]:
        """Return the place of each row's category, -1 if unknown."""
        if self.way == "hash":
            coded = text.dictionary_encode("encode")
            sums = [zlib.crc32(self._named(value).encode()) for value in coded.dictionary.to_pylist()]
            return np.asarray(np.array(sums, np.int64)[flat(coded.indices)] % self.buckets)
        found = pc.index_in(text, value_set=pa.array(self.values, pa.string()))
        return np.asarray(flat(pc.fill_null(found, -1)), np.int64)

    def _named(self, value: Any) -> str:
        return f"{self.column} missing" if value is None else f"{self.column}={value}"


def _missing(where: str, column: str) -> BadValue:
    hint = "replace it with missing= (for a trained model: model.filled(0), or --missing 0 in a command)"
    return BadValue(f"{where} of column {column!r} is null; {hint}, or fill or drop such rows")


def as_text(column: pa.Array) -> pa.Array:
    """Return categories as text, equal for equal values of any type of a family.

    Example:
        >>> [as_text(pa.array(some)).to_pylist() for some in ([1, 0], [1.0, -0.0], [1.5, float("nan")])]
        [['1', '0'], ['1', '0'], ['1.5', None]]
    """
    column, types = plain(column), pa.types
    family = family_of(column.type)
    if family == "text":
        return column
    if family == "time":
        zone = getattr(column.type, "tz", None)
        moment = column.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
        return moment.cast(pa.timestamp("us")).cast(pa.string())
    if types.is_boolean(column.type):
        return column.cast(pa.int8()).cast(pa.string())
    if types.is_integer(column.type):
        return column.cast(pa.string())
    number = (column if types.is_floating(column.type) else _as_float(column)).cast(pa.float64())
    number = pc.add(pc.if_else(pc.is_nan(number), pa.scalar(None, pa.float64()), number), 0.0)  # no -0
    whole = pc.and_(pc.equal(pc.floor(number), number), pc.less(pc.abs(number), float(1 << 62)))
    texts = pc.if_else(whole, number, 0.0).cast(pa.int64()).cast(pa.string())
    return pc.if_else(whole, texts, number.cast(pa.string()))


@dataclass(frozen=True)
class Classes(Encoder):
    """Label classes, encoded as their places; an unknown class is an error if ``strict``, else -1."""

    values: tuple[Any, ...] = ()
    strict: bool = True
    how: ClassVar[str] = "classes"

    @property
    def always(self) -> bool:
        """Return True: numeric classes become places too."""
        return True

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        """Return int64."""
        if not (pa.types.is_string(plain_type(kind)) or is_number(plain_type(kind))):
            label_hint = "; for lists of labels use labels=" * pa.types.is_nested(kind)
            raise BadSchema(f"label column {self.column!r} is {kind}; text or numbers are needed{label_hint}")
        if any(isinstance(value, str) != pa.types.is_string(plain_type(kind)) for value in self.values):
            raise BadLabel(f"label column {self.column!r} is {kind}; the classes are {list(self.values)[:10]}")
        return pa.int64()

    def encode(self, column: pa.Array, row: RowName) -> pa.Array:
        """Return each row's class by its place."""
        column = plain(column)
        if not pa.types.is_string(column.type):  # classes may have another type than the column
            column = column.cast(pa.float64(), safe=False)
        values = self.values if pa.types.is_string(column.type) else [float(value) for value in self.values]
        found = pc.index_in(column, value_set=pa.array(values, column.type))
        if found.null_count and self.strict:
            place = int(np.flatnonzero(flat(found.is_null()))[0])
            class_list = f"{', '.join(map(repr, self.values[:10]))}{', ...' if len(self.values) > 10 else ''}"
            raise BadLabel(f"{row(place)} has label {column[place].as_py()!r}; the classes are {class_list}")
        return pc.fill_null(found.cast(pa.int64()), -1)


_KINDS: dict[str, type[Encoder]] = {kind.how: kind for kind in (Number, Vector, Categories, Classes)}


def encoder_of(state: dict[str, Any]) -> Encoder:
    """Return the encoder of a state.

    Example:
        >>> encoder_of(Number("x", 0.5).state())
        Number(column='x', fill=0.5)
    """
    fields = dict(state)
    kind = _KINDS[fields.pop("how")]
    if "values" in fields:
        fields["values"] = tuple(fields["values"])
        known = str | None if kind is Categories else str | int | float
        if not all(isinstance(value, known) for value in fields["values"]):
            raise ValueError("its categories must be text, its classes text or numbers")
    encoder = kind(**fields)
    fill, way = getattr(encoder, "fill", None), getattr(encoder, "way", "onehot")
    if not isinstance(encoder.column, str) or way not in WAYS or (way == "hash" and encoder.buckets < 1):  # type: ignore[attr-defined]
        raise ValueError(f"its encoder of column {encoder.column!r} has way {way!r}")
    if fill is not None and not math.isfinite(fill):
        raise ValueError(f"the fill of column {encoder.column!r} must be finite, got {fill}")
    return encoder
