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
from corgipile.tables.tfrecord.table import TFRecordTable
from corgipile.tables.views import filter, select, slice  # noqa: A004 - as above

__all__ = [
    "ArrowFile",
    "ArrowStream",
    "ColumnLayout",
    "ConcatTable",
    "ImageFolder",
    "Layout",
    "MemoryTable",
    "NumpyTable",
    "ParquetTable",
    "Subset",
    "TFRecordTable",
    "Table",
    "decode_image",
    "filter",
    "open",
    "select",
    "slice",
]
