"""Hostile files: each refers to code, a host or another file, and must reach none of them."""

import importlib.util
import os
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["KINDS", "NUMBER", "SECRET", "Kind", "Trap", "kind"]

SECRET = b"SECRETS!"
NUMBER = int.from_bytes(SECRET, "little")  # as it shows among integers
ROWS = 8


class Kind(NamedTuple):
    """A kind of hostile file.

    Attributes:
        make: Makes one in a folder, and returns what to open.
        needs: Libraries that make it.
        refused: Whether no command may read it; else the hostile part is ignored.
    """

    make: Callable[["Trap", Path], Path]
    needs: Sequence[str]
    refused: bool

    @property
    def is_here(self) -> bool:
        return all(importlib.util.find_spec(name) is not None for name in self.needs)


KINDS: dict[str, Kind] = {}


def kind(*names, needs=(), refused=True):
    """Register the maker of a kind of file, once for each named argument."""

    def register(make):
        word = make.__name__
        if not names:
            KINDS[word] = Kind(make, needs, refused)
        for name in names:
            KINDS[f"{word}-{name}"] = Kind(lambda trap, folder, name=name: make(trap, folder, name), needs, refused)
        return make

    return register


class Trap:
    """Targets of hostile files.

    Args:
        folder: A folder outside those of all files.
        port: Port of a local server that counts requests.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port, self.ran = folder / "kept", port, folder / "ran"
        self.folder.mkdir()
        folder = self.folder
        self.bytes = folder / "secret.bin"
        self.bytes.write_bytes(SECRET * ROWS)
        self.rows = pa.table({"x": [NUMBER] * ROWS, "label": [0, 1] * (ROWS // 2)})
        self.parquet, self.arrows = folder / "secret.parquet", folder / "secret.arrow"
        pq.write_table(self.rows, self.parquet)
        with pa.ipc.new_stream(self.arrows, self.rows.schema) as out:
            out.write_table(self.rows)

    def address(self, way: str, file: Path, base: Path) -> str:
        """Return a path from a folder to a file outside."""
        return {
            "absolute": str(file),
            "relative": os.path.relpath(file, base),
            "winding": f"a/../../{os.path.relpath(file, base.parent)}",
            "url": file.as_uri(),
            "quoted": os.path.relpath(file, base).replace("..", "%2e%2e"),
            "http": f"http://127.0.0.1:{self.port}/{file.name}",
            "s3": f"s3://bucket/{file.name}",
            "null": f"{file}\0",
            "link": f"link/{file.name}",
        }[way]

    @property
    def code(self) -> bytes:
        """Return a pickle that runs code."""
        return pickle.dumps(_Code(self.ran))


class _Code:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def plain(rows: int = ROWS) -> pa.Table:
    """Return rows without the secret."""
    return pa.table({"x": np.arange(rows) / 7, "label": np.arange(rows) % 2})
