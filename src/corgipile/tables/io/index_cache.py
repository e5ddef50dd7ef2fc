"""Indexes of files that lack one: built by one scan and stored next to the file in Arrow IPC."""

import contextlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from itertools import chain, pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, TableError
from corgipile.outputs import Kind, replacing
from corgipile.tables.checked import FileTable
from corgipile.tables.formats.arrow.file import ArrowFile
from corgipile.tables.io.files import File, decoding, describe, digest
from corgipile.tables.memory import MemoryTable
from corgipile.tables.spans import flat
from corgipile.tables.table import Table, even_cuts
from corgipile.urls import RemotePath

INDEX_SUFFIX = ".corgipile-index.arrow"
VERSION = "2"
INDEX = Kind("index", lambda _: True, follow=False, lasting=False)  # only we use this suffix
BATCH_ROWS = 1 << 16  # rows of a record batch
MAX_READ_WHOLE = 1 << 20  # bytes of an index that is read in one call
MAX_BUILT_WHOLE, MAX_IN_MEMORY = 1 << 14, 1 << 13  # bytes of files, and of indexes, whose entries stay in memory
MAX_STORED = 1000  # files of a table up to which small files have stored indexes
CACHE_VARIABLE = "CORGIPILE_CACHE"
N_SAMPLES, SAMPLE_BYTES = 16, 1 << 12  # pieces of a file that detect a change, and bytes of each
_crowded: ContextVar[bool] = ContextVar("_crowded", default=False)

Numbers = dict[str, int]
Facts = dict[str, str]  # describe the indexed state; an index with other facts is stale
Scan = Callable[[Numbers], Iterator[pa.RecordBatch]]  # yields one entry per row and fills in the numbers


def open_index(file: File, schema: pa.Schema | None, names: Sequence[str], scan: Scan) -> tuple[Table, Numbers]:
    """Return the index of a file; build it if it is missing or the file has changed.

    The index stays in memory if its folder cannot be written, or for a small file of `opening_together`.

    ``scan`` reads the file and fills in the named numbers. ``schema`` None is that of the first entry.

    Returns:
        The entries, and the numbers, ``rows`` included.
    """
    if _crowded.get() and file.size < MAX_BUILT_WHOLE and not isinstance(file.path, RemotePath):
        numbers: Numbers = {"rows": 0}
        entries = pa.Table.from_batches(scan(numbers), schema)
        if entries.nbytes <= MAX_IN_MEMORY:
            return MemoryTable(entries.combine_chunks()), numbers | {"rows": len(entries)}
    return cached_index(index_path(file), facts_of(file), schema, names, scan)


@contextlib.contextmanager
def opening_together(files: int) -> Iterator[None]:
    """Keep the indexes of small files in memory if a table has many files: storing them takes longer than a scan."""
    token = _crowded.set(files > MAX_STORED)
    try:
        yield
    finally:
        _crowded.reset(token)


def cached_index(
    path: str, facts: Facts, schema: pa.Schema | None, names: Sequence[str], scan: Scan
) -> tuple[Table, Numbers]:
    """Return the index at a path; build it if it is missing or stores other facts."""
    index = _load(path, facts, schema, names)
    if index is not None:
        return index
    small = int(facts.get("size", MAX_BUILT_WHOLE)) < MAX_BUILT_WHOLE
    built = _in_memory(facts, schema, scan) if small else None
    try:
        with replacing(path, INDEX, of=_permission_source(path)) as temporary, temporary.open("wb") as sink:
            if built is None:
                _build(sink, facts, schema, scan)
            else:
                sink.write(built[2])
    except TableError:
        raise
    except OSError:
        built = built or _in_memory(facts, schema, scan)
    if built is not None and built[2].size <= MAX_IN_MEMORY:
        return built[:2]
    index = _load(path, facts, schema, names)
    return index or (built or _in_memory(facts, schema, scan))[:2]


def _permission_source(path: str) -> Path:
    """Return the file or folder that bounds the index's permissions: the indexed file, or the cache folder."""
    name = Path(path.removesuffix(INDEX_SUFFIX))
    return next((file for file in (name, name.with_suffix("")) if file.is_file()), name.parent)


def index_path(file: File, what: str = "") -> str:
    """Return the path of a file's index: next to a local file, in the cache folder for a remote one."""
    if not isinstance(file.path, RemotePath):
        return file.path + what + INDEX_SUFFIX
    return str(cache_folder("indexes") / f"{digest(file.path.identity, file.content)}{what}{INDEX_SUFFIX}")


