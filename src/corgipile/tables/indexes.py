"""Indexes of files that have none: built by one scan, kept beside the file as an Arrow IPC file."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import pyarrow as pa

from corgipile.errors import TableError
from corgipile.outputs import Kind, replacing
from corgipile.tables.arrow import ArrowFile
from corgipile.tables.base import Table
from corgipile.tables.files import File, decoding
from corgipile.tables.memory import MemoryTable

INDEX_SUFFIX = ".corgipile-index.arrow"
VERSION = "1"
INDEX = Kind("index", lambda _: True, follow=False)  # its name is ours
ROWS = 1 << 16

Numbers = dict[str, int]
Scan = Callable[[Numbers], Iterator[pa.RecordBatch]]  # yields entries, one a row, and fills in what it learns


def open_index(file: File, schema: pa.Schema, names: Sequence[str], scan: Scan) -> tuple[Table, Numbers]:
    """Return the index of a file, built now if there is none or the file has changed.

    Where the folder cannot be written, the index stays in memory.

    Args:
        file: The file.
        schema: What is kept of each row.
        names: The numbers that the scan fills in.
        scan: Reads the file.

    Returns:
        The entries, and the numbers; ``rows`` is among them.
    """
    found = load_index(file, schema, names)
    if found is not None:
        return found
    try:
        with replacing(index_path(file), INDEX) as temporary, temporary.open("wb") as sink:
            _build(sink, file, schema, scan)
    except TableError:
        raise
    except OSError:
        return _in_memory(file, schema, scan)
    found = load_index(file, schema, names)
    return found or _in_memory(file, schema, scan)


def index_path(file: File) -> str:
    """Return where the index of a file is kept."""
    return file.path + INDEX_SUFFIX


def load_index(file: File, schema: pa.Schema, names: Sequence[str]) -> tuple[Table, Numbers] | None:
    """Open a stored index; None if there is none, or it is damaged or of another state of the file."""
    path = index_path(file)
    if not Path(path).exists():
        return None
    try:
        table = ArrowFile(path)
        with decoding(path), pa.ipc.open_file(pa.OSFile(path)) as reader:
            _, metadata = reader.get_batch_with_custom_metadata(reader.num_record_batches - 1)
            stated = {key.decode(): value.decode() for key, value in dict(metadata or {}).items()}
            same = all(stated.get(key) == value for key, value in _identity(file).items())
            numbers = {name: int(stated[name]) for name in ("rows", *names)}
    except TableError:
        return None
    if not same or not table.schema.equals(schema) or numbers["rows"] != len(table):
        return None
    return table, numbers


def _in_memory(file: File, schema: pa.Schema, scan: Scan) -> tuple[Table, Numbers]:
    sink = pa.BufferOutputStream()
    numbers = _build(sink, file, schema, scan)
    with pa.ipc.open_file(sink.getvalue()) as reader:
        return MemoryTable(reader.read_all()), numbers


def _build(sink: "IO[bytes] | pa.NativeFile", file: File, schema: pa.Schema, scan: Scan) -> Numbers:
    """Write the index; what is known only at the end is the metadata of a last batch without rows."""
    numbers: Numbers = {"rows": 0}
    with pa.ipc.new_file(sink, schema) as writer:
        waiting: list[pa.RecordBatch] = []
        for batch in scan(numbers):
            waiting.append(batch)
            numbers["rows"] += batch.num_rows
            if sum(part.num_rows for part in waiting) >= ROWS:
                writer.write_table(pa.Table.from_batches(waiting).combine_chunks())
                waiting = []
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting).combine_chunks())
        last = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
        stated = {**_identity(file), **{name: str(value) for name, value in numbers.items()}}
        writer.write_batch(last, custom_metadata=stated)
    return numbers


def _identity(file: File) -> dict[str, str]:
    return {"version": VERSION, "size": str(file.size), "mtime_ns": str(file.mtime_ns)}
