"""Table formats: one module each, all with the contract of ``Table``."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from corgipile.tables.views import filter, select, slice  # noqa: A004 - adds these to tables as methods, too

if TYPE_CHECKING:
    from corgipile.tables.concat import ConcatTable
    from corgipile.tables.formats.arrow.file import ArrowFile
    from corgipile.tables.formats.arrow.stream import ArrowStream
    from corgipile.tables.formats.images.folder import ImageFolder, decode_image
    from corgipile.tables.formats.numpy import NumpyTable
    from corgipile.tables.formats.parquet.table import ParquetTable
    from corgipile.tables.formats.text.csv import CsvTable
    from corgipile.tables.formats.text.json import JsonLinesTable
    from corgipile.tables.formats.tfrecord.table import TFRecordTable
    from corgipile.tables.formats.webdataset.table import WebDatasetTable
    from corgipile.tables.memory import MemoryTable
    from corgipile.tables.opening import open  # noqa: A004 - reads as corgipile.open
    from corgipile.tables.subset import Subset
    from corgipile.tables.table import ColumnLayout, Layout, Table

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
    "ArrowFile": "formats.arrow.file",
    "ArrowStream": "formats.arrow.stream",
    "ColumnLayout": "table",
    "ConcatTable": "concat",
    "CsvTable": "formats.text.csv",
    "ImageFolder": "formats.images.folder",
    "JsonLinesTable": "formats.text.json",
    "Layout": "table",
    "MemoryTable": "memory",
    "NumpyTable": "formats.numpy",
    "ParquetTable": "formats.parquet.table",
    "Subset": "subset",
    "TFRecordTable": "formats.tfrecord.table",
    "Table": "table",
    "WebDatasetTable": "formats.webdataset.table",
    "decode_image": "formats.images.folder",
    "open": "opening",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use, since most programs need few formats."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    return value
