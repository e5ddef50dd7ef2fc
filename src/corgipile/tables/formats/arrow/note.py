"""A note before the footer of an Arrow IPC file: rows of its record batches, and which have equal metadata.

It saves our reader the metadata of all record batches; other readers ignore it. A program that rewrites the file drops
the note, so it is never stale, unlike schema metadata, which programs copy.
"""

import json
import struct
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from corgipile.errors import CorruptFile, TableError
from corgipile.nesting import parse_json
from corgipile.tables.formats.arrow.footer import Footer, read_footer
from corgipile.tables.formats.arrow.metadata import BatchMetadata
from corgipile.tables.io.files import File, PathLike

MARK = b"CorgiNote"
TAIL = struct.Struct("<Q16s")  # bytes of the text, the mark
ALIGNMENT = 64  # bytes; keeps the footer aligned
MAX_RUNS = 64  # runs of batches with equal metadata in a note


def write_note(path: PathLike) -> None:
    """Insert the note into a complete file, which must not be read meanwhile."""
    file = File(path)
    blocks, _, end, *_ = read_footer(file)
    metadata = BatchMetadata(file, blocks).many(np.arange(len(blocks)))
    contents = ((head.rows, head.nodes.tobytes(), head.buffers.tobytes(), *head[3:]) for head in metadata)
    runs = [(sum(1 for _ in same), content[0]) for content, same in groupby(contents)]
    alike = len(runs) <= MAX_RUNS
    if not alike:
        runs = [(sum(count for count, _ in same), rows) for rows, same in groupby(runs, itemgetter(1))]
    text = json.dumps({"rows": runs, "alike": alike}).encode()
    text += b" " * (-(len(text) + TAIL.size) % ALIGNMENT)
    with Path(path).open("r+b") as out:
        out.seek(end)
        out.write(text + TAIL.pack(len(text), MARK) + file.read(end, file.size - end))


def is_noted(path: Path) -> bool:
    """Return whether corgipile wrote a file: it is an Arrow IPC file with a note."""
    try:
        file = File(path)
        end = read_footer(file).end - TAIL.size
        return end >= 0 and TAIL.unpack(file.read(end, TAIL.size))[1].rstrip(b"\0") == MARK
    except TableError:
        return False


def apply_note(file: File, footer: Footer) -> Footer:
    """Return a footer with the rows and equal batches of the note before it, or unchanged without a valid note.

    Raises:
        CorruptFile: The note counts other batches, so the footer is damaged.
    """
    end = footer.end - TAIL.size
    length, mark = TAIL.unpack(file.read(end, TAIL.size)) if end >= 0 else (0, b"")
    if mark.rstrip(b"\0") != MARK or length > min(end, ALIGNMENT * (len(footer.blocks) + 2)):
        return footer
    return _apply(file.read(end - length, length), footer, file.path)


def _apply(text: bytes, footer: Footer, path: str) -> Footer:
    blocks = footer.blocks
    try:
        note: dict[str, Any] = parse_json(text, path)
        counts, rows = np.array(note["rows"], np.int64).reshape(-1, 2).T
        alike = bool(note["alike"])
    except (ValueError, TypeError, KeyError, OverflowError):
        return footer
    if (counts < 1).any() or (rows < 0).any():
        return footer
    if counts.sum(dtype=np.float64) != len(blocks):
        total = (counts * rows).sum()
        raise CorruptFile(
            f"{path}: the footer must name {counts.sum()} record batches of {total} rows, got {len(blocks)} batches"
        )
    like = np.repeat(np.cumsum(counts) - counts, counts) if alike else np.arange(len(blocks))
    if any((blocks[name] != blocks[name][like]).any() for name in ("metadata", "body")):
        return footer
    return footer._replace(rows=np.repeat(rows, counts), like=like)
