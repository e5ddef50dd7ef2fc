"""Positions of the records of a TFRecord file, from a text index or a scan that checks every record."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv

from corgipile import _kernel
from corgipile.errors import BadArgument, CorruptFile, MissingFile, ReadFailed, UnknownFormat
from corgipile.outputs import Kind, replacing
from corgipile.tables.io.files import File, PathLike, decoding
from corgipile.tables.io.index_cache import Numbers, load_index, open_index
from corgipile.tables.io.remote import RemoteFile, file_of
from corgipile.tables.memory import MemoryTable
from corgipile.tables.spans import array_of, flat
from corgipile.tables.table import IntArray, Table
from corgipile.urls import RemotePath, is_url

SUFFIXES = (".tfrecord", ".tfrecords", ".tfrec")
TEXT_SUFFIXES = (".idx", ".index")
_FIRST_LINE = re.compile(rb"\d+ \d+\n")
CHUNK = 1 << 22  # bytes scanned at a time
HEAD, FRAME = 12, 16  # bytes of a record's head, and of head and CRC of the data
BAD_LENGTH = 1
_NO_OUTPUT = (np.empty(1, np.int64), np.empty(1, np.int64))
SCHEMA = pa.schema([("start", pa.int64()), ("size", pa.int64())])
NUMBERS = ("bad", "bad_record", "bad_start", "bad_code")
# Codes are those of kernel/formats/tfrecord.h.
REASONS = {
    1: "the CRC of the length is wrong",
    2: "the CRC of the data is wrong",
    3: "the file is truncated within the record",
    4: "its length differs from that in the index",
}


def is_head(head: bytes) -> bool:
    """Return whether first bytes are those of a TFRecord file: the CRC of the first length must match."""
    return len(head) >= HEAD and Walk(*_kernel.tfrecord_scan(head, 1 << 62, 0, *_NO_OUTPUT)).code != BAD_LENGTH


class Walk(NamedTuple):
    """The kernel's result of scanning a piece of a file; see ``cp_tfr_scan`` in kernel/formats/tfrecord.h."""

    rows: int
    consumed: int
    bad: int
    code: int
    lost: int


def open_records(file: File, index: PathLike | None, on_bad: str) -> tuple[Table, int]:
    """Return start and size of every record, frames included, and the number of skipped bad records.

    A text index is trusted, because records are checked when they are read. Without one, or to skip bad records, the
    file is scanned once and the resulting index is stored next to it. A text index next to the file must cover all of
    it; an explicit one may omit records, see `read_text`.

    Raises:
        BadArgument: A text index is combined with skipping, but it does not mark bad records.
        CorruptFile: A record is bad and ``on_bad`` is "raise", or the text index does not match the file.
        UnknownFormat: The file has no record, and ``on_bad`` is "raise".
    """
    if index is not None and on_bad == "skip":
        raise BadArgument(
            f'index={index!r} does not mark bad records, so on_bad="skip" does not apply to it; drop index='
        )
    stored = load_index(file, SCHEMA, NUMBERS)
    text: PathLike | File | None = (
        index if index is not None or stored is not None or on_bad == "skip" else _find_text_index(file)
    )
    if text is not None:
        return MemoryTable(read_text(file, text, gaps=index is not None)), 0
    table, numbers = stored or open_index(file, SCHEMA, NUMBERS, lambda filled: scan(file.scanned(), filled))
    if on_bad == "raise":
        _raise_for_bad(file, numbers, 'skip bad records with on_bad="skip"')
    return table, numbers["bad"]


def _raise_for_bad(file: File, numbers: Numbers, remedy: str) -> None:
    if not numbers["bad"]:
        return
    if not numbers["rows"] and numbers["bad_code"] == BAD_LENGTH:
        head = file.read(0, min(8, file.size))
        raise UnknownFormat(
            f"{file.path} is not a TFRecord file: it begins with {head!r}; {REASONS[BAD_LENGTH]}; no record follows"
        )
    raise CorruptFile(
        f"{place(file, numbers['bad_record'], numbers['bad_start'])}: {REASONS[numbers['bad_code']]}; "
        f"{remedy} ({numbers['bad']} in this file)"
    )


def starts_like_index(path: Path) -> bool:
    """Return whether a file begins like a text index."""
    with path.open("rb") as file:
        return _FIRST_LINE.fullmatch(file.readline(64)) is not None


TEXT_INDEX = Kind("text index", starts_like_index, follow=False)


def index_file(path: str, **_: Any) -> str:
    """Check a whole file and write its text index, ``NAME.idx``; return the index's path.

    Raises:
        CorruptFile: A record is bad.
        UnknownFormat: The file has no record.
    """
    file, numbers = file_of(path), Numbers(rows=0)
    goal = file.path + TEXT_SUFFIXES[0]
    with replacing(goal, TEXT_INDEX, of=file.path) as temporary, temporary.open("w") as text:
        for batch in scan(file, numbers):
            places = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            text.writelines(f"{start} {size}\n" for start, size in places)
            numbers["rows"] += batch.num_rows
        _raise_for_bad(file, numbers, 'no index is written; skip bad records with corgipile.open(on_bad="skip")')
    return goal


