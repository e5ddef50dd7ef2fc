"""Streams of record batches: kept in memory while they are few, else laid out in a spill file."""

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema, CorgiPileError, ReadFailed
from corgipile.tables.arrow.file import ArrowFile
from corgipile.tables.arrow.writer import plain
from corgipile.tables.in_memory import frames
from corgipile.tables.io.files import decoding, describe
from corgipile.tables.io.spill import IN_MEMORY, Section, Spill, SpillFile, SpillWriter, spill_folder
from corgipile.tables.memory import MemoryTable, sampled_fingerprint
from corgipile.tables.table import Table

__all__ = ["SpilledTable", "of_batches", "of_reader"]

MAGIC = 8  # bytes before the stream in a file
TOGETHER = 1 << 20  # bytes that small batches are joined to


def of_reader(reader: Any, name: str, spill: Spill = None, most: int | None = None) -> Table:
    """Make a table of a ``pyarrow.RecordBatchReader``, which is read to its end.

    Args:
        reader: The rows.
        name: What they are.
        spill: Folder for spill files, or ``"off"``.
        most: Bytes beyond which rows are spilled; None: 64 MB.

    Example:
        >>> rows = pa.table({"x": [1, 2]})
        >>> of_reader(rows.to_reader(), "rows").read(0, 2).to_pydict()
        {'x': [1, 2]}
    """
    return _collected(reader.schema, _guarded(reader, name), name, spill, most)


def of_batches(parts: Iterable[Any], name: str, spill: Spill = None) -> Table:
    """Make a table of an iterator of record batches or tables, all of the columns of the first.

    Raises:
        BadArgument: It yields something else, or nothing.
        BadSchema: One has other columns than the first.

    Example:
        >>> of_batches((pa.record_batch({"x": [i]}) for i in range(3)), "a generator").read(1, 3).to_pydict()
        {'x': [1, 2]}
    """
    coming = iter(parts)
    first = next(coming, None)
    if first is None:
        raise BadArgument(f"{name} yielded nothing, so its columns are not known; one record batch at least is needed")
    schema = _rows(first, name, 0).schema
    numbered = enumerate(itertools.chain([first], coming))
    return _collected(schema, (batch for i, part in numbered for batch in _batches(part, schema, name, i)), name, spill)


def _rows(part: Any, name: str, number: int) -> pa.Table:
    if isinstance(part, pa.RecordBatch):
        return pa.Table.from_batches([part])
    if isinstance(part, pa.Table):
        return part
    raise BadArgument(f"{name} yielded a {type(part).__name__} as item {number}; record batches of pyarrow are needed")


def _batches(part: Any, schema: pa.Schema, name: str, number: int) -> list[pa.RecordBatch]:
    rows = _rows(part, name, number)
    if rows.schema.names != schema.names or rows.schema.types != schema.types:
        raise BadSchema(f"{name} yielded {describe(rows.schema)} as item {number}; the first was {describe(schema)}")
    return list(rows.cast(schema).to_batches())


def _guarded(batches: Iterable[pa.RecordBatch], name: str) -> Iterator[pa.RecordBatch]:
    """Let what a producer raises be told from what we do."""
    try:
        yield from batches
    except CorgiPileError:
        raise
    except (pa.ArrowException, OSError, RuntimeError) as error:
        raise ReadFailed(5, f"{name} failed: {(str(error).splitlines() or ['?'])[0][:300]}") from error


def _collected(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], name: str, spill: Spill, most: int | None = None
) -> Table:
    """Keep rows in memory up to a bound; beyond it write all of them to a spill file, unless there shall be none."""
    parts, folder = _joined(batches, schema), spill_folder(spill)
    waiting: list[pa.Table] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += part.nbytes
        if size > (IN_MEMORY if most is None else most) and folder is not None:
            return _spilled(itertools.chain(_drained(waiting), parts), name, folder)
    return MemoryTable(pa.concat_tables([_decoded(schema.empty_table()), *waiting]))


def _joined(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Join batches, of which some producers make many small ones; values stand for dictionaries and views."""
    few: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        few.append(batch)
        size += batch.nbytes
        if size > TOGETHER:
            yield _as_one(few, schema)
            few.clear()
            size = 0
    if few:
        yield _as_one(few, schema)


def _as_one(few: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    rows = pa.Table.from_batches(few, schema)
    return _decoded(rows if len(few) == 1 else rows.combine_chunks())


def _decoded(rows: pa.Table) -> pa.Table:
    rows = frames.plain(rows)
    return rows.cast(plain(rows.schema)) if plain(rows.schema) != rows.schema else rows


def _drained(parts: list[pa.Table]) -> Iterator[pa.Table]:
    while parts:
        yield parts.pop(0)


def _spilled(parts: Iterator[pa.Table], name: str, folder: Path) -> "SpilledTable":
    first = next(parts)
    with SpillWriter(folder) as out:
        with out.section(), pa.ipc.new_file(out, first.schema) as file:
            for part in itertools.chain([first], parts):
                file.write_table(part)
        return SpilledTable(next(out.finish().sections()), name)


class SpilledTable(ArrowFile):
    """Rows of a stream in a spill file, which goes with the table; pickled, it is for processes of the same machine.

    Args:
        section: Where they lie.
        name: What they were.
    """

    def __init__(self, section: Section, name: str) -> None:
        self._section, self._name = section, name
        with decoding(f"the spill file of {name}"):
            super().__init__(section, "off")

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        where = f"/proc/{os.getpid()}/fd/{self._section.spill.descriptor}"
        return _adopted, (where, tuple(self._section.which), self._section.base, self._section.size, self._name)

    def __repr__(self) -> str:
        return f"SpilledTable({len(self)} rows of {self._name})"

    def stream(self) -> pa.NativeFile:
        """Return the rows as a stream of Arrow: a file of it is one, but for its first bytes and its end."""
        file = pa.OSFile(self._section.path)
        file.seek(self._section.base + MAGIC)
        return file

    @property
    def fingerprint(self) -> str:
        """Return the identity, as of rows in memory: schema, number of rows, and the content of some of them."""
        return sampled_fingerprint(self)


def _adopted(where: str, which: tuple[int, ...], base: int, size: int, name: str) -> SpilledTable:
    """Open the file that the process which pickled a table has open."""
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
        f"the rows of {name} lie in a spill file of the process that opened them, which is gone; to use them later "
        "write them to a file: corgipile.convert(rows, 'rows.arrow')"
    )
