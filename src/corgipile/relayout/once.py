"""Temporary copies of a table in random order, for measurements."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corgipile import scratch
from corgipile.outputs import PathLike, writing
from corgipile.relayout.reshuffle import reshuffle
from corgipile.tables import Table
from corgipile.tables import open as open_table

__all__ = ["shuffled_once"]


@contextmanager
def shuffled_once(
    table: Table, memory: int | str, seed: int, folder: PathLike | None = None
) -> Iterator[tuple[Table, float]]:
    """Write the rows in random order to a temporary file; yield its table and the seconds taken."""
    place = Path(tempfile.gettempdir() if folder is None else folder)
    with writing(place), scratch.folder(place, "compare") as room:
        path = room / "shuffled.arrow"
        start = time.perf_counter()
        reshuffle(table, path, memory=memory, seed=seed)
        yield open_table(path), time.perf_counter() - start
