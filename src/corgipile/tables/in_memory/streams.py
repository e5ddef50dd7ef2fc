"""Tables of record batch streams: in memory up to a limit, beyond it in a spill file."""

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema, CorgiPileError, ReadFailed
from corgipile.tables.formats.arrow.file import ArrowFile
from corgipile.tables.formats.arrow.writer import plain
from corgipile.tables.in_memory import frames
from corgipile.tables.io.files import decoding, describe
from corgipile.tables.io.spill import IN_MEMORY, Section, Spill, SpillFile, SpillWriter, spill_folder
from corgipile.tables.memory import MemoryTable, sampled_fingerprint
from corgipile.tables.table import Table

__all__ = ["SpilledTable", "of_batches", "of_reader"]

MAGIC_BYTES = 8  # bytes before the stream in an Arrow file
JOINED_BYTES = 1 << 20  # bytes to which small batches are joined


def of_reader(reader: Any, name: str, spill: Spill = None, most: int | None = None) -> Table:
    """Return the table of a ``pyarrow.RecordBatchReader``, which is read to its end.

    Args:
        reader: The rows.
        name: Name for error messages.
        spill: Folder for spill files, or ``"off"``.
        most: Bytes beyond which rows are spilled; None: 64 MB.

    Example:
        >>> rows = pa.table({"x": [1, 2]})
        >>> of_reader(rows.to_reader(), "rows").read(0, 2).to_pydict()
        {'x': [1, 2]}
    """
    return _collect(reader.schema, _guard_errors(reader, name), name, spill, most)


def of_batches(parts: Iterable[Any], name: str, spill: Spill = None) -> Table:
    """Return the table of an iterator of record batches or tables with equal columns.

    Raises:
        BadArgument: It yields something else, or nothing.
        BadSchema: An item has other columns than the first.

    Example:
        >>> of_batches((pa.record_batch({"x": [i]}) for i in range(3)), "a generator").read(1, 3).to_pydict()
        {'x': [1, 2]}
    """
    items = iter(parts)
    first = next(items, None)
    if first is None:
        raise BadArgument(f"{name} must yield at least one record batch, got none")
    schema = _rows(first, name, 0).schema
    numbered = enumerate(itertools.chain([first], items))
    return _collect(schema, (batch for i, part in numbered for batch in _batches(part, schema, name, i)), name, spill)


def _rows(part: Any, name: str, number: int) -> pa.Table:
    if isinstance(part, pa.RecordBatch):
        return pa.Table.from_batches([part])
    if isinstance(part, pa.Table):
        return part
    raise BadArgument(f"{name} must yield record batches of pyarrow, got a {type(part).__name__} as item {number}")


def _batches(part: Any, schema: pa.Schema, name: str, number: int) -> list[pa.RecordBatch]:
    rows = _rows(part, name, number)
    if rows.schema.names != schema.names or rows.schema.types != schema.types:
        raise BadSchema(
            f"{name} must yield equal columns, {describe(schema)}, got {describe(rows.schema)} as item {number}"
        )
    return list(rows.cast(schema).to_batches())


def _guard_errors(batches: Iterable[pa.RecordBatch], name: str) -> Iterator[pa.RecordBatch]:
    """Turn the producer's errors into ReadFailed."""
    try:
        yield from batches
    except CorgiPileError:
        raise
    except (pa.ArrowException, OSError, RuntimeError) as error:
        raise ReadFailed(5, f"{name} failed: {(str(error).splitlines() or ['?'])[0][:300]}") from error


def _collect(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], name: str, spill: Spill, most: int | None = None
) -> Table:
    """Collect rows in memory; beyond the limit write all of them to a spill file, unless spill files are off."""
    parts, folder = _join_small(batches, schema), spill_folder(spill)
    pending: list[pa.Table] = []
    size = 0
    for part in parts:
        pending.append(part)
        size += part.nbytes
        if size > (IN_MEMORY if most is None else most) and folder is not None:
            return _spill(itertools.chain(_drain(pending), parts), name, folder)
    return MemoryTable(pa.concat_tables([_decode(schema.empty_table()), *pending]))


def _join_small(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Join small batches; replace dictionaries and views by their values."""
    small: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        small.append(batch)
        size += batch.nbytes
        if size > JOINED_BYTES:
            yield _concat(small, schema)
            small.clear()
            size = 0
    if small:
        yield _concat(small, schema)


def _concat(small: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    rows = pa.Table.from_batches(small, schema)
    return _decode(rows if len(small) == 1 else rows.combine_chunks())


def _decode(rows: pa.Table) -> pa.Table:
    rows = frames.plain(rows)
    return rows.cast(plain(rows.schema)) if plain(rows.schema) != rows.schema else rows


def _drain(parts: list[pa.Table]) -> Iterator[pa.Table]:
    while parts:
        yield parts.pop(0)


def _spill(parts: Iterator[pa.Table], name: str, folder: Path) -> "SpilledTable":
    first = next(parts)
    with SpillWriter(folder) as out:
        with out.section(), pa.ipc.new_file(out, first.schema) as file:
            for part in itertools.chain([first], parts):
                file.write_table(part)
        return SpilledTable(next(out.finish().sections()), name)


class SpilledTable(ArrowFile):
    """Rows of a stream in a spill file that lives as long as the table; pickles work on the same machine only.

    Args:
        section: The section with the rows.
        name: Name of the stream.
    """

    def __init__(self, section: Section, name: str) -> None:
        self._section, self._name = section, name
        with decoding(f"the spill file of {name}"):
            super().__init__(section, "off")

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        where = f"/proc/{os.getpid()}/fd/{self._section.spill.descriptor}"
        return _adopt, (where, tuple(self._section.which), self._section.base, self._section.size, self._name)

    def __repr__(self) -> str:
        return f"SpilledTable({len(self)} rows of {self._name})"

    def stream(self) -> pa.NativeFile:
        """Return the rows as an Arrow stream, which an Arrow file contains after its first bytes."""
        file = pa.OSFile(self._section.path)
        file.seek(self._section.base + MAGIC_BYTES)
        return file

    @property
    def fingerprint(self) -> str:
        """Return a digest of schema, number of rows, and the content of sampled rows."""
        return sampled_fingerprint(self)


def _adopt(where: str, which: tuple[int, ...], base: int, size: int, name: str) -> SpilledTable:
    """Open the spill file of the process that pickled the table."""
    try:
        file = SpillFile(os.open(where, os.O_RDONLY | os.O_CLOEXEC))
        section = Section(file, base, size)
    except OSError as error:
        raise ReadFailed(error.errno or 0, _gone(name)) from None
    if tuple(section.which) != which:
        raise ReadFailed(0, _gone(name))
    return SpilledTable(section, name)


def _gone(name: str) -> str:
    return (
        f"the rows of {name} are lost: the process that opened them has ended, and its spill file with it; write "
        "rows that are needed later to a file with corgipile.convert(rows, 'rows.arrow')"
    )
