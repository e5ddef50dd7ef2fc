"""Table formats: one module each, all with the contract of ``Table``."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from corgipile.tables.views import filter, select, slice  # noqa: A004 - adds these to tables as methods, too

if TYPE_CHECKING:
    from corgipile.tables.arrow.file import ArrowFile
    from corgipile.tables.arrow.stream import ArrowStream
    from corgipile.tables.concat import ConcatTable
    from corgipile.tables.images import ImageFolder, decode_image
    from corgipile.tables.memory import MemoryTable
    from corgipile.tables.numpy import NumpyTable
    from corgipile.tables.opening import open  # noqa: A004 - reads as corgipile.open
    from corgipile.tables.parquet import ParquetTable
    from corgipile.tables.subset import Subset
    from corgipile.tables.table import ColumnLayout, Layout, Table
    from corgipile.tables.text.csv import CsvTable
    from corgipile.tables.text.json import JsonLinesTable
    from corgipile.tables.tfrecord.table import TFRecordTable
    from corgipile.tables.webdataset.table import WebDatasetTable

__all__ = [
    "ArrowFile",
    "ArrowStream",
    "ColumnLayout",
    "ConcatTable",
    "CsvTable",
    "ImageFolder",
    "JsonLinesTable",
    "Layout",
    "MemoryTable",
    "NumpyTable",
    "ParquetTable",
    "Subset",
    "TFRecordTable",
    "Table",
    "WebDatasetTable",
    "decode_image",
    "filter",
    "open",
    "select",
    "slice",
]

_LAZY = {
    "ArrowFile": "arrow.file",
    "ArrowStream": "arrow.stream",
    "ColumnLayout": "table",
    "ConcatTable": "concat",
    "CsvTable": "text.csv",
    "ImageFolder": "images",
    "JsonLinesTable": "text.json",
    "Layout": "table",
    "MemoryTable": "memory",
    "NumpyTable": "numpy",
    "ParquetTable": "parquet",
    "Subset": "subset",
    "TFRecordTable": "tfrecord.table",
    "Table": "table",
    "WebDatasetTable": "webdataset.table",
    "decode_image": "images",
    "open": "opening",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use, since most programs need few formats."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    return value
