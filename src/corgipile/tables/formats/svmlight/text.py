"""Streaming parser of SVMlight text whose errors name line and column."""

import bz2
import contextlib
import gzip
import lzma
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import BadArgument, BadSparseRow, BadValue, CorruptFile, ParseError, TableError
from corgipile.tables.concat import DIMS_KEY
from corgipile.tables.io.files import File, PathLike, Region, decoding, readable
from corgipile.tables.io.pieces import join
from corgipile.tables.io.unpacking import check_line
from corgipile.tables.spans import array_of
from corgipile.tables.table import IntArray

ZeroBased = bool | Literal["auto"]
CHUNK_BYTES = 1 << 20
FULL = 1

_ERRORS: dict[int, tuple[type[TableError], str]] = {
    2: (ParseError, "a line must begin with a number, its label; got {token}"),
    3: (ParseError, "the label must be one number, got several: {token}"),
    4: (ParseError, "a feature must be index:value, got {token}"),
    5: (ParseError, "a number must follow the colon, got {token}"),
    6: (BadValue, "labels and features must be finite (features in 32 bits), got {token}"),
    7: (BadSparseRow, "indices must ascend, got {token}"),
    8: (BadSparseRow, "indices must be at least {base}, got {token}"),
    9: (BadSparseRow, "indices must be at most 2147483647, got {token}"),
}


@dataclass
class Summary:
    """Summary of a whole text.

    Attributes:
        rows: Number of rows.
        largest: The largest index as written, -1 without indices.
        zero: Line and column of the first index 0, or None.
    """

    rows: int = 0
    largest: int = -1
    zero: tuple[int, int] | None = None

    def base(self, path: str, zero_based: ZeroBased) -> int:
        """Return the first index, 0 or 1.

        Raises:
            BadSparseRow: An index 0 occurs although ``zero_based`` is False.
        """
        if zero_based == "auto":
            return 1 if self.zero is None else 0
        if self.zero is not None and not zero_based:
            raise BadSparseRow(
                f"{path}, line {self.zero[0]}, column {self.zero[1]}: indices must be at least 1 with "
                "zero_based=False, got 0"
            )
        return 0 if zero_based else 1


class Parsed(NamedTuple):
    """The kernel's result of parsing a piece of text; see ``cp_svm`` in kernel/formats/svmlight.h."""

    consumed: int
    rows: int
    entries: int
    lines: int
    largest: int
    zero_line: int
    zero_column: int
    code: int
    line: int
    column: int

    def check(self, text: memoryview, path: str, lines: int, base: int) -> None:
        """Raise the parser's error, if any; ``lines`` lines precede this text."""
        if self.code <= FULL:
            return
        at = self.consumed + self.column - 1
        token = repr(re.split(rb"\s", bytes(text[at : at + 40]), maxsplit=1)[0].decode("utf-8", "replace"))
        kind, message = _ERRORS[self.code]
        place = f"{path}, line {lines + self.line}, column {self.column}"
        raise kind(f"{place}: {message.format(token=token, base=base)}")


def schema(summary: Summary, base: int) -> pa.Schema:
    """Return the schema of rows: ``label``, ``features_k``, ``features_v``, and the dimension as metadata."""
    fields = [
        ("label", pa.float64()),
        ("features_k", pa.list_(pa.int32())),
        ("features_v", pa.list_(pa.float32())),
    ]
    dims = max(summary.largest + 1 - base, 0)
    return pa.schema(fields, metadata={DIMS_KEY: str(dims).encode(), b"corgipile.base": str(base).encode()})


