"""Indexes of files that have none: built by one scan, kept beside the file as an Arrow IPC file."""

import contextlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, TableError
from corgipile.outputs import Kind, replacing
from corgipile.stores.urls import RemotePath
from corgipile.tables.arrow.file import ArrowFile
from corgipile.tables.arrow.spans import flat
from corgipile.tables.io.files import File, decoding, describe, digest
from corgipile.tables.memory import MemoryTable
from corgipile.tables.table import Table, even_cuts

INDEX_SUFFIX = ".corgipile-index.arrow"
VERSION = "2"
INDEX = Kind("index", lambda _: True, follow=False)  # its name is ours
ROWS = 1 << 16
LITTLE = 1 << 20  # bytes of an index that is read whole
VARIABLE = "CORGIPILE_CACHE"
SAMPLES, SAMPLE = 16, 1 << 12  # pieces of a file, and bytes of each, by which it is told from another of its size

Numbers = dict[str, int]
Facts = dict[str, str]  # of what an index is of: it is that of another state if one of them is another
Scan = Callable[[Numbers], Iterator[pa.RecordBatch]]  # yields entries, one a row, and fills in what it learns


def open_index(file: File, schema: pa.Schema | None, names: Sequence[str], scan: Scan) -> tuple[Table, Numbers]:
    """Return the index of a file, built now if there is none or the file has changed.

    Where the folder cannot be written, the index stays in memory.

    Args:
        file: The file.
        schema: What is kept of each row; None: what the first of the entries, of which there is one, says.
        names: The numbers that the scan fills in.
        scan: Reads the file.

    Returns:
        The entries, and the numbers; ``rows`` is among them.
    """
    return kept_index(index_path(file), facts_of(file), schema, names, scan)


def kept_index(
    path: str, facts: Facts, schema: pa.Schema | None, names: Sequence[str], scan: Scan
) -> tuple[Table, Numbers]:
    """Do the same for an index that is kept at a path as long as these facts are true."""
    found = _load(path, facts, schema, names)
    if found is not None:
        return found
    try:
        with replacing(path, INDEX, of=_described(path)) as temporary, temporary.open("wb") as sink:
            _build(sink, facts, schema, scan)
    except TableError:
        raise
    except OSError:
        return _in_memory(facts, schema, scan)
    found = _load(path, facts, schema, names)
    return found or _in_memory(facts, schema, scan)


def _described(path: str) -> Path:
    """Return the file or folder whose permissions bound an index's: the file indexed, or the cache folder."""
    name = Path(path.removesuffix(INDEX_SUFFIX))
    return next((file for file in (name, name.with_suffix("")) if file.is_file()), name.parent)


def index_path(file: File, what: str = "") -> str:
    """Return where the index of a file is kept: beside it, or on this machine if it lies elsewhere."""
    if not isinstance(file.path, RemotePath):
        return file.path + what + INDEX_SUFFIX
    return str(cache_folder("indexes") / f"{digest(file.path.identity, file.content)}{what}{INDEX_SUFFIX}")


