"""``tensorflow.Example`` messages as columns: the schema found from some records, values copied by the kernel."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import BadArgument, BadSchema, BadValue, CorruptFile, RaggedRows, TableError
from corgipile.tables.arrow.spans import array_of
from corgipile.tables.io.pieces import pick
from corgipile.tables.table import LIMIT, IntArray
from corgipile.tables.tfrecord.records import Records, binary_array

Features = Sequence[str] | Mapping[str, "str | pa.DataType | None"]

# Codes and kinds are those of kernel/formats/example.h.
MALFORMED, MISSING, KIND, COUNT = 1, 2, 3, 4
WORDS = {"byte": 1, "float": 2, "int": 3}
VALUES = {1: pa.binary(), 2: pa.float32(), 3: pa.int64()}
DTYPES = {1: np.uint8, 2: np.float32, 3: np.int64}
NO_EXAMPLE = "is no tensorflow.Example message"
SEQUENCE = "is a tensorflow.SequenceExample, whose feature lists are not read; pass decode=False for its bytes"


class Flaw(NamedTuple):
    """What is wrong with one record: its number among those given, the error it makes, and why."""

    row: int
    error: type[TableError]
    reason: str


class Found(NamedTuple):
    """Where the kernel found features: spans int64[features, rows, 2], counts int64[features, rows], bytes of each."""

    spans: IntArray
    counts: IntArray
    nbytes: IntArray


class Examples:
    r"""Decodes the features of a schema.

    Args:
        schema: Columns of int64, float32 or binary, or fixed-size or plain lists of them.

    Example:
        >>> record = np.frombuffer(b"\n\x0e\n\x0c\n\x01x\x12\x07\x1a\x05\n\x03\x05\x06\x07", np.uint8)
        >>> schema = pa.schema([("x", pa.list_(pa.int64()))])
        >>> Examples(schema).decode(Records(record, np.array([0, 16])), ["x"]).to_pylist()
        [{'x': [5, 6, 7]}]
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def decode(self, records: Records, names: Sequence[str]) -> "pa.RecordBatch | Flaw":
        """Decode some columns, or say what is wrong with the first bad record."""
        schema = pick(self.schema, names)
        found = self.find(records, schema)
        if isinstance(found, Flaw):
            return found
        arrays = [_column(records, found, at, field.type) for at, field in enumerate(schema)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def find(self, records: Records, schema: pa.Schema) -> "Found | Flaw":
        """Find the features of a schema in all records."""
        rows, features = len(records.ends) - 1, len(schema)
        kinds = np.array([kind_of(field.type) for field in schema], np.int32)
        expected = np.array([count_of(field.type) for field in schema], np.int64)
        found = Found(
            np.empty((features, rows, 2), np.int64), np.empty((features, rows), np.int64), np.empty(features, np.int64)
        )
        names = tuple(name.encode() for name in schema.names)
        flaw = _kernel.examples_find(*records, names, kinds=kinds, expected=expected, **found._asdict())
        return found if flaw is None else _flaw(flaw, schema)


def infer(samples: Sequence[bytes], features: Features | None, *, lenient: bool = False) -> "pa.Schema | Flaw":
    """Find the schema of Examples from some of them.

    A feature that has one value in each is a scalar, one of n values a list of fixed size, any other a list.

    Args:
        samples: Records.
        features: Names, or a mapping from names to ``"byte"``, ``"int"``, ``"float"``, Arrow types, or None; all
            features by default.
        lenient: Pass over records that are no Examples or lack a feature.
    """
    seen: list[dict[str, tuple[int, int]]] = []
    for row, record in enumerate(samples):
        entries = _kernel.example_features(record)
        if entries is None and is_sequence(record):
            return Flaw(row, BadSchema, SEQUENCE)
        if entries is None and not lenient:
            return Flaw(row, CorruptFile, NO_EXAMPLE)
        entries = entries or []
        seen.append({name.decode("utf-8", "backslashreplace"): (kind, count) for name, kind, count in entries})
    wanted = _wanted(features)
    names = list(wanted) if features is not None else sorted({name for entry in seen for name in entry})
    fields = []
    for name in names:
        given = wanted.get(name)
        kind = given if isinstance(given, pa.DataType) else _infer_type(name, given, seen, lenient=lenient)
        if isinstance(kind, Flaw):
            return kind
        fields.append((name, kind))
    return pa.schema(fields)


def is_sequence(record: bytes) -> bool:
    r"""Return whether a record is a SequenceExample with feature lists.

    Example:
        >>> is_sequence(b"\n\x00\x12\x02\n\x00"), is_sequence(b"\n\x00"), is_sequence(b"\x12\x03abc")
        (True, False, False)
    """
    top = _messages(record)
    return any(number == 2 for number, _ in top) and all(_messages(value) for number, value in top if number == 2)


def _messages(data: bytes) -> list[tuple[int, bytes]]:
    """Return the fields of a message if they all are 1 or 2 and hold bytes, else nothing."""
    found, at = [], 0
    while at < len(data):
        tag, size, shift = data[at], 0, 0
        while (at := at + 1) < len(data):
            size, shift = size | (data[at] & 127) << shift, shift + 7
            if data[at] < 128 or shift > 63:
                break
        if tag not in (0x0A, 0x12) or at + size >= len(data):
            return []
        found.append((tag >> 3, data[at + 1 : at + 1 + size]))
        at += 1 + size
    return found


def kind_of(kind: pa.DataType) -> int:
    """Return the kernel's number of a column's values, 0 if Examples hold no such values."""
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return next((number for number, value in VALUES.items() if value.equals(kind)), 0)


def count_of(kind: pa.DataType) -> int:
    """Return the values of a row, -1 for lists of any length."""
    if pa.types.is_list(kind):
        return -1
    return int(kind.list_size) if pa.types.is_fixed_size_list(kind) else 1


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the column type for values of both: lists of any length where counts differ.

    Example:
        >>> wider(pa.int64(), pa.list_(pa.int64(), 2))
        ListType(list<item: int64>)
    """
    return one if one.equals(other) or kind_of(one) != kind_of(other) else pa.list_(VALUES[kind_of(one)])


def _wanted(features: Features | None) -> "dict[str, int | pa.DataType | None]":
    """Check what the caller says of features: words become kinds."""
    given = dict(features) if isinstance(features, Mapping) else dict.fromkeys(features or ())
    if isinstance(features, str) or (features is not None and not given):
        raise BadArgument(f"features must be names, or a mapping from names to types; at least one, got {features!r}")
    for name, kind in given.items():
        if isinstance(kind, str):
            given[name] = WORDS.get(kind)
        unknown = not kind_of(kind) if isinstance(kind, pa.DataType) else kind is not None and given[name] is None
        if unknown:
            words = ", ".join(map(repr, WORDS))
            raise BadArgument(
                f"feature {name!r} cannot be {kind!r}; {words}, or int64, float32, binary or a list of these can"
            )
    return given


def _infer_type(
    name: str, kind: int | None, seen: Sequence[Mapping[str, tuple[int, int]]], *, lenient: bool
) -> "pa.DataType | Flaw":
    kinds = set() if kind is None else {kind}
    counts = set()
    for row, entry in enumerate(seen):
        if name not in entry and lenient:
            continue
        if name not in entry:
            return _missing(row, name)
        found, count = entry[name]
        kinds |= {found} - {0}
        counts.add(count)
        if len(kinds) > 1:
            (before,) = kinds - {found}
            return Flaw(row, BadSchema, f"feature {name!r} holds {_word(found)} values; {_word(before)} is right")
    if not kinds:
        return Flaw(0, BadSchema, f"the type of feature {name!r} cannot be told; features={{{name!r}: ...}} says it")
    value = VALUES[kinds.pop()]
    if len(counts) != 1 or counts == {0}:
        return pa.list_(value)
    return value if counts == {1} else pa.list_(value, counts.pop())


def _flaw(flaw: tuple[int, int, int, int], schema: pa.Schema) -> Flaw:
    code, row, feature, got = flaw
    if code == MALFORMED:
        return Flaw(row, CorruptFile, NO_EXAMPLE)
    name, kind = schema.names[feature], schema.field(feature).type
    value = VALUES[kind_of(kind)]
    if code == MISSING:
        return _missing(row, name)
    if code == KIND:
        return Flaw(row, BadSchema, f"feature {name!r} holds {_word(got)} values; {_word(kind_of(kind))} is right")
    hint = f"features={{{name!r}: pyarrow.list_(pyarrow.{value}())}} reads lists of any length"
    return Flaw(row, RaggedRows, f"feature {name!r} has {got} values; {count_of(kind)} are right ({hint})")


def _missing(row: int, name: str) -> Flaw:
    return Flaw(row, BadValue, f"has no feature {name!r}; features= chooses those that every record has")


def _word(kind: int) -> str:
    return next(word for word, number in WORDS.items() if number == kind)


def _column(records: Records, found: Found, at: int, kind: pa.DataType) -> pa.Array:
    """Copy the values of one feature into an array."""
    number, rows = kind_of(kind), found.counts.shape[1]
    total, size = int(found.counts[at].sum()), int(found.nbytes[at])
    if max(total, size) >= LIMIT:
        raise BadArgument(f"{rows} rows do not fit one record batch ({max(total, size)} values); read fewer at a time")
    values = np.empty(size if number == WORDS["byte"] else total, DTYPES[number])
    ends = np.zeros(total + 1 if number == WORDS["byte"] else 1, np.int64)
    _kernel.examples_fill(records.data, found.spans[at], number, values, ends[1:])
    flat = array_of(values)
    if number == WORDS["byte"]:
        flat = binary_array(values, ends)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(flat, type=kind)
    if pa.types.is_list(kind):
        offsets = np.append(0, np.cumsum(found.counts[at])).astype(np.int32)
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(offsets)], 0, 0, [flat])
    return flat
