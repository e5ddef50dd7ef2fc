"""Tables with labels from memory."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.tables.io.files import digest
from corgipile.tables.location import IN_MEMORY, Location, address_of
from corgipile.tables.spans import array_of
from corgipile.tables.table import ColumnLayout, IntArray, Layout, Table, check_columns
from corgipile.tables.wrapper import Wrapper

__all__ = ["Labelled"]


class Labelled(Wrapper):
    """A table with one label per row from memory, which replace a column of the same name.

    Example:
        >>> from corgipile.tables import open
        >>> table = Labelled(open(pa.table({"x": [1.5, 2.5]})), "label", pa.array([1, 0]))
        >>> table.read(0, 2).to_pydict()
        {'x': [1.5, 2.5], 'label': [1, 0]}
    """

    columnar = True  # labels are in memory

    def __init__(self, table: Table, name: str, labels: npt.NDArray[Any]) -> None:
        super().__init__(table)
        if len(labels) != len(table):
            raise BadArgument(f"y has {len(labels)} labels for {len(table)} rows of {table!r}; give one per row")
        self._name, self._labels = name, pa.array(labels)
        other_columns = [column for column in table.schema if column.name != name]
        self.schema = pa.schema([*other_columns, pa.field(name, self._labels.type)], table.schema.metadata)

    @property
    def fingerprint(self) -> str:
        """Return the identity of rows and labels."""
        labels = np.ascontiguousarray(self._labels.to_numpy(zero_copy_only=False))
        values = blake2b(labels.data, digest_size=16).hexdigest()
        return digest(self.table.fingerprint, self._name, str(labels.dtype), values)

    def location(self, columns: Sequence[str]) -> Location | None:
        """Return where columns lie for the kernel, the labels in memory; None if the table has no location."""
        names = check_columns(self.schema, columns)
        stored, address = self.stored(names), address_of(self._labels)
        found = self.table.location(stored) if stored else Location(Layout((), {}))
        if stored == names or address is None or found is None or found.bits is not None:
            return found if stored == names else None
        where = ColumnLayout.joined(self._labels.type, np.array([0, len(self)]), np.array([address]))
        own = {self._name: replace(where, files=np.full(1, IN_MEMORY, np.int32))}
        return Location(
            replace(found.layout, columns={**found.layout.columns, **own}), kept=(*found.kept, self._labels)
        )

    def stored(self, columns: Sequence[str]) -> list[str]:
        """Return the columns without the labels."""
        return list(filter(self.keeps, columns))

    def keeps(self, column: str) -> bool:
        """Return whether a column is not that of the labels."""
        return column != self._name

    def _assemble(self, batch: pa.RecordBatch | None, names: list[str], rows: range | IntArray) -> pa.RecordBatch:
        own = self._labels[rows.start : rows.stop] if isinstance(rows, range) else self._labels.take(array_of(rows))
        arrays = [own if batch is None or name == self._name else batch.column(name) for name in names]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([self.schema.field(name) for name in names]))
