"""Base class of tables that wrap another table."""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Self

import pyarrow as pa

from corgipile.tables.methods import Views
from corgipile.tables.pages import run_cuts
from corgipile.tables.table import IntArray, Table, shared_bytes

__all__ = ["Wrapper"]


class Wrapper(Views):
    """Forwards everything except rows to the wrapped table; subclasses change the rows.

    Args:
        table: The table.
    """

    schema: pa.Schema

    def __init__(self, table: Table) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return repr(self.table)

    @property
    def nbytes(self) -> int:
        """Return the stored bytes of the table."""
        return self.table.nbytes

    @property
    def fingerprint(self) -> str:
        """Return the identity of the table."""
        return self.table.fingerprint

    def cuts(self, rows: int) -> IntArray:
        """Return the cuts of the table."""
        return self.table.cuts(rows)

    def run_cuts(self, columns: Sequence[str], run_bytes: int) -> IntArray:
        """Return the cuts of the table at runs of pages."""
        return run_cuts(self.table, self._stored(columns), run_bytes)

    def shared_bytes(self, columns: Sequence[str]) -> int:
        """Return the bytes of dictionaries that the table keep for columns."""
        stored = self._stored(columns)
        return shared_bytes(self.table, stored) if stored else 0

    @property
    def place(self) -> str:
        """Return the identity of the files of an encoded table."""
        return str(self.table.place)  # type: ignore[attr-defined]

    @property
    def spill(self) -> Any:
        """Return the spill folder of the table, None if it must not spill; AttributeError if it has none."""
        return self.table.spill  # type: ignore[attr-defined]

    def units(self, columns: Sequence[str]) -> Any:
        """Return the units of the table, None if it is not encoded."""
        units, stored = getattr(self.table, "units", None), self._stored(columns)
        return units(stored) if units is not None and stored else None

    def unpacked(self, columns: Sequence[str], unpack: Callable[[Table, Sequence[str]], Table]) -> Self:
        """Return a copy over the unpacked table."""
        copied = copy(self)
        copied.table = unpack(self.table, self._stored(columns))
        return copied

    def _stored(self, columns: Sequence[str]) -> list[str]:
        """Return the columns that the table stores."""
        return list(columns)
