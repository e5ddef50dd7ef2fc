"""A note before the footer of an Arrow IPC file: rows of its record batches, and which of them are laid out alike.

It spares a reader the heads of all record batches. Other readers pass over it, and who rewrites the file drops it: it
says nothing of a file that another program wrote, as metadata of a schema, which are copied along, might.
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
from corgipile.tables.arrow.footer import Footer, read_footer
from corgipile.tables.arrow.metadata import BatchMetadata
from corgipile.tables.io.files import File, PathLike

MARK = b"CorgiNote"
TAIL = struct.Struct("<Q16s")  # bytes of the text, the mark
UNIT = 64  # what follows stays aligned
MOST_RUNS = 64


def write_note(path: PathLike) -> None:
    """Write the note of a file that is complete otherwise; whoever calls sees to it that nobody reads it meanwhile."""
    file = File(path)
    blocks, _, end, *_ = read_footer(file)
    metadata = BatchMetadata(file, blocks).many(np.arange(len(blocks)))
    runs = [(sum(1 for _ in same), head.rows) for head, same in groupby(metadata)]
    alike = len(runs) <= MOST_RUNS
    if not alike:
        runs = [(sum(count for count, _ in same), rows) for rows, same in groupby(runs, itemgetter(1))]
    text = json.dumps({"rows": runs, "alike": alike}).encode()
    text += b" " * (-(len(text) + TAIL.size) % UNIT)
    with Path(path).open("r+b") as out:
        out.seek(end)
        out.write(text + TAIL.pack(len(text), MARK) + file.read(end, file.size - end))


def is_noted(path: Path) -> bool:
    """Say whether a file is an Arrow IPC file that has a note: one that corgipile wrote."""
    try:
        file = File(path)
        end = read_footer(file).end - TAIL.size
        return end >= 0 and TAIL.unpack(file.read(end, TAIL.size))[1].rstrip(b"\0") == MARK
    except TableError:
        return False


def noted(file: File, footer: Footer) -> Footer:
    """Add to a footer what the note before it says; nothing if there is none, or it makes no sense.

    Raises:
        CorruptFile: It is a note of another number of batches: the footer is damaged.
    """
    end = footer.end - TAIL.size
    length, mark = TAIL.unpack(file.read(end, TAIL.size)) if end >= 0 else (0, b"")
    if mark.rstrip(b"\0") != MARK or length > min(end, UNIT * (len(footer.blocks) + 2)):
        return footer
    return _apply(file.read(end - length, length), footer, file.path)


def _apply(text: bytes, footer: Footer, path: str) -> Footer:
    blocks = footer.blocks
    try:
        said: dict[str, Any] = parse_json(text, path)
        counts, rows = np.array(said["rows"], np.int64).reshape(-1, 2).T
        alike = bool(said["alike"])
    except (ValueError, TypeError, KeyError, OverflowError):
        return footer
    if (counts < 1).any() or (rows < 0).any():
        return footer
    if counts.sum(dtype=np.float64) != len(blocks):
        total = (counts * rows).sum()
        raise CorruptFile(
            f"{path}: the footer names {len(blocks)} record batches; {counts.sum()} of {total} rows were written"
        )
    like = np.repeat(np.cumsum(counts) - counts, counts) if alike else np.arange(len(blocks))
    if any((blocks[name] != blocks[name][like]).any() for name in ("metadata", "body")):
        return footer
    return footer._replace(rows=np.repeat(rows, counts), like=like)
