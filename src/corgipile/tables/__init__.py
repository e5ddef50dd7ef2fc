"""Where rows lie: one file a format, one contract (``Table``)."""

from corgipile.tables.arrow import ArrowFile
from corgipile.tables.arrowstream import ArrowStream
from corgipile.tables.base import ColumnLayout, Layout, Table
from corgipile.tables.concat import ConcatTable
from corgipile.tables.images import ImageFolder, decode_image
from corgipile.tables.memory import MemoryTable
from corgipile.tables.numpy import NumpyTable
from corgipile.tables.opening import open  # noqa: A004 - reads as corgipile.open
from corgipile.tables.parquet import ParquetTable
from corgipile.tables.subset import Subset
from corgipile.tables.tfrecord import TFRecordTable

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
    "open",
]
