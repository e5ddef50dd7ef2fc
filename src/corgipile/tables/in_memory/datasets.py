"""Tables of Hugging Face and pyarrow datasets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.errors import BadArgument, CorgiPileError
from corgipile.lazy import lazy
from corgipile.tables.concat import ConcatTable
from corgipile.tables.formats.arrow.stream import ArrowStream
from corgipile.tables.io.spill import Spill
from corgipile.tables.memory import MemoryTable
from corgipile.tables.partitions import Partition
from corgipile.tables.row_mask import RowMask
from corgipile.tables.selection import TakeTable
from corgipile.tables.spans import flat
from corgipile.tables.table import Table
from corgipile.tables.views import mask_rows, masks_of, select, slice  # noqa: A004 - of tables

__all__ = ["HuggingFaceTable", "of_arrow_dataset", "of_hugging_face"]

ds, fs = lazy("pyarrow.dataset"), lazy("pyarrow.fs")
REPLAYABLE = {"replace_schema_metadata", "slice", "drop", "select", "remove_column"}


def of_hugging_face(dataset: Any, spill: Spill = None) -> Table:
    """Return the table of a ``datasets.Dataset``: its stored rows, without formats and transforms.

    Rows in memory-mapped files are read from those files. Selected rows are a view of the stored ones.

    Raises:
        BadArgument: The dataset has several splits, or is a stream.

    Example:
        >>> import datasets
        >>> of_hugging_face(datasets.Dataset.from_dict({"x": [1, 2, 3]})).read(1, 3).to_pydict()
        {'x': [2, 3]}
    """
    kind = type(dataset).__name__
    if isinstance(dataset, dict):
        raise BadArgument(f"a {kind} must be opened by split; open one of {', '.join(map(str, dataset))}")
    if not hasattr(dataset, "data"):
        raise BadArgument(f"{kind} must be a dataset with rows in Arrow; open the folder that its save_to_disk writes")
    table = _files(dataset, spill) or HuggingFaceTable(dataset)
    indices = getattr(dataset, "_indices", None)
    return table if indices is None else _take_indices(table, indices)


def _take_indices(table: Table, indices: Any) -> Table:
    rows = np.concatenate([flat(part).astype(np.int64) for part in indices.column(0).chunks] or [np.zeros(0, np.int64)])
    if (np.diff(rows) > 0).all():
        return mask_rows(table, RowMask.joined(masks_of([rows], len(table))))
    return TakeTable(table, rows)


class HuggingFaceTable(MemoryTable):
    """The Arrow data of a dataset, pickled as the dataset is, with files by name.

    Args:
        dataset: The dataset.
    """

    def __init__(self, dataset: Any) -> None:
        super().__init__(dataset.data.table)
        self._dataset = dataset

    def __reduce__(self) -> Any:
        return HuggingFaceTable, (self._dataset,)


def _files(dataset: Any, spill: Spill) -> Table | None:
    """Return the table of a dataset's files; None if its rows are not exactly those of files."""
    data = dataset.data
    blocks = [block for row in getattr(data, "blocks", [[data]]) for block in row]
    if any(len(row) > 1 for row in getattr(data, "blocks", [])) or not all(map(_is_replayable, blocks)):
        return None
    try:
        tables = [_replay(ArrowStream(block.path, spill), block.replays or []) for block in blocks]
        table = select(tables[0] if len(tables) == 1 else ConcatTable(tables), data.schema.names)
    except (CorgiPileError, TypeError, ValueError):
        return None  # the caller falls back to the dataset in memory
    return table if table.schema.types == data.schema.types and len(table) == data.num_rows else None


def _is_replayable(block: Any) -> bool:
    known = isinstance(getattr(block, "path", None), str) and Path(block.path).is_file()
    return known and all(name in REPLAYABLE for name, *_ in block.replays or [])


def _replay(table: Table, replays: list[Any]) -> Table:
    """Apply the slices of a dataset to a table; columns are selected afterwards."""
    for name, args, kwargs in replays:
        if name == "slice":
            start, length = (*args, None)[:2] if args else (kwargs.get("offset", 0), kwargs.get("length"))
            table = slice(table, start, None if length is None else start + length)
    return table


def of_arrow_dataset(dataset: Any, open_file: Callable[[str], Table], stream: Callable[[Any], Table]) -> Table:
    """Return the table of a ``pyarrow.dataset.Dataset``: local Parquet and Arrow files are opened directly.

    A dataset that filters, projects, or is remote is read to its end by its own scanner.

    Args:
        dataset: The dataset.
        open_file: Opens a file.
        stream: Makes a table of the dataset by its own scanner.

    Example:
        >>> import pyarrow.dataset as ds
        >>> of_arrow_dataset(ds.dataset(pa.table({"x": [1, 2]})), open, lambda d: MemoryTable(d.to_table())).read(1, 2)
        pyarrow.RecordBatch
        x: int64
        ----
        x: [2]
    """
    tables = None if getattr(dataset, "_scan_options", None) else _fragments(dataset, open_file)
    if tables is None:
        return stream(dataset)
    return tables[0] if len(tables) == 1 else ConcatTable(tables)


def _fragments(dataset: Any, open_file: Callable[[str], Table]) -> list[Table] | None:
    """Open the files of a dataset; None if they are remote, of another format, or have other columns."""
    formats = tuple(kind for kind in (getattr(ds, "ParquetFileFormat", None), ds.IpcFileFormat) if kind is not None)
    if not isinstance(dataset, ds.FileSystemDataset) or not isinstance(dataset.format, formats):
        return None
    if not isinstance(dataset.filesystem, fs.LocalFileSystem):
        return None
    tables: list[Table] = []
    for fragment in dataset.get_fragments():
        keys = ds.get_partition_keys(fragment.partition_expression)
        if keys.keys() - {*dataset.schema.names}:
            return None
        values = {name: pa.scalar(value, dataset.schema.field(name).type) for name, value in keys.items()}
        table = open_file(fragment.path)
        table = Partition(table, values) if values else table
        some = sum(group.num_rows for group in getattr(fragment, "row_groups", ())) or len(table)
        if not _has_fields(table.schema, dataset.schema) or some != len(table):
            return None
        tables.append(select(table, dataset.schema.names))
    return tables or None


def _has_fields(mine: pa.Schema, wanted: pa.Schema) -> bool:
    available = set(mine.names)
    return all(field.name in available and mine.field(field.name).type == field.type for field in wanted)