def parse_rows(text: memoryview, rows: int, base: int, fields: pa.Schema) -> tuple[Parsed, pa.RecordBatch]:
    """Parse up to ``rows`` rows of text that ends with a whole line."""
    labels = np.empty(rows, np.float64)
    ends = np.zeros(rows + 1, np.int32)
    # A pair takes at least four bytes, the space before it included.
    indices = np.empty(min(len(text) // 4 + 1, 2**31 - 1), np.int32)
    values = np.empty(len(indices), np.float32)
    parsed = Parsed(
        *_kernel.svmlight_parse(text, labels, final=True, base=base, ends=ends[1:], indices=indices, values=values)
    )
    offsets = pa.py_buffer(ends[: parsed.rows + 1])
    arrays = [array_of(labels[: parsed.rows])]
    for name, entries in (("features_k", indices), ("features_v", values)):
        child = array_of(entries[: parsed.entries].copy())
        arrays.append(pa.Array.from_buffers(fields.field(name).type, parsed.rows, [None, offsets], 0, 0, [child]))
    return parsed, pa.RecordBatch.from_arrays(arrays, schema=fields)


def scan(file: str | File, summary: Summary) -> Iterator[tuple[IntArray, npt.NDArray[np.float64]]]:
    """Check a whole text: yield starts and labels of rows, and fill the summary."""
    starts, labels = np.empty(1 << 16, np.int64), np.empty(1 << 16, np.float64)
    at, lines, path = 0, 0, file.path if isinstance(file, File) else file
    for piece in pieces(file):
        text = memoryview(piece)
        while text.nbytes:
            parsed = Parsed(*_kernel.svmlight_parse(text, labels, final=True, base=0, starts=starts))
            parsed.check(text, path, lines, 0)
            if parsed.zero_line and summary.zero is None:
                summary.zero = (lines + parsed.zero_line, parsed.zero_column)
            summary.largest = max(summary.largest, parsed.largest)
            summary.rows += parsed.rows
            yield starts[: parsed.rows] + at, labels[: parsed.rows].copy()
            at, lines, text = at + parsed.consumed, lines + parsed.lines, text[parsed.consumed :]


def stream_batches(
    path: PathLike, rows: int = 8192, zero_based: ZeroBased = "auto"
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    r"""Stream a text, also compressed by gzip, bzip2 or xz, in batches of ``rows`` rows, except the last.

    The text is read twice: this call checks it and determines its base and dimension.

    Returns:
        The schema, and the batches.

    Example:
        >>> import gzip, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(f"{folder}/a.svm.gz").write_bytes(gzip.compress(b"1 3:0.5\n-1 1:2 4:1\n"))
        ...     schema, batches = stream_batches(f"{folder}/a.svm.gz", 1)
        ...     next(batches).to_pylist()
        [{'label': 1.0, 'features_k': [2], 'features_v': [0.5]}]
    """
    if rows < 1:
        raise BadArgument(f"batch rows must be at least 1, got {rows}")
    name, summary = str(Path(path).expanduser().absolute()), Summary()
    for _ in scan(name, summary):
        pass
    base = summary.base(name, zero_based)
    fields = schema(summary, base)
    return fields, _regroup(_batches(name, rows, base, fields), rows)


def _regroup(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Regroup batches of at most ``rows`` rows into batches of ``rows`` rows, except the last."""
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        pending.append(batch)
        if sum(part.num_rows for part in pending) >= rows:
            whole = join(pending)
            yield whole.slice(0, rows)
            pending = [whole.slice(rows)]
    if sum(part.num_rows for part in pending):
        yield join(pending)


def _batches(path: str, rows: int, base: int, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
    for piece in pieces(path):
        text = memoryview(piece)
        while text.nbytes:
            parsed, batch = parse_rows(text, min(rows, len(text) // 2 + 1), base, fields)
            if parsed.code > FULL:
                raise CorruptFile(f"{path} changed while it was read")
            yield batch
            text = text[parsed.consumed :]


def pieces(file: str | File, chunk: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Read a text in pieces of whole lines; decompress it if it is given by path."""
    parts, path = list[bytes](), file.path if isinstance(file, File) else file
    with _decompressing(path), _open_stream(file) as stream:
        while data := stream.read(chunk):
            cut = data.rfind(b"\n") + 1
            parts.append(data[:cut] if cut else data)
            if cut:
                piece, parts = b"".join(parts), [data[cut:]]
                yield piece
                del piece  # frees a long line before the next one is read
            else:
                check_line(sum(map(len, parts)), path)
    if any(parts):
        yield b"".join(parts)


def _open_stream(path: str | File) -> IO[bytes]:
    if isinstance(path, File):
        return cast("IO[bytes]", Region(path.scanned(), 0, path.size))
    with readable(path), Path(path).open("rb") as file:
        head = file.read(6)
    if head.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    if head.startswith(b"BZh"):
        return bz2.open(path, "rb")
    if head.startswith(b"\xfd7zXZ"):
        return lzma.open(path, "rb")
    return Path(path).open("rb")


@contextlib.contextmanager
def _decompressing(path: str) -> Iterator[None]:
    try:
        with decoding(path):
            yield
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise CorruptFile(f"{path} does not decompress: {error}") from None
