"""Dictionary columns of Arrow IPC files: rows store indices into dictionaries that are read once."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import CorruptFile
from corgipile.tables.formats.arrow.flatbuffers import DICTIONARY, MAX_COMPRESSION_RATIO, read_batch
from corgipile.tables.formats.arrow.footer import schema_end
from corgipile.tables.io.files import File, decoding
from corgipile.tables.io.pieces import by_schema, pick, same_schema
from corgipile.tables.values import as_type, viewless

__all__ = ["Dictionaries", "index_schema", "stated_size"]

MAX_EAGER_BYTES = 8 << 20  # bytes of dictionaries that are read to learn their size
PREFIX = 8  # bytes before a compressed buffer that state its decompressed size
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


@by_schema
def index_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of stored rows: indices for dictionary columns, and no views.

    Example:
        >>> index_schema(pa.schema({"city": pa.dictionary(pa.int8(), pa.string())})).types
        [DataType(int8)]
    """
    kinds = [kind.index_type if pa.types.is_dictionary(kind) else viewless(kind) for kind in schema.types]
    fields = [field.with_type(kind) for field, kind in zip(schema, kinds, strict=True)]
    return same_schema(pa.schema(fields, metadata=schema.metadata))


class Dictionaries:
    """Reads all dictionaries of a file once, on first use.

    Args:
        file: The file.
        blocks: Their positions, from the footer.
        schema: The stored schema.
    """

    is_source = False

    def __init__(self, file: File, blocks: npt.NDArray[np.void], schema: pa.Schema) -> None:
        self._file, self._blocks, self._schema = file, blocks, schema
        self.names, self._holding = _with_dictionary(schema)
        self._read: dict[str, pa.Array] = {}

    def __bool__(self) -> bool:
        """Return whether the file has dictionaries, nested ones included."""
        return len(self._blocks) > 0

    def nbytes(self, names: Sequence[str]) -> int:
        """Return the bytes of all dictionaries if one of these columns uses one, else 0."""
        if self.large and not self._holding.isdisjoint(names):
            return self._stated[0]
        return 0 if self.names.isdisjoint(names) else sum(int(column.nbytes) for column in self._values().values())

    @property
    def large(self) -> bool:
        """Return whether the dictionaries are too large to be read just to learn their size."""
        return self._stated[0] > MAX_EAGER_BYTES

    @cached_property
    def _stated(self) -> tuple[int, int]:
        """Return the bytes that reading the dictionaries takes, and their number of values, from their metadata."""
        sizes = [stated_size(self._file, at, head, body) for at, head, _, body in self._blocks.tolist()]
        return sum(size for size, _ in sizes), sum(values for _, values in sizes)

    def mean_bytes(self, names: Sequence[str]) -> float:
        """Return the mean bytes of the dictionary values of a row, if all values are equally frequent."""
        if self.large and not self._holding.isdisjoint(names):
            return self._stated[0] / max(1, self._stated[1])
        found = [self._values()[name] for name in names if name in self.names]
        return float(sum(column.nbytes / max(1, len(column)) for column in found))

    def numbers(self, rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return the columns of this schema from rows that pyarrow decoded, dictionary columns as indices."""
        found = {name: rows.column(name) for name in schema.names}
        columns = [column.indices if name in self.names else column for name, column in found.items()]
        kinds = schema.types
        return pa.RecordBatch.from_arrays([as_type(*pair) for pair in zip(columns, kinds, strict=True)], schema=schema)

    def look_up(self, rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return rows with their indices joined to the dictionaries; ``schema`` has at least these columns."""
        if self.names.isdisjoint(rows.schema.names):
            return rows
        with decoding(self._file.path):
            found, schema = self._values(), pick(schema, rows.schema.names)
            columns = [
                pa.DictionaryArray.from_arrays(column, found[field.name], None, field.type.ordered)
                if field.name in found
                else column
                for field, column in zip(schema, rows.columns, strict=True)
            ]
            return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _values(self) -> dict[str, pa.Array]:
        if self.names and not self._read:  # two threads may both read; they get the same values
            with decoding(self._file.path):
                self._read = self._read_all()
        return self._read

    def _read_all(self) -> dict[str, pa.Array]:
        """Read the dictionaries by decoding a stream of the schema, the dictionaries and no rows."""
        head = self._file.read(8, schema_end(self._file) - 8) or self._schema.serialize().to_pybytes()
        none = pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in self._schema.types], schema=self._schema)
        tail = none.serialize().to_pybytes() + END_OF_STREAM
        lengths = self._blocks["metadata"].astype(np.int64) + self._blocks["body"]
        data = np.empty(len(head) + int(lengths.sum()) + len(tail), np.uint8)
        data[: len(head)] = np.frombuffer(head, np.uint8)
        data[len(data) - len(tail) :] = np.frombuffer(tail, np.uint8)
        self._file.gather(self._blocks["offset"], lengths, data, len(head) + np.cumsum(lengths) - lengths)
        with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
            batch = stream.read_next_batch()
        found = {name: batch.column(name).dictionary for name in self.names}
        for column in found.values():
            column.validate(full=True)
        return {name: as_type(column, viewless(column.type)) for name, column in found.items()}


def stated_size(file: File, offset: int, size: int, body: int, message: int = DICTIONARY) -> tuple[int, int]:
    """Return the bytes that reading a dictionary or a batch takes, and its number of values, from its metadata.

    Raises:
        CorruptFile: A buffer states an impossible decompressed size.
    """
    head = read_batch(file.read(offset, size), body, message)
    packed = [(at, length - PREFIX) for at, length in head.buffers.tolist() if head.compressed and length > PREFIX]
    places = np.array([offset + size + at for at, _ in packed], np.int64)
    stated = file.gather(places, np.full(len(packed), PREFIX)).view("<i8").tolist()
    sizes = zip((stored for _, stored in packed), stated, strict=True)
    if any(not -1 <= size <= stored * MAX_COMPRESSION_RATIO for stored, size in sizes):
        raise CorruptFile(f"{file.path}: a message of {body} bytes states {max(stated)} decompressed")
    return body + sum(max(0, size) for size in stated), head.rows


@by_schema
def _with_dictionary(schema: pa.Schema) -> tuple[frozenset[str], frozenset[str]]:
    """Return the columns that are dictionaries, and those that contain any."""
    return (
        frozenset(field.name for field in schema if pa.types.is_dictionary(field.type)),
        frozenset(field.name for field in schema if _has_dictionary(field.type)),
    )


def _has_dictionary(kind: pa.DataType) -> bool:
    """Return whether a type is or contains a dictionary."""
    return pa.types.is_dictionary(kind) or any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))
