"""How one column becomes numbers: numbers of any type, categories, the classes of a label."""

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
from corgipile.tables.arrow.spans import flat
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

SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
WAYS = ("onehot", "ordinal", "hash")  # an ordinal is -1 for what was not there when the encoder was fitted
FREE, EACH = 4 << 20, 110  # bytes of categories that no budget counts; what finds one, beside its text
RowName = Callable[[int], str]


def taken(values: Iterable[str | None]) -> int:
    """Return the bytes that categories take: their text, and what they are found by.

    Example:
        >>> 100 < taken(["Oslo"]) < 200
        True
    """
    return sum(sys.getsizeof(value) + EACH for value in values)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a column: that of a dictionary's values, one of text whatever its offsets."""
    kind = value_type(kind)
    return pa.string() if pa.types.is_large_string(kind) else kind


def plain(column: pa.Array) -> pa.Array:
    """Return the values of a column themselves."""
    return as_type(column, value_type(column.type)).cast(plain_type(column.type))


def family_of(kind: pa.DataType) -> str:
    """Return what values of a type are compared as: ``"text"``, ``"number"``, ``"time"``, or nothing."""
    kind, types = plain_type(kind), pa.types
    if types.is_string(kind):
        return "text"
    if types.is_date(kind) or types.is_timestamp(kind):
        return "time"
    spans = types.is_time(kind) or types.is_duration(kind)
    return "number" if is_number(kind) or types.is_decimal(kind) or spans else ""


@dataclass(frozen=True)
class Encoder:
    """What turns one column into numbers; it is stored with models and states.

    Attributes:
        column: The column's name.
    """

    column: str
    how: ClassVar[str]

    @property
    def names(self) -> list[str]:
        """Return the name of each number of a row."""
        return [self.column]

    @property
    def quoted(self) -> list[str]:
        """Return the same names, quoted if they join a column and a category."""
        return self.names

    @property
    def always(self) -> bool:
        """Say whether there is something to do though the type stays."""
        return False

    @property
    def nbytes(self) -> int:
        """Return what it holds in memory, as far as a budget counts that."""
        return 0

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        """Return the type that a column of a type becomes; the same where nothing is to be done."""
        raise NotImplementedError

    def encode(self, column: pa.Array, row: RowName) -> pa.Array:
        """Encode rows; ``row`` names one of them for an error."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return what makes this encoder again, for JSON."""
        given = asdict(self)
        return {
            "how": self.how,
            **{name: list(value) if type(value) is tuple else value for name, value in given.items()},
        }


@dataclass(frozen=True)
class Number(Encoder):
    """Numbers as they are; of dates and times the days since 1970, of times of day and durations the seconds.

    Attributes:
        fill: What stands for null and NaN; None: they stay.
    """

    fill: float | None = None
    how: ClassVar[str] = "number"

    @property
    def always(self) -> bool:
        """Say whether a number stands for what is missing."""
        return self.fill is not None

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        """Return a type of plain numbers, floats where something may be missing."""
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
        to, column = self.type_of(column.type), plain(column)
        if not is_number(column.type):
            column = _since(column)
        column = column.cast(to, safe=False)
        if self.fill is None:
            return column
        missing = pc.is_null(column, nan_is_null=True)
        return pc.if_else(missing, pa.scalar(self.fill, to), column) if missing.true_count else column


def _since(column: pa.Array) -> pa.Array:
    """Return decimals as floats, dates as days, other times as seconds."""
    kind, types = column.type, pa.types
    if types.is_decimal(kind):
        return column.cast(pa.float64())
    if types.is_date32(kind):
        return column.cast(pa.int32()).cast(pa.float64())
    unit = "ms" if types.is_date64(kind) else kind.unit
    whole = "days" if types.is_date64(kind) or types.is_timestamp(kind) else "seconds"
    number = column.cast(pa.int32() if types.is_time32(kind) else pa.int64()).cast(pa.float64(), safe=False)
    return pc.divide(number, SECOND[unit] * (86_400.0 if whole == "days" else 1.0))


