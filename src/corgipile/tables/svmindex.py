"""The byte-offset index of an SVMlight text, kept beside it as an Arrow IPC file."""

import os
import secrets
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa

from corgipile.errors import TableError
from corgipile.tables.arrow import ArrowFile
from corgipile.tables.base import Table
from corgipile.tables.files import File, decoding
from corgipile.tables.memory import MemoryTable
from corgipile.tables.svmtext import Summary, scan

INDEX_SUFFIX = ".corgipile-index.arrow"
VERSION = "1"
SCHEMA = pa.schema([("start", pa.int64()), ("label", pa.float64())])
ROWS = 1 << 16


def open_index(file: File) -> tuple[Table, Summary]:
    """Return the index of a text and what it holds, built now if there is none or the text has changed.

    Where the folder cannot be written, the index stays in memory.
    """
    path = file.path + INDEX_SUFFIX
    found = _load(path, file)
    if found is not None:
        return found
    temporary = f"{path}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
    try:
        with Path(temporary).open("xb") as sink:
            _build(sink, file)
            sink.flush()
            os.fsync(sink.fileno())
        Path(temporary).replace(path)
    except TableError:
        Path(temporary).unlink(missing_ok=True)
        raise
    except OSError:
        Path(temporary).unlink(missing_ok=True)
    else:
        found = _load(path, file)
    return found or _in_memory(file)


def _in_memory(file: File) -> tuple[Table, Summary]:
    sink = pa.BufferOutputStream()
    summary = _build(sink, file)
    with pa.ipc.open_file(sink.getvalue()) as reader:
        return MemoryTable(reader.read_all()), summary


def _build(sink: "IO[bytes] | pa.NativeFile", file: File) -> Summary:
    """Write the index; what is known only at the end is the metadata of a last batch without rows."""
    summary = Summary()
    with pa.ipc.new_file(sink, SCHEMA) as writer:
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for starts, labels in scan(file.path, summary):
            waiting.append(pa.record_batch([starts, labels], schema=SCHEMA))
            rows += len(starts)
            if rows >= ROWS:
                writer.write_table(pa.Table.from_batches(waiting).combine_chunks())
                waiting, rows = [], 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting).combine_chunks())
        last = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in SCHEMA], schema=SCHEMA)
        writer.write_batch(last, custom_metadata=_metadata(file, summary))
    return summary


def _metadata(file: File, summary: Summary) -> dict[str, str]:
    line, column = summary.zero or (0, 0)
    numbers = {"rows": summary.rows, "largest": summary.largest, "zero_line": line, "zero_column": column}
    return {**_identity(file), **{name: str(value) for name, value in numbers.items()}}


def _identity(file: File) -> dict[str, str]:
    return {"version": VERSION, "size": str(file.size), "mtime_ns": str(file.mtime_ns)}


def _load(path: str, file: File) -> tuple[Table, Summary] | None:
    """Open a stored index; None if there is none, or not of this state of the text."""
    if not Path(path).exists():
        return None
    try:
        table = ArrowFile(path)
        with decoding(path), pa.ipc.open_file(pa.OSFile(path)) as reader:
            _, metadata = reader.get_batch_with_custom_metadata(reader.num_record_batches - 1)
            stated = {key.decode(): value.decode() for key, value in dict(metadata or {}).items()}
            numbers = [int(stated[name]) for name in ("rows", "largest", "zero_line", "zero_column")]
    except TableError:
        return None
    same = table.schema.equals(SCHEMA) and all(stated.get(key) == value for key, value in _identity(file).items())
    if not same or numbers[0] != len(table):
        return None
    return table, Summary(numbers[0], numbers[1], (numbers[2], numbers[3]) if numbers[2] else None)


def row_bytes_of(index: Table, start: int, stop: int, size: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return where rows begin in the text, and where the last one ends."""
    ends_text = stop == len(index)
    starts = index.read(start, stop if ends_text else stop + 1, ["start"]).column(0).to_numpy()
    return np.append(starts, size) if ends_text else starts
