"""Writes WebDataset shards by Python's tarfile, independently of the package."""

import io
import tarfile

import numpy as np
import pyarrow as pa


def write(path, members, form=tarfile.GNU_FORMAT):
    """Write members: pairs of name, or header, and bytes."""
    with tarfile.open(path, "w", format=form) as archive:
        for name, data in members:
            member = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            member.size = len(data or b"")
            archive.addfile(member, io.BytesIO(data or b""))
    return path


def numbered(rows, first=0):
    """Make members of samples of four columns, which follow from the row number."""
    for i in range(first, first + rows):
        yield f"{i:05}.cls", b"%d" % (i % 7)
        yield f"{i:05}.jpg", np.random.default_rng(i).bytes(i * 37 % 900)
        yield f"{i:05}.txt", f"né {i}".encode()


def table_of(rows, first=0):
    """Return the table that `numbered` must read as."""
    found = dict(numbered(rows, first))
    keys = [f"{i:05}" for i in range(first, first + rows)]
    return pa.table(
        {
            "cls": pa.array([int(found[f"{key}.cls"]) for key in keys], pa.int64()),
            "jpg": pa.array([found[f"{key}.jpg"] for key in keys], pa.binary()),
            "txt": pa.array([found[f"{key}.txt"].decode() for key in keys], pa.string()),
            "__key__": keys,
        }
    )
