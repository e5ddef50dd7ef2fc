"""Wrappers of a table that count reads, delay them, or make them fail."""

import errno
import threading
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from corgipile.errors import ReadFailed
from corgipile.tables.even_lists import sampled_width
from corgipile.tables.table import IntArray, Table, check_columns
from corgipile.tables.wrapper import Wrapper


class _Instrumented(Wrapper):
    """Delegates to a table, without a layout, so that every read passes through it."""

    samples_widths = True

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.table!r})"

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read one run of rows."""
        self._before([(start, stop)])
        return self.table.read(start, stop, columns)

    def take(self, rows: IntArray, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read scattered rows."""
        self._before([(int(row), int(row) + 1) for row in rows])
        return self.table.take(rows, columns)

    def take_bytes(self, rows: IntArray, column: str) -> list[bytes]:
        """Read scattered rows of a binary column."""
        self._before([(int(row), int(row) + 1) for row in rows])
        return self.table.take_bytes(rows, column)

    def list_width(self, name: str) -> int | None:
        """Return the length of a list column's rows if sampled rows agree."""
        return sampled_width(self, name)

    def _in_place(self, columns: Sequence[str]) -> None:
        check_columns(self.schema, columns)  # no columns lie in place, so that no read bypasses this table

    def units(self, columns: Sequence[str]) -> None:
        """Return None, since unpacked units would bypass this table."""

    def _before(self, runs: list[tuple[int, int]]) -> None:
        """Act before a read of these runs."""


class Counting(_Instrumented):
    """Counts reads.

    Attributes:
        calls: Calls of ``read`` and ``take``.
        rows: Requested rows.
        runs: Requested runs of rows, in order; each row of ``take`` is a run.

    Example:
        >>> from corgipile.tables import open
        >>> table = Counting(open(pa.table({"label": [0, 1, 1]})))
        >>> _ = table.read(0, 2)
        >>> table.calls, table.rows, table.runs
        (1, 2, [(0, 2)])
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.calls = 0
        self.rows = 0
        self.runs: list[tuple[int, int]] = []

    def _before(self, runs: list[tuple[int, int]]) -> None:
        with self._lock:
            self.calls += 1
            self.rows += sum(stop - start for start, stop in runs)
            self.runs += runs


class Slow(_Instrumented):
    """Waits before each read, like a slow device.

    Args:
        table: The table.
        seconds_per_read: Latency.

    Example:
        >>> from corgipile.tables import open
        >>> len(Slow(open(pa.table({"label": [0, 1, 1]})), 0.001).read(0, 2))
        2
    """

    def __init__(self, table: Table, seconds_per_read: float) -> None:
        super().__init__(table)
        self.seconds_per_read = seconds_per_read

    def _before(self, runs: list[tuple[int, int]]) -> None:
        time.sleep(self.seconds_per_read)


class Failing(_Instrumented):
    """Fails every read after the first few, like a broken device.

    Args:
        table: The table.
        after: Reads that succeed.

    Example:
        >>> from corgipile.tables import open
        >>> Failing(open(pa.table({"label": [0, 1, 1]})), after=0).read(0, 2)
        Traceback (most recent call last):
        ...
        corgipile.errors.ReadFailed: read 1 of rows 0 to 2 failed on purpose
    """

    def __init__(self, table: Table, after: int) -> None:
        super().__init__(table)
        self.after = after
        self.calls = 0

    def _before(self, runs: list[tuple[int, int]]) -> None:
        with self._lock:
            self.calls += 1
            call = self.calls
        if call > self.after:
            start, stop = min(runs, default=(0, 0))[0], max(runs, default=(0, 0))[1]
            raise ReadFailed(errno.EIO, f"read {call} of rows {start} to {stop} failed on purpose")