def cache_folder(name: str) -> Path:
    """Return a folder for what is kept on this machine, such as the indexes of files that lie elsewhere; it is made.

    It is in what the variable ``CORGIPILE_CACHE`` says, else in ``corgipile`` in the user's folder for caches.

    Raises:
        RuntimeError: Nothing says where that is, and the user has no home.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    usual = Path(given if given.startswith("/") else "~/.cache") / "corgipile"  # a relative one counts for nothing
    folder = Path(os.environ.get(VARIABLE) or usual).expanduser().absolute() / name
    with contextlib.suppress(OSError):  # who writes there learns of it
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def kept_path(file: File) -> str:
    """Return where the index of a file lies that was opened.

    Raises:
        BadArgument: It could not be written.
    """
    path = index_path(file)
    if not Path(path).exists():
        raise BadArgument(f"cannot write {path}; a folder that can be written is needed")
    return path


def load_index(file: File, schema: pa.Schema | None, names: Sequence[str]) -> tuple[Table, Numbers] | None:
    """Open a stored index; None if there is none, or it is damaged, of another kind or of another state of the file."""
    return _load(index_path(file), facts_of(file), schema, names)


def _load(path: str, facts: Facts, schema: pa.Schema | None, names: Sequence[str]) -> tuple[Table, Numbers] | None:
    if not Path(path).exists():
        return None
    try:
        file = File(path)
        table = ArrowFile(file)
        # Arrow reads files in a thread of its own, which takes longer than all the rest where there are many.
        source = pa.py_buffer(file.read(0, file.size)) if file.size <= LITTLE else pa.OSFile(path)
        with decoding(path), pa.ipc.open_file(source) as reader:
            _, metadata = reader.get_batch_with_custom_metadata(reader.num_record_batches - 1)
            stated = {key.decode(): value.decode() for key, value in dict(metadata or {}).items()}
            same = all(stated.get(key) == value for key, value in facts.items())
            numbers = {name: int(stated[name]) for name in ("rows", *names)}
        expected = stated.get("schema") == describe(table.schema) if schema is None else table.schema.equals(schema)
        if not same or not expected or numbers["rows"] != len(table):
            return None
        runs = pairwise(even_cuts(len(table), ROWS).tolist())
        checksum = _Checksum(table.schema)
        checksum.add(table.read(*run) for run in runs)
    except TableError:
        return None
    return (table, numbers) if stated.get("checksum") == checksum.of(numbers) else None


class _Checksum:
    """Sums up the entries of an index, column by column, so that it does not matter where batches end."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sums = [0] * len(schema)

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take more entries."""
        for batch in batches:
            arrays = (np.ascontiguousarray(items_of(column)) for column in batch.columns)
            self._sums = [zlib.crc32(array.data, known) for array, known in zip(arrays, self._sums, strict=True)]

    def of(self, numbers: Numbers) -> str:
        """Return the checksum of the entries and the numbers."""
        return " ".join(map(str, (*self._sums, zlib.crc32(str(sorted(numbers.items())).encode()))))


def items_of(column: pa.Array) -> npt.NDArray[Any]:
    """Return the numbers of a column of an index, of which each row is one, or a list of so many."""
    return flat(column.flatten() if pa.types.is_fixed_size_list(column.type) else column)


def _in_memory(facts: Facts, schema: pa.Schema | None, scan: Scan) -> tuple[Table, Numbers]:
    sink = pa.BufferOutputStream()
    numbers = _build(sink, facts, schema, scan)
    with pa.ipc.open_file(sink.getvalue()) as reader:
        return MemoryTable(reader.read_all()), numbers


def _build(sink: "IO[bytes] | pa.NativeFile", facts: Facts, schema: pa.Schema | None, scan: Scan) -> Numbers:
    """Write the index; what is known only at the end is the metadata of a last batch without rows."""
    numbers: Numbers = {"rows": 0}
    batches = scan(numbers)
    if schema is None:
        first = next(batches)
        schema, batches = first.schema, chain([first], batches)
    checksum = _Checksum(schema)
    with pa.ipc.new_file(sink, schema) as writer:
        waiting: list[pa.RecordBatch] = []
        for batch in batches:
            waiting.append(batch)
            checksum.add([batch])
            numbers["rows"] += batch.num_rows
            if sum(part.num_rows for part in waiting) >= ROWS:
                writer.write_table(pa.Table.from_batches(waiting).combine_chunks())
                waiting = []
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting).combine_chunks())
        last = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
        known = {name: str(value) for name, value in numbers.items()}
        stated = {**facts, **known, "schema": describe(schema), "checksum": checksum.of(numbers)}
        writer.write_batch(last, custom_metadata=stated)
    return numbers


def facts_of(file: File) -> Facts:
    """Return what tells the state of a file from others of it."""
    if isinstance(file.path, RemotePath):
        return {"version": VERSION, "content": file.content}
    starts = np.linspace(0, max(file.size - SAMPLE, 0), SAMPLES, dtype=np.int64)
    lengths = np.minimum(SAMPLE, file.size - starts)
    sample = zlib.crc32(file.gather(starts, lengths).data)
    return {"version": VERSION, "size": str(file.size), "mtime_ns": str(file.mtime_ns), "sample": str(sample)}