def cache_folder(name: str) -> Path:
    """Return, and create, a folder of the local cache, for example for the indexes of remote files.

    Its parent is the variable ``CORGIPILE_CACHE``, else ``corgipile`` in the user's cache folder.

    Raises:
        RuntimeError: No variable sets the cache folder, and the user has no home.
    """
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    default = Path(xdg if xdg.startswith("/") else "~/.cache") / "corgipile"  # XDG ignores relative paths
    folder = Path(os.environ.get(CACHE_VARIABLE) or default).expanduser().absolute() / name
    with contextlib.suppress(OSError):  # the write that follows raises
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def index_writer(table: Callable[..., FileTable]) -> Callable[..., str]:
    """Return a function that opens a file as a table, which writes its index, and returns the path of the index.

    It raises BadArgument if the index could not be written.
    """

    def write(path: str, **options: Any) -> str:
        index = index_path(table(path, **options)._file)  # noqa: SLF001 - the table's own index
        if not Path(index).exists():
            raise BadArgument(f"cannot write {index}; make its folder writable")
        return index

    return write


def load_index(file: File, schema: pa.Schema | None, names: Sequence[str]) -> tuple[Table, Numbers] | None:
    """Open a stored index; None if it is missing, damaged, of another schema, or stale."""
    return _load(index_path(file), facts_of(file), schema, names)


def _load(path: str, facts: Facts, schema: pa.Schema | None, names: Sequence[str]) -> tuple[Table, Numbers] | None:
    if not Path(path).exists():
        return None
    try:
        file = File(path)
        table: Table | None = ArrowFile(file) if file.size > MAX_IN_MEMORY else None
        # Arrow reads files in another thread, which costs more than all other work for many small indexes.
        source = pa.py_buffer(file.read(0, file.size)) if file.size <= MAX_READ_WHOLE else pa.OSFile(path)
        with decoding(path), pa.ipc.open_file(source) as reader:
            table = table or _read_entries(reader)
            _, metadata = reader.get_batch_with_custom_metadata(reader.num_record_batches - 1)
            stated = {key.decode(): value.decode() for key, value in dict(metadata or {}).items()}
            same = all(stated.get(key) == value for key, value in facts.items())
            numbers = {name: int(stated[name]) for name in ("rows", *names)}
        expected = stated.get("schema") == describe(table.schema) if schema is None else table.schema.equals(schema)
        if not same or not expected or numbers["rows"] != len(table):
            return None
        runs = pairwise(even_cuts(len(table), BATCH_ROWS).tolist())
        checksum = _Checksum(table.schema)
        checksum.add(table.read(*run) for run in runs)
    except TableError:
        return None
    return (table, numbers) if stated.get("checksum") == checksum.of(numbers) else None


def _read_entries(reader: Any) -> Table:
    rows = reader.read_all()
    rows.validate(full=True)
    return MemoryTable(rows)


class _Checksum:
    """Checksums the entries of an index by column, so that batch boundaries do not matter."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sums = [0] * len(schema)

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Add entries."""
        for batch in batches:
            arrays = (np.ascontiguousarray(items_of(column)) for column in batch.columns)
            self._sums = [zlib.crc32(array.data, known) for array, known in zip(arrays, self._sums, strict=True)]

    def of(self, numbers: Numbers) -> str:
        """Return the checksum of the entries and the numbers."""
        return " ".join(map(str, (*self._sums, zlib.crc32(str(sorted(numbers.items())).encode()))))


def items_of(column: pa.Array) -> npt.NDArray[Any]:
    """Return the numbers of an index column, whose rows are numbers or fixed-size lists."""
    return flat(column.flatten() if pa.types.is_fixed_size_list(column.type) else column)


def _in_memory(facts: Facts, schema: pa.Schema | None, scan: Scan) -> tuple[Table, Numbers, pa.Buffer]:
    """Return the entries, the numbers, and the bytes of the index."""
    sink = pa.BufferOutputStream()
    numbers, data = _build(sink, facts, schema, scan), sink.getvalue()
    with pa.ipc.open_file(data) as reader:
        return MemoryTable(reader.read_all()), numbers, data


def _build(sink: "IO[bytes] | pa.NativeFile", facts: Facts, schema: pa.Schema | None, scan: Scan) -> Numbers:
    """Write the index; the numbers, known only at the end, are the metadata of a last empty batch."""
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
            if sum(part.num_rows for part in waiting) >= BATCH_ROWS:
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
    """Return the facts that identify the current state of a file."""
    if isinstance(file.path, RemotePath):
        return {"version": VERSION, "content": file.content}
    starts = np.linspace(0, max(file.size - SAMPLE_BYTES, 0), N_SAMPLES, dtype=np.int64)
    lengths = np.minimum(SAMPLE_BYTES, file.size - starts)
    sample = zlib.crc32(file.gather(starts, lengths).data)
    return {"version": VERSION, "size": str(file.size), "mtime_ns": str(file.mtime_ns), "sample": str(sample)}
