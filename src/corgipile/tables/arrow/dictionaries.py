"""Dictionary columns of Arrow IPC files: rows are numbers that say which value they have, of a dictionary read once."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import CorruptFile
from corgipile.tables.arrow.flatbuffers import DICTIONARY, MOST_COMPRESSION, read_batch
from corgipile.tables.arrow.footer import schema_end
from corgipile.tables.io.files import File, decoding
from corgipile.tables.io.pieces import pick
from corgipile.tables.values import as_type, viewless

__all__ = ["Dictionaries", "index_schema"]

LARGE = 8 << 20  # bytes of dictionaries that are not read to learn how many they are
PREFIX = 8  # bytes before a compressed buffer, which state its size
END = b"\xff\xff\xff\xff\0\0\0\0"  # of a stream


def index_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema of rows before they are looked up: numbers where there are dictionaries, and no views.

    Example:
        >>> index_schema(pa.schema({"city": pa.dictionary(pa.int8(), pa.string())})).types
        [DataType(int8)]
    """
    kinds = [kind.index_type if pa.types.is_dictionary(kind) else viewless(kind) for kind in schema.types]
    fields = [field.with_type(kind) for field, kind in zip(schema, kinds, strict=True)]
    return pa.schema(fields, metadata=schema.metadata)


class Dictionaries:
    """Reads the dictionaries of a file when they are first needed, all of them, once for all rows.

    Args:
        file: The file.
        blocks: Where they lie, as the footer says.
        schema: The schema as it is stored.
    """

    def __init__(self, file: File, blocks: npt.NDArray[np.void], schema: pa.Schema) -> None:
        self._file, self._blocks, self._schema = file, blocks, schema
        self.names = frozenset(field.name for field in schema if pa.types.is_dictionary(field.type))
        self._holding = frozenset(field.name for field in schema if _has_dictionary(field.type))
        self._read: dict[str, pa.Array] = {}

    def __bool__(self) -> bool:
        """Say whether the file has any, also inside lists and structures."""
        return len(self._blocks) > 0

    def nbytes(self, names: Sequence[str]) -> int:
        """Return the bytes that are held for these columns, whatever the rows: of all dictionaries or none."""
        if self.large and not self._holding.isdisjoint(names):
            return self._stated[0]
        return 0 if self.names.isdisjoint(names) else sum(int(column.nbytes) for column in self._values().values())

    @property
    def large(self) -> bool:
        """Return whether the dictionaries are not read to learn how large they are."""
        return self._stated[0] > LARGE

    @cached_property
    def _stated(self) -> tuple[int, int]:
        """Return the bytes that reading the dictionaries takes, packed and unpacked, and their values, by their heads.

        Raises:
            CorruptFile: A buffer claims more than its bytes can unpack to.
        """
        total, values = int(self._blocks["body"].sum()), 0
        for offset, size, _, body in self._blocks.tolist():
            head = read_batch(self._file.read(offset, size), body, DICTIONARY)
            packed = [(at, length - PREFIX) for at, length in head.buffers if head.compressed and length > PREFIX]
            places = np.array([offset + size + at for at, _ in packed], np.int64)
            stated = self._file.gather(places, np.full(len(packed), PREFIX)).view("<i8").tolist()
            sizes = zip((stored for _, stored in packed), stated, strict=True)
            if any(not -1 <= said <= stored * MOST_COMPRESSION for stored, said in sizes):
                raise CorruptFile(f"{self._file.path}: a dictionary of {body} bytes claims {max(stated)} decompressed")
            total, values = total + sum(max(0, said) for said in stated), values + head.rows
        return total, values

    def mean_bytes(self, names: Sequence[str]) -> float:
        """Return the bytes by which a row's values of these columns exceed its numbers, were all values as frequent."""
        if self.large and not self._holding.isdisjoint(names):
            return self._stated[0] / max(1, self._stated[1])
        found = [self._values()[name] for name in names if name in self.names]
        return float(sum(column.nbytes / max(1, len(column)) for column in found))

    def numbers(self, rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return rows as pyarrow reads them, those columns of them that this schema has, before they are looked up."""
        found = {name: rows.column(name) for name in schema.names}
        columns = [column.indices if name in self.names else column for name, column in found.items()]
        kinds = schema.types
        return pa.RecordBatch.from_arrays([as_type(*pair) for pair in zip(columns, kinds, strict=True)], schema=schema)

    def look_up(self, rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return rows whose numbers are joined with their dictionaries; the schema has these columns, and more."""
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
        if self.names and not self._read:  # two threads may both read: what they find is the same
            with decoding(self._file.path):
                self._read = self._read_all()
        return self._read

    def _read_all(self) -> dict[str, pa.Array]:
        """Read a stream of the schema, the dictionaries, and no rows."""
        head = self._file.read(8, schema_end(self._file) - 8) or self._schema.serialize().to_pybytes()
        none = pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in self._schema.types], schema=self._schema)
        tail = none.serialize().to_pybytes() + END
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


def _has_dictionary(kind: pa.DataType) -> bool:
    """Return whether a type is a dictionary, or holds one."""
    return pa.types.is_dictionary(kind) or any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))