def place(file: File, record: int, start: int) -> str:
    """Return a record's file, number and position for an error message."""
    return f"{file.path}, record {record} at byte {start}"


def scan(file: File, numbers: Numbers) -> Iterator[pa.RecordBatch]:
    """Scan a whole file and yield the positions of good records; after a bad one search for the next good one."""
    numbers.update(dict.fromkeys(NUMBERS, 0))
    starts, sizes = np.empty(1 << 16, np.int64), np.empty(1 << 16, np.int64)
    at = rows = lost = 0
    chunk = CHUNK
    while at < file.size:
        data = file.read(at, min(chunk, file.size - at))
        walk = Walk(*_kernel.tfrecord_scan(data, file.size - at, lost, starts, sizes))
        yield pa.record_batch([array_of(starts[: walk.rows] + at), array_of(sizes[: walk.rows].copy())], schema=SCHEMA)
        if walk.code and not numbers["bad"]:
            first = (rows + walk.rows, at + walk.bad, walk.code)
            numbers.update(zip(NUMBERS[1:], first, strict=True))
        rows += walk.rows + bool(walk.code)
        numbers["bad"] += bool(walk.code)
        # A record longer than the chunk: doubling keeps the cost linear.
        chunk = CHUNK if walk.consumed else 2 * chunk
        at, lost = at + walk.consumed, walk.lost


def _find_text_index(file: File) -> PathLike | File | None:
    """Return the text index next to a file: ``a.tfrecord.idx`` or ``a.idx`` for ``a.tfrecord``."""
    path = PurePosixPath(file.path)
    stems = [path.name, path.stem] if path.suffix in SUFFIXES else [path.name]
    names = [stem + end for stem in stems for end in TEXT_SUFFIXES]
    if not isinstance(file, RemoteFile):
        return next((found for name in names if (found := Path(path).with_name(name)).is_file()), None)
    folder, _, last = file.path.full.rpartition("/")
    if last != path.name:  # a signed URL is valid for this object only
        return None
    candidates = [file.path.sibling(f"{folder}/{name}") for name in names]
    with ThreadPoolExecutor(len(candidates)) as pool:
        return next((index for index in pool.map(_open_text_index, candidates) if index is not None), None)


def _open_text_index(path: RemotePath) -> File | None:
    """Open a text index; None if it is missing, forbidden or something else."""
    try:
        index = file_of(path)
    except (MissingFile, ReadFailed):
        return None
    return index if _FIRST_LINE.match(index.read(0, min(64, index.size))) else None


def is_text_index(name: str) -> bool:
    """Return whether a file is named like the text index of another file next to it."""
    path = Path(name)
    return path.suffix in TEXT_SUFFIXES and any(path.with_suffix(end).is_file() for end in ("", *SUFFIXES))


def read_text(file: File, path: PathLike | File, *, gaps: bool) -> pa.Table:
    """Read a text index: ascending lines ``start size``, as ``tfrecord2idx`` writes them.

    Args:
        file: The file of records.
        path: The index.
        gaps: Whether lines may be missing, except the last: an index that ends before the file is probably older than
            appended records.

    Raises:
        CorruptFile: The index is malformed, or does not match the file.
    """
    if isinstance(path, File) or is_url(path):
        index = file_of(path)
    elif (place := Path(path).expanduser().absolute()).is_file():
        index = file_of(place)
    else:
        raise MissingFile(f"no index at {place}")
    name = index.path
    text = _parse_text(index) if index.size else SCHEMA.empty_table()
    starts, sizes = (flat(pa.concat_arrays(text.column(i).chunks)) for i in range(2))
    check_places(file, starts, sizes)
    ends = np.append(0, starts + sizes)
    if ends[-1] != file.size:
        raise CorruptFile(
            f"{name}: the index must end with the file at byte {file.size}, got {ends[-1]}: it is outdated or cut; "
            "run `corgipile index` again"
        )
    skipped = np.flatnonzero(starts != ends[:-1])
    if len(skipped) and not gaps:
        row = int(skipped[0])
        raise CorruptFile(
            f"{name}: the index omits bytes {ends[row]} to {starts[row]}; run `corgipile index` again, or pass "
            "index= if that is intended"
        )
    return text.combine_chunks()


def _parse_text(index: File) -> pa.Table:
    with decoding(index.path):
        return csv.read_csv(
            index.scanned().source(),
            csv.ReadOptions(use_threads=False, column_names=SCHEMA.names),
            csv.ParseOptions(delimiter=" "),
            csv.ConvertOptions(column_types=SCHEMA, null_values=[]),
        )


def check_places(file: File, starts: IntArray, sizes: IntArray) -> None:
    """Raise CorruptFile unless records are ascending and inside the file."""
    wrong = (sizes < FRAME) | (starts < 0) | (starts > file.size - sizes)
    wrong[1:] |= starts[1:] - sizes[:-1] < starts[:-1]
    if wrong.any():
        bad = int(np.argmax(wrong))
        raise CorruptFile(
            f"{file.path} has {file.size} bytes, but its index has a record of {sizes[bad]} at byte {starts[bad]}: "
            "the file is truncated, or the index is of another file"
        )
