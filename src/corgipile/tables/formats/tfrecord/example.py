"""``tensorflow.Example`` messages as columns: schema inferred from a sample, values copied by the kernel."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import BadArgument, BadSchema, BadValue, CorruptFile, RaggedRows, TableError
from corgipile.tables.formats.tfrecord.records import Records, binary_array
from corgipile.tables.io.pieces import pick
from corgipile.tables.spans import array_of
from corgipile.tables.table import LIMIT, IntArray

Features = Sequence[str] | Mapping[str, "str | pa.DataType | None"]

# Codes and kinds are those of kernel/formats/example.h.
MALFORMED, MISSING, KIND, COUNT = 1, 2, 3, 4
WORDS = {"byte": 1, "float": 2, "int": 3}
VALUES = {1: pa.binary(), 2: pa.float32(), 3: pa.int64()}
DTYPES = {1: np.uint8, 2: np.float32, 3: np.int64}
NO_EXAMPLE = "is not a tensorflow.Example message"
SEQUENCE = "is a tensorflow.SequenceExample, whose feature lists are not supported; read its bytes with decode=False"


class Flaw(NamedTuple):
    """A bad record: its number among those decoded, the error type, and the reason."""

    row: int
    error: type[TableError]
    reason: str


class Spans(NamedTuple):
    """Located features: spans int64[features, rows, 2], counts int64[features, rows], bytes per feature."""

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
        """Decode columns, or return the first bad record's flaw."""
        schema = pick(self.schema, names)
        found = self.find(records, schema)
        if isinstance(found, Flaw):
            return found
        arrays = [_column(records, found, at, field.type) for at, field in enumerate(schema)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def find(self, records: Records, schema: pa.Schema) -> "Spans | Flaw":
        """Locate the features of a schema in all records."""
        rows, features = len(records.ends) - 1, len(schema)
        kinds = np.array([kind_of(field.type) for field in schema], np.int32)
        expected = np.array([count_of(field.type) for field in schema], np.int64)
        found = Spans(
            np.empty((features, rows, 2), np.int64), np.empty((features, rows), np.int64), np.empty(features, np.int64)
        )
        names = tuple(name.encode() for name in schema.names)
        flaw = _kernel.examples_find(*records, names, kinds=kinds, expected=expected, **found._asdict())
        return found if flaw is None else _flaw(flaw, schema)


def infer(samples: Sequence[bytes], features: Features | None, *, lenient: bool = False) -> "pa.Schema | Flaw":
    """Infer the schema of Examples from a sample.

    A feature with one value in each is a scalar, with n values a fixed-size list, else a list of any length.

    Args:
        samples: Records.
        features: Names, or a mapping from names to ``"byte"``, ``"int"``, ``"float"``, Arrow types, or None; all
            features by default.
        lenient: Ignore records that are not Examples or lack a feature.
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
    wanted = _parse_features(features)
    names = list(wanted) if features is not None else sorted({name for entry in seen for name in entry})
    fields = []
    for name in names:
        requested = wanted.get(name)
        kind = requested if isinstance(requested, pa.DataType) else _infer_type(name, requested, seen, lenient=lenient)
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
    """Return the fields of a message if all are numbered 1 or 2 and hold bytes, else nothing."""
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
    """Return the kernel's code of a column's values, 0 for unsupported types."""
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return next((number for number, value in VALUES.items() if value.equals(kind)), 0)


def count_of(kind: pa.DataType) -> int:
    """Return the number of values per row, -1 for lists of any length."""
    if pa.types.is_list(kind):
        return -1
    return int(kind.list_size) if pa.types.is_fixed_size_list(kind) else 1


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the column type for values of both types: lists of any length if counts differ.

    Example:
        >>> wider(pa.int64(), pa.list_(pa.int64(), 2))
        ListType(list<item: int64>)
    """
    return one if one.equals(other) or kind_of(one) != kind_of(other) else pa.list_(VALUES[kind_of(one)])


def _parse_features(features: Features | None) -> "dict[str, int | pa.DataType | None]":
    """Return the caller's features with words replaced by kernel codes; raise BadArgument for unknown types."""
    requested = dict(features) if isinstance(features, Mapping) else dict.fromkeys(features or ())
    if isinstance(features, str) or (features is not None and not requested):
        raise BadArgument(f"features must be at least one name, or a mapping from names to types, got {features!r}")
    for name, kind in requested.items():
        if isinstance(kind, str):
            requested[name] = WORDS.get(kind)
        unknown = not kind_of(kind) if isinstance(kind, pa.DataType) else kind is not None and requested[name] is None
        if unknown:
            words = ", ".join(map(repr, WORDS))
            raise BadArgument(
                f"feature {name!r} must be {words}, or int64, float32, binary or a list of these, got {kind!r}"
            )
    return requested


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
            return Flaw(row, BadSchema, f"feature {name!r} must hold {_word(before)} values, got {_word(found)}")
    if not kinds:
        return Flaw(
            0,
            BadSchema,
            f"feature {name!r} has no values to infer its type from; set it with features={{{name!r}: ...}}",
        )
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
        return Flaw(row, BadSchema, f"feature {name!r} must hold {_word(kind_of(kind))} values, got {_word(got)}")
    hint = f"read lists of any length with features={{{name!r}: pyarrow.list_(pyarrow.{value}())}}"
    return Flaw(row, RaggedRows, f"feature {name!r} must have {count_of(kind)} values, got {got}; {hint}")


def _missing(row: int, name: str) -> Flaw:
    return Flaw(row, BadValue, f"has no feature {name!r}; choose features that every record has with features=")


def _word(kind: int) -> str:
    return next(word for word, number in WORDS.items() if number == kind)


def _column(records: Records, found: Spans, at: int, kind: pa.DataType) -> pa.Array:
    """Copy the values of one feature into an array."""
    number, rows = kind_of(kind), found.counts.shape[1]
    total, size = int(found.counts[at].sum()), int(found.nbytes[at])
    if max(total, size) >= LIMIT:
        raise BadArgument(f"{rows} rows do not fit one record batch: {max(total, size)} values; read fewer rows")
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
