"""How one column becomes numbers: numbers of any type, categories, the classes of a label."""

import math
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corgipile.errors import BadLabel, BadSchema, BadValue
from corgipile.features.choose import is_number
from corgipile.tables.arrow.spans import flat

__all__ = ["UNKNOWN", "Categories", "Classes", "Encoder", "Number", "encoder_of", "plain", "plain_type"]

DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
UNKNOWN = -1.0  # the ordinal of a category that was not there when the encoder was fitted
RowName = Callable[[int], str]


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a column: that of a dictionary's values, of text without views."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    return kind


def plain(column: pa.Array) -> pa.Array:
    """Return the values of a column themselves."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(plain_type(column.type))


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
    def always(self) -> bool:
        """Say whether there is something to do though the type stays."""
        return False

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
        if not (takes(kind)):
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


def takes(kind: pa.DataType) -> bool:
    """Say whether a type is numbers, or dates and times, which are taken for numbers."""
    kind, types = plain_type(kind), pa.types
    return bool(is_number(kind) or types.is_decimal(kind) or types.is_temporal(kind))


def _since(column: pa.Array) -> pa.Array:
    """Return decimals as floats, dates as days, other times as seconds."""
    kind, types = column.type, pa.types
    if types.is_decimal(kind):
        return column.cast(pa.float64())
    if types.is_date32(kind):
        return column.cast(pa.int32()).cast(pa.float64())
    unit = "ms" if types.is_date64(kind) else kind.unit
    days = types.is_date64(kind) or types.is_timestamp(kind)
    number = column.cast(pa.int32() if types.is_time32(kind) else pa.int64()).cast(pa.float64(), safe=False)
    return pc.divide(number, float(DAY[unit] if days else DAY[unit] // 86_400))


@dataclass(frozen=True)
class Categories(Encoder):
    """Values of any type that stand for themselves, as text.

    Attributes:
        way: ``"onehot"``, ``"ordinal"`` or ``"hash"``.
        values: The categories, for "hash" none; null may be one of them.
        buckets: Numbers a row, for "hash".
    """

    way: str = "onehot"
    values: tuple[str | None, ...] = ()
    buckets: int = 0
    how: ClassVar[str] = "categories"

    @property
    def names(self) -> list[str]:
        """Return the name of each number of a row."""
        if self.way == "ordinal":
            return [self.column]
        given = range(self.buckets) if self.way == "hash" else self.values
        return [f"{self.column}={'' if value is None else value}" for value in given]

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        """Return one number, or as many as there are categories."""
        if not is_category(kind):
            raise BadSchema(f"column {self.column!r} is {kind}; categories are text, numbers or dates")
        return pa.float32() if self.way == "ordinal" else pa.list_(pa.float32(), len(self.names))

    def encode(self, column: pa.Array, row: RowName) -> pa.Array:
        """Return ordinals, or rows of which one number is 1; of an unknown category all are 0."""
        codes = self._codes(column, row)
        if self.way == "ordinal":
            return pa.array(codes.astype(np.float32))
        width = len(self.names)
        rows = np.zeros((len(codes), width), np.float32)
        known = np.flatnonzero(codes >= 0)
        rows[known, codes[known]] = 1.0
        return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), width)

    def _codes(self, column: pa.Array, row: RowName) -> npt.NDArray[np.int64]:
        """Return the place of each row's category, -1 of an unknown one."""
        text = as_text(column)
        if None not in self.values and text.null_count:
            place = int(np.flatnonzero(flat(text.is_null()))[0])
            raise _missing(row(place), self.column)
        if self.way == "hash":
            coded = text.dictionary_encode("encode")
            sums = [zlib.crc32(f"{self.column}={value}".encode()) for value in coded.dictionary.to_pylist()]
            return np.asarray(np.array(sums, np.int64)[flat(coded.indices)] % self.buckets)
        found = pc.index_in(text, value_set=pa.array(self.values, pa.string()))
        return np.asarray(flat(pc.fill_null(found, -1)), np.int64)


def _missing(where: str, column: str) -> BadValue:
    return BadValue(f"{where} of column {column!r} is null; say missing= what stands for it, or fill or drop such rows")


def is_category(kind: pa.DataType) -> bool:
    """Say whether values of a type can be categories."""
    kind = plain_type(kind)
    return bool(pa.types.is_string(kind) or takes(kind))


def as_text(column: pa.Array) -> pa.Array:
    """Return categories as text."""
    column = plain(column)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    return column.cast(pa.string())


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
            raise BadSchema(f"label column {self.column!r} is {kind}; text or numbers are needed")
        if any(isinstance(value, str) != pa.types.is_string(plain_type(kind)) for value in self.values):
            raise BadLabel(f"label column {self.column!r} is {kind}; the classes are {list(self.values)[:10]}")
        return pa.int64()

    def encode(self, column: pa.Array, row: RowName) -> pa.Array:
        """Return each row's class by its place.

        Raises:
            BadLabel: A row has no class, or one that is not among them.
        """
        column = plain(column)
        found = pc.index_in(column, value_set=pa.array(self.values, column.type))
        if found.null_count and self.strict:
            place = int(np.flatnonzero(flat(found.is_null()))[0])
            many = f"{', '.join(map(repr, self.values[:10]))}{', ...' if len(self.values) > 10 else ''}"
            raise BadLabel(f"{row(place)} has label {column[place].as_py()!r}; the classes are {many}")
        return pc.fill_null(found.cast(pa.int64()), -1)


_KINDS: dict[str, type[Encoder]] = {kind.how: kind for kind in (Number, Categories, Classes)}


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
    fill = getattr(made, "fill", None)
    if fill is not None and not math.isfinite(fill):
        raise ValueError(f"column {made.column!r} is filled with {fill}")
    return made
