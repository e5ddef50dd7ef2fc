"""Hive-style partitions: folders named ``key=value`` become columns of their files."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from corgipile.tables.io.files import File, digest
from corgipile.tables.io.pieces import pick
from corgipile.tables.table import IntArray, Table
from corgipile.tables.wrapper import Wrapper

__all__ = ["Partition", "SourceFile", "is_key", "keys_of", "with_keys"]

NULL = "__HIVE_DEFAULT_PARTITION__"
_NUMBER = re.compile(r"-?[0-9]{1,18}")


class SourceFile(NamedTuple):
    """A file or its path, and the partition keys of its folders; None is null."""

    path: str | File
    keys: dict[str, str | None]


def is_key(name: str) -> bool:
    """Return whether a folder is named ``key=value``."""
    return name.find("=") > 0


def keys_of(path: str | PurePath, root: PurePath) -> dict[str, str | None]:
    """Return the partition keys of a file: from folders below ``root``, and from those directly above it.

    Example:
        >>> from pathlib import Path
        >>> keys_of("/data/year=2024/city=S%C3%A3o%20Paulo/a.parquet", Path("/data"))
        {'year': '2024', 'city': 'São Paulo'}
    """
    parents = [root, *root.parents]
    above = next((i for i, folder in enumerate(parents) if not is_key(folder.name)), len(parents))
    names = [folder.name for folder in reversed(parents[:above])]
    names += [name for name in type(root)(path).parent.relative_to(root).parts if is_key(name)]
    pairs = (name.split("=", 1) for name in names)
    return {unquote(key): None if value == NULL else unquote(value) for key, value in pairs}


def with_keys(tables: Sequence[Table], keys: Sequence[Mapping[str, str | None]]) -> list[Table]:
    """Add the partition columns to each table; a key is integer if all its values are, else text."""
    kinds: dict[str, pa.DataType] = {}
    for name in {name for found in keys for name in found}:
        values = [found[name] for found in keys if found.get(name) is not None]
        kinds[name] = _kind([value for value in values if value is not None])
    return [
        Partition(table, {name: _scalar(value, kinds[name]) for name, value in found.items()}) if found else table
        for table, found in zip(tables, keys, strict=True)
    ]


def _kind(values: Sequence[str]) -> pa.DataType:
    if not values or not all(map(_NUMBER.fullmatch, values)):
        return pa.string()
    return pa.int32() if all(-(1 << 31) <= int(value) < 1 << 31 for value in values) else pa.int64()


def _scalar(value: str | None, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(value if value is None or pa.types.is_string(kind) else int(value), kind)


class Partition(Wrapper):
    """Adds constant columns to a table.

    Args:
        table: The table.
        values: The values by name; they replace columns of the same names, as in Spark and DuckDB.

    Example:
        >>> from corgipile.tables import MemoryTable
        >>> table = MemoryTable(pa.table({"x": [1, 2]}))
        >>> Partition(table, {"year": pa.scalar(2024)}).read(1, 2).to_pydict()
        {'x': [2], 'year': [2024]}
    """

    def __init__(self, table: Table, values: Mapping[str, pa.Scalar]) -> None:
        super().__init__(table)
        self.values = dict(values)
        for name, value in self.values.items():
            field, at = pa.field(name, value.type), self.schema.get_field_index(name)
            self.schema = self.schema.append(field) if at < 0 else self.schema.set(at, field)

    def __reduce__(self) -> tuple[type["Partition"], tuple[Table, dict[str, pa.Scalar]]]:
        return Partition, (self.table, self.values)

    @property
    def fingerprint(self) -> str:
        """Return the identity of the table and the values."""
        constants = [f"{name!r}:{value.type}:{value.as_py()!r}" for name, value in self.values.items()]
        return digest(self.table.fingerprint, *constants)

    def stored(self, columns: Sequence[str]) -> list[str]:
        """Return the columns that are not constant."""
        return list(filter(self.keeps, columns))

    def keeps(self, column: str) -> bool:
        """Return whether a column is not constant."""
        return column not in self.values

    def _assemble(self, batch: pa.RecordBatch | None, names: list[str], rows: range | IntArray) -> pa.RecordBatch:
        arrays = [
            pa.repeat(self.values[name], len(rows)) if batch is None or name in self.values else batch.column(name)
            for name in names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=pick(self.schema, names))