@dataclass(frozen=True)
class Vector(Encoder):
    """Lists of numbers, as they are.

    Attributes:
        fill: What stands for null and NaN inside of them; None: they stay.
    """

    fill: float | None = None
    how: ClassVar[str] = "vector"

    @property
    def always(self) -> bool:
        """Say whether a number stands for what is missing."""
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
        """Return lists in which nothing is missing; a list that is missing stays so."""
        kind = column.type
        if item_of(kind.value_type) is not None:
            return column
        whole = pa.concat_arrays([column])  # of a slice, the rows of it alone
        items = whole.values
        missing = pc.is_null(items, nan_is_null=True)
        items = pc.if_else(missing, pa.scalar(self.fill, items.type), items) if missing.true_count else items
        if pa.types.is_fixed_size_list(kind):
            return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=whole.is_null())
        return type(whole).from_arrays(whole.offsets, items, type=kind, mask=whole.is_null())


@dataclass(frozen=True)
class Categories(Encoder):
    """Values of any type that stand for themselves, as text.

    Attributes:
        way: ``"onehot"``, ``"ordinal"`` or ``"hash"``.
        values: The categories, for "hash" none; null may be one of them.
        buckets: Numbers a row, for "hash".
        family: What values were where the encoder was fitted, see `family_of`: others would never be equal.
        strict: Whether a null that is no category is an error; else its row is NaN.
        unknown: Whether a null that is no category is one that was never seen: neither an error nor NaN.
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
        """Return the name of each number of a row."""
        if self.way == "ordinal":
            return [self.column]
        given = range(self.buckets) if self.way == "hash" else self.values
        return [self._named(value) for value in given]

    @property
    def quoted(self) -> list[str]:
        """Return the same names, with columns and categories quoted."""
        if self.way != "onehot":
            return self.names
        return [f"{self.column!r} missing" if one is None else f"{self.column!r}={one!r}" for one in self.values]

    @property
    def nbytes(self) -> int:
        """Return what the categories take, beyond a few MB."""
        return max(0, taken(self.values) - FREE)

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        """Return one number, or as many as there are categories."""
        if family_of(kind) != self.family:
            raise BadSchema(f"column {self.column!r} is {kind}; its categories are {self.family}s")
        return pa.float32() if self.way == "ordinal" else pa.list_(pa.float32(), len(self.names))

    def encode(self, column: pa.Array, row: RowName) -> pa.Array:
        """Return ordinals, or rows of which one number is 1; of an unknown category all are 0."""
        text = as_text(column)
        strays = text.null_count and not self.unknown and None not in self.values
        holes = flat(text.is_null()) if strays else np.zeros(len(text), bool)
        if self.strict and holes.any():
            raise _missing(row(int(np.flatnonzero(holes)[0])), self.column)
        codes = self._codes(text)
        if self.way == "ordinal":
            return pa.array(np.where(holes, np.nan, codes).astype(np.float32))
        width = len(self.names)
        rows = np.zeros((len(codes), width), np.float32)
        known = np.flatnonzero(codes >= 0)
        rows[known, codes[known]] = 1.0
        rows[holes] = np.nan
        return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), width)

    def state(self) -> dict[str, Any]:
        """Return what makes this encoder again; what few have is left out elsewhere, for models as they were saved."""
        given = super().state()
        return given if self.unknown else {name: value for name, value in given.items() if name != "unknown"}

    def _codes(self, text: pa.Array) -> npt.NDArray[np.int64]:
        """Return the place of each row's category, -1 of an unknown one."""
        if self.way == "hash":
            coded = text.dictionary_encode("encode")
            sums = [zlib.crc32(self._named(value).encode()) for value in coded.dictionary.to_pylist()]
            return np.asarray(np.array(sums, np.int64)[flat(coded.indices)] % self.buckets)
        found = pc.index_in(text, value_set=pa.array(self.values, pa.string()))
        return np.asarray(flat(pc.fill_null(found, -1)), np.int64)

    def _named(self, value: Any) -> str:
        return f"{self.column} missing" if value is None else f"{self.column}={value}"


def _missing(where: str, column: str) -> BadValue:
    cure = "say missing= what stands for it (of a trained model: model.filled(0); in a command --missing 0)"
    return BadValue(f"{where} of column {column!r} is null; {cure}, or fill or drop such rows")


