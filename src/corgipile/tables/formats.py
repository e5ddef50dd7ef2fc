"""The formats that can be opened: one entry a format."""

from collections.abc import Callable
from typing import NamedTuple

from corgipile.tables import arrow, footer, numpy, parquet, svmlight
from corgipile.tables.base import Table


class Format(NamedTuple):
    """Tells how a kind of file is known, and what opens it.

    Attributes:
        magic: First bytes of every such file; empty for text.
        suffixes: Endings of names by which files in a folder are found.
        open: Opens one file.
        options: Options of ``open`` that apply.
    """

    magic: bytes
    suffixes: tuple[str, ...]
    open: Callable[..., Table]
    options: frozenset[str] = frozenset()


FORMATS = {
    "arrow": Format(footer.MAGIC, arrow.SUFFIXES, arrow.ArrowFile),
    "numpy": Format(numpy.MAGIC, numpy.SUFFIXES, numpy.NumpyTable, frozenset({"label"})),
    "parquet": Format(parquet.MAGIC, parquet.SUFFIXES, parquet.ParquetTable),
    "svmlight": Format(b"", svmlight.SUFFIXES, svmlight.SvmlightTable, frozenset({"zero_based"})),
}
