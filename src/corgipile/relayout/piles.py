"""Rows dealt to piles in temporary files."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.tables.spans import array_of


class Piles:
    """Deals rows to piles, one Arrow stream file each; the files are removed when the ``with`` block ends."""

    def __init__(self, folder: Path, count: int) -> None:
        self.rows = [0] * count
        self._paths = [folder / f"pile-{number}" for number in range(count)]
        self._open: dict[int, Any] = {}
        self._files = ExitStack()

    def __enter__(self) -> Self:
        self._paths[0].parent.mkdir()
        return self

    def deal(self, batch: pa.RecordBatch, piles: npt.NDArray[np.int64]) -> None:
        """Append each row to its pile, in order."""
        for pile, rows in split_by_pile(batch, piles):
            self._writer(pile, batch.schema).write_batch(rows)
            self.rows[pile] += rows.num_rows

    def finish(self) -> None:
        """Close all files after the last row."""
        self._files.close()
        self._open.clear()

    def drain(self, pile: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one pile and remove it."""
        if self.rows[pile]:
            with pa.OSFile(str(self._paths[pile])) as file:
                yield from pa.ipc.open_stream(file)
            self._paths[pile].unlink()

    def _writer(self, pile: int, schema: pa.Schema) -> Any:
        if pile not in self._open:
            file = self._files.enter_context(pa.OSFile(str(self._paths[pile]), "wb"))
            self._open[pile] = self._files.enter_context(pa.ipc.new_stream(file, schema))
        return self._open[pile]

    def __exit__(self, *failure: object) -> None:
        self.finish()
        for path in self._paths:
            path.unlink(missing_ok=True)
        self._paths[0].parent.rmdir()


def split_by_pile(batch: pa.RecordBatch, piles: npt.NDArray[np.int64]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each nonempty pile, in order.

    Example:
        >>> rows = pa.record_batch({"x": [0, 1, 2]})
        >>> [(pile, part["x"].to_pylist()) for pile, part in split_by_pile(rows, np.array([5, 1, 5]))]
        [(1, [1]), (5, [0, 2])]
    """
    # NumPy sorts small integers by radix.
    order = np.argsort(piles.astype(np.uint16), kind="stable")
    dealt = batch.take(array_of(order))
    counts = np.bincount(piles)
    starts = np.cumsum(counts) - counts
    for pile in np.flatnonzero(counts).tolist():
        yield pile, dealt.slice(int(starts[pile]), int(counts[pile]))