def as_text(column: pa.Array) -> pa.Array:
    """Return categories as text, the same for equal values of any type of their family.

    Example:
        >>> [as_text(pa.array(some)).to_pylist() for some in ([1, 0], [1.0, -0.0], [1.5, float("nan")])]
        [['1', '0'], ['1', '0'], ['1.5', None]]
    """
    column, types = plain(column), pa.types
    family = family_of(column.type)
    if family == "text":
        return column
    if family == "time":
        zoned = getattr(column.type, "tz", None)
        moment = column.cast(pa.timestamp("us", zoned), safe=False).cast(pa.int64())
        return moment.cast(pa.timestamp("us")).cast(pa.string())
    if types.is_boolean(column.type):
        return column.cast(pa.int8()).cast(pa.string())
    if types.is_integer(column.type):
        return column.cast(pa.string())
    number = (column if types.is_floating(column.type) else _since(column)).cast(pa.float64())
    number = pc.add(pc.if_else(pc.is_nan(number), pa.scalar(None, pa.float64()), number), 0.0)  # no -0
    whole = pc.and_(pc.equal(pc.floor(number), number), pc.less(pc.abs(number), float(1 << 62)))
    texts = pc.if_else(whole, number, 0.0).cast(pa.int64()).cast(pa.string())
    return pc.if_else(whole, texts, number.cast(pa.string()))


@dataclass(frozen=True)
class Classes(Encoder):
    """The classes of a label, as their places.

    Attributes:
        values: The classes.
        strict: Whether a row of no class is an error, or -1.
    """

    values: tuple[Any, ...] = ()
    strict: bool = True
    how: ClassVar[str] = "classes"

    @property
    def always(self) -> bool:
        """Say that numbers become places, too."""
        return True

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        """Return int64."""
        if not (pa.types.is_string(plain_type(kind)) or is_number(plain_type(kind))):
            also = "; labels= is for lists of them" * pa.types.is_nested(kind)
            raise BadSchema(f"label column {self.column!r} is {kind}; text or numbers are needed{also}")
        if any(isinstance(value, str) != pa.types.is_string(plain_type(kind)) for value in self.values):
            raise BadLabel(f"label column {self.column!r} is {kind}; the classes are {list(self.values)[:10]}")
        return pa.int64()

    def encode(self, column: pa.Array, row: RowName) -> pa.Array:
        """Return each row's class by its place.

        Raises:
            BadLabel: A row has no class, or one that is not among them.
        """
        column = plain(column)
        if not pa.types.is_string(column.type):  # classes need not be of the column's own type
            column = column.cast(pa.float64(), safe=False)
        values = self.values if pa.types.is_string(column.type) else [float(value) for value in self.values]
        found = pc.index_in(column, value_set=pa.array(values, column.type))
        if found.null_count and self.strict:
            place = int(np.flatnonzero(flat(found.is_null()))[0])
            many = f"{', '.join(map(repr, self.values[:10]))}{', ...' if len(self.values) > 10 else ''}"
            raise BadLabel(f"{row(place)} has label {column[place].as_py()!r}; the classes are {many}")
        return pc.fill_null(found.cast(pa.int64()), -1)


_KINDS: dict[str, type[Encoder]] = {kind.how: kind for kind in (Number, Vector, Categories, Classes)}


def encoder_of(state: dict[str, Any]) -> Encoder:
    """Make an encoder from its state.

    Example:
        >>> encoder_of(Number("x", 0.5).state())
        Number(column='x', fill=0.5)
    """
    given = dict(state)
    kind = _KINDS[given.pop("how")]
    if "values" in given:
        given["values"] = tuple(given["values"])
    made = kind(**given)
    fill, way = getattr(made, "fill", None), getattr(made, "way", "onehot")
    if not isinstance(made.column, str) or way not in WAYS or (way == "hash" and made.buckets < 1):  # type: ignore[attr-defined]
        raise ValueError(f"it encodes {made.column!r} {way!r}")
    if fill is not None and not math.isfinite(fill):
        raise ValueError(f"column {made.column!r} is filled with {fill}")
    return made
