"""Decoded sizes of the columns and row groups of a Parquet file, from its footer, page headers and first rows."""

import itertools
from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.tables.checked import Checked
from corgipile.tables.encoded import SMALL, Units, units_of
from corgipile.tables.even_lists import even_length
from corgipile.tables.formats.parquet import categories as coding
from corgipile.tables.formats.parquet import pages
from corgipile.tables.formats.parquet.lengths import Lengths
from corgipile.tables.io.files import File
from corgipile.tables.io.pieces import Recent
from corgipile.tables.table import IntArray
from corgipile.tables.values import values

__all__ = ["SAMPLE_BYTES", "ParquetSizes"]

SAMPLE_BYTES = 1 << 20
MAX_REPEATS = 8  # plausible bytes of rows per byte of the first ones
LEVEL_BYTES, MAX_WORST_BYTES = 4, 16 << 20  # bytes a row for nulls; a row group of longest values in memory
WIDER = 2  # how much wider the rows of a row group are before its column chunks are measured


class ParquetSizes(Checked):
    """Measures the columns of `ParquetTable`."""

    _file: File
    _metadata: Any  # the footer
    _starts: IntArray
    _bytes: list[int]  # encoded bytes of row groups
    _chunks: dict[str, range]
    _bits: dict[str, int]

    def __init__(self) -> None:
        self._widths, self._dictionaries = Recent[float](1 << 16), Recent[int](1 << 16)
        self._wider = Recent[dict[int, int]](1 << 16)
        self._units = Recent[Units | None](8)
        self._lengths = Recent[list[Lengths]](1 << 12)
        self._in_pages = Recent[int](1 << 16)

    def _head(self, group: int, name: str) -> pa.RecordBatch | None:
        """Decode the first rows of a column of a row group."""
        raise NotImplementedError

    def units(self, columns: Sequence[str]) -> Units | None:
        """Return the decoded sizes of row groups; columns of varying length are estimated."""
        names = tuple(dict.fromkeys(columns))
        return self._units.get(names, lambda: self._find_units(names))

    def _find_units(self, names: Sequence[str]) -> Units | None:
        counts, bits = np.diff(self._starts), self._bits
        exact = counts * sum(bits[name] / 8 for name in names)
        found = units_of(counts, sum((self._group_bytes(name) for name in names if not bits[name]), start=exact))
        return found and found._replace(dictionary=max(map(self._dictionary, names), default=0))

    def longest_row(self, columns: Sequence[str]) -> int:
        """Return the mean bytes of a row of columns of varying length in the row group where it is largest."""
        counts, varying = np.diff(self._starts), [name for name in dict.fromkeys(columns) if not self._bits[name]]
        if not len(self) or not varying:
            return 0
        return int((sum(map(self._group_bytes, varying)) / np.maximum(1, counts)).max())

    def _group_bytes(self, name: str) -> npt.NDArray[np.float64]:
        """Return the decoded bytes of a column of varying length in each row group.

        The width is that of the group with the most rows. Lists, and groups whose rows are wider, have at least the
        bytes that their column chunks state.
        """
        sizes = np.diff(self._starts) * self._width(name)
        wider = self._wider.get(name, lambda: self._find_wider(name, sizes) if len(self) else {})
        sizes[list(wider)] = list(wider.values())
        return sizes

    def _find_wider(self, name: str, sizes: npt.NDArray[np.float64]) -> dict[int, int]:
        """Return the decoded bytes of the row groups where a column takes more than its width."""
        counts = np.diff(self._starts)
        widths = np.array(self._bytes) / np.maximum(1, counts)
        lists = self._metadata.schema.column(self._chunks[name].start).max_repetition_level
        groups = np.flatnonzero(counts if lists else widths > WIDER * widths[counts.argmax()]).tolist()
        stated = {group: sum(map(pages.chunk_bytes, self._chunks_of(group, name))) for group in groups}
        return {group: nbytes for group, nbytes in stated.items() if nbytes > sizes[group]}

    def list_width(self, name: str) -> int | None:
        """Return the length of a list column's rows if the first rows and the value counts of row groups agree."""
        groups = np.flatnonzero(np.diff(self._starts)).tolist()
        first = self._head(groups[0], name) if groups else None
        width = None if first is None else even_length(first.column(0))
        counts = [self._metadata.row_group(i).column(self._chunks[name][0]).num_values for i in groups]
        agree = width is not None and (np.array(counts) == np.diff(self._starts)[groups] * width).all()
        return width if agree else None

    def _width(self, name: str) -> float:
        """Return the decoded bytes of a column per row."""
        bits = self._bits[name]
        return bits / 8 if bits or not len(self) else self._widths.get(name, lambda: self._estimate_width(name))

    def _estimate_width(self, name: str) -> float:
        group = int(np.diff(self._starts).argmax())
        rows = int(self._starts[group + 1] - self._starts[group])
        chunks, large = self._chunks_of(group, name), self._dictionary(name)
        coded = coding.coded_width(self._file, chunks, rows)
        if large and any(chunk.has_dictionary_page for chunk in chunks):  # finding its longest value decodes it
            return coded
        plain = sum(one.total for one in self._row_lengths(group, [name])) / rows
        if large or (coded := max(plain, coded)) > SAMPLE_BYTES:  # a sample would decode too much
            return max(plain, coded)
        first = self._head(group, name)
        sampled: float = values(first).nbytes / max(first.num_rows, 1) if first is not None else 0.0
        width = max(self._stored_width(group, name), plain, sampled)
        return coded if coded > MAX_REPEATS * width else width

    def _dictionary(self, name: str) -> int:
        """Return the minimum bytes of decoding, for a dictionary or a page of any row group; 0 if they are small."""
        narrow = 0 < self._bits[name] < 8 * SAMPLE_BYTES
        if not self._large_groups and (narrow or not len(self)):
            return 0
        return self._dictionaries.get(name, lambda: self._find_dictionary(name, narrow))

    @cached_property
    def _large_groups(self) -> list[int]:
        return [i for i, size in enumerate(self._bytes) if size > coding.LARGE_PAGE]

    def _find_dictionary(self, name: str, narrow: bool) -> int:
        groups = self._large_groups + ([] if narrow or not len(self) else [int(np.diff(self._starts).argmax())])
        return coding.decoding_bytes(self._file, self._metadata, groups, self._chunks[name], self._page_bytes)

    def _page_bytes(self, chunk: Any) -> int:
        """Return the bytes held while a column chunk is read; each chunk's pages are looked at once."""
        find = partial(pages.page_bytes, self._file, chunk, self._buffer_bytes)
        return self._in_pages.get(int(chunk.data_page_offset), find)

    @cached_property
    def _buffer_bytes(self) -> int:
        """Return the bytes to read ahead of each column chunk: no more than one has on average."""
        chunks = sum(map(len, self._chunks.values()))
        return max(pages.MIN_BUFFER, min(pages.BUFFER, max(self._bytes, default=0) // max(1, chunks)))

    def _chunks_of(self, group: int, name: str) -> list[Any]:
        """Return the column chunks of a column in a row group."""
        return [*map(self._metadata.row_group(group).column, self._chunks[name])]

    def _stored_width(self, group: int, name: str) -> float:
        """Return the encoded, uncompressed bytes of a column per row of a row group."""
        metadata, rows = self._metadata.row_group(group), int(np.diff(self._starts)[group])
        return sum(int(metadata.column(i).total_uncompressed_size) for i in self._chunks[name]) / rows

    def _row_lengths(self, group: int, names: Iterable[str]) -> list[Lengths]:
        """Return the lengths of the rows of a row group, without columns of fixed width."""
        read = partial(coding.row_lengths, self._file, self._metadata, group)
        wide = (name for name in names if not self._bits[name])
        found = (self._lengths.get((group, name), partial(read, self._chunks[name])) for name in wide)
        return list(itertools.chain.from_iterable(found))

    def _is_large(self, i: int, names: list[str]) -> bool:
        rows, bits = int(self._starts[i + 1] - self._starts[i]), self._bits
        decoded = sum(rows * bits[name] / 8 if bits[name] else float(self._group_bytes(name)[i]) for name in names)
        large = decoded > SMALL or any(map(self._dictionary, names))
        if large or not names:
            return large
        longest = sum(int(one.longest.max()) for one in self._row_lengths(i, names))
        return rows * (LEVEL_BYTES + longest) > MAX_WORST_BYTES
