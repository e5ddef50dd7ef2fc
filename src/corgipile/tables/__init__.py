"""Where rows lie: one file a format, one contract (``Table``)."""

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
from corgipile.tables.views import filter, select, slice  # noqa: A004 - as above
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
