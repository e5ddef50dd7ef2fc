"""The formats that can be opened: one entry a format."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from corgipile.errors import BadArgument
from corgipile.plugins import FORMATS as GROUP
from corgipile.plugins import registered
from corgipile.tables import anndata, huggingface, images, npz, numpy, parquet, zarr
from corgipile.tables.arrow import elsewhere, footer
from corgipile.tables.arrow import file as arrow
from corgipile.tables.arrow import stream as arrowstream
from corgipile.tables.hdf5 import table as hdf5
from corgipile.tables.hdf5.file import MAGIC as HDF5
from corgipile.tables.mds import table as mds
from corgipile.tables.svmlight import table as svmlight
from corgipile.tables.table import Table
from corgipile.tables.text import csv, json
from corgipile.tables.text.table import same_types
from corgipile.tables.tfrecord import table as tfrecord
from corgipile.tables.webdataset import table as webdataset

__all__ = ["Format", "formats"]


class Format(NamedTuple):
    """Tells how a kind of file is known, and what opens it.

    Other packages add formats by an entry point of the group ``corgipile.formats`` that names a `Format`.

    Attributes:
        magic: First bytes of every such file; empty where there are none.
        suffixes: Endings of names by which files in a folder are found.
        open: Opens one file.
        options: Options of ``open`` that apply.
        knows: Says of a file's first 16 bytes whether it is one; for formats without magic.
        agree: Lets several tables that are to be one have the same columns.
        folder: Says whether a folder, in which files of these names may be tables, is itself one of this format.
        index_file: Writes the index by which rows are found, returns its path; None where none is needed.
    """

    magic: bytes
    suffixes: tuple[str, ...]
    open: Callable[..., Table]
    options: frozenset[str] = frozenset()
    knows: Callable[[bytes], bool] = lambda head: False  # noqa: ARG005 - the shape of such a function
    agree: Callable[[Sequence[Table]], list[Table]] = list
    folder: Callable[[Path, Sequence[str]], bool] = lambda path, files: False  # noqa: ARG005 - as above
    index_file: Callable[[str], str] | None = None


_OURS = {
    "anndata": Format(b"", anndata.SUFFIXES, hdf5.hdf5_table, frozenset({"columns", "paths", "spill"})),
    "arrow": Format(footer.MAGIC, arrow.SUFFIXES, elsewhere.open_file, frozenset({"spill"})),
    "arrows": Format(arrowstream.MAGIC, arrowstream.SUFFIXES, arrowstream.ArrowStream, frozenset({"spill"})),
    "csv": Format(
        b"",
        csv.SUFFIXES,
        csv.CsvTable,
        frozenset({"delimiter", "header", "types"}),
        agree=same_types,
        index_file=csv.index_file,
    ),
    "hdf5": Format(HDF5, hdf5.SUFFIXES, hdf5.hdf5_table, frozenset({"columns", "group", "paths", "spill"})),
    "huggingface": Format(
        b"",
        (),
        huggingface.open_saved,
        frozenset({"spill"}),
        folder=lambda path, files: huggingface.is_saved(path),  # noqa: ARG005 - as above
    ),
    "images": Format(b"", (), images.ImageFolder, frozenset({"paths"}), folder=images.holds_images),
    "jsonl": Format(
        b"",
        json.SUFFIXES,
        json.JsonLinesTable,
        frozenset({"types"}),
        agree=same_types,
        index_file=json.index_file,
    ),
    "mds": Format(
        b"",
        mds.SUFFIXES,
        mds.open_mds,
        frozenset({"spill"}),
        folder=lambda path, files: mds.is_mds(path),  # noqa: ARG005 - as above
    ),
    "npz": Format(npz.MAGIC, npz.SUFFIXES, npz.npz_table, frozenset({"columns", "spill"})),
    "numpy": Format(numpy.MAGIC, numpy.SUFFIXES, numpy.NumpyTable, frozenset({"label"})),
    "parquet": Format(parquet.MAGIC, parquet.SUFFIXES, parquet.ParquetTable, frozenset({"spill"})),
    "svmlight": Format(
        b"",
        svmlight.SUFFIXES,
        svmlight.SvmlightTable,
        frozenset({"zero_based"}),
        agree=svmlight.same_base,
        index_file=svmlight.index_file,
    ),
    "tfrecord": Format(
        b"",
        tfrecord.SUFFIXES,
        tfrecord.TFRecordTable,
        frozenset({"index", "decode", "features", "on_bad"}),
        knows=tfrecord.is_head,
        agree=tfrecord.same_columns,
        index_file=tfrecord.index_file,
    ),
    "webdataset": Format(
        b"",
        webdataset.SUFFIXES,
        webdataset.WebDatasetTable,
        frozenset({"decode", "paths"}),
        agree=webdataset.same_columns,
        index_file=webdataset.index_file,
    ),
    "zarr": Format(
        b"",
        (),
        zarr.zarr_table,
        frozenset({"columns", "group", "paths", "spill"}),
        folder=lambda path, files: zarr.is_zarr(path),  # noqa: ARG005 - as above
    ),
}


@cache
def formats() -> Mapping[str, Format]:
    """Return all formats by name: ours, then those that other packages registered.

    Raises:
        BadArgument: A package registered something else, or under a name of ours.

    Example:
        >>> formats()["parquet"].suffixes
        ('.parquet', '.pq')
    """
    others = registered(GROUP)
    for name, kind in others.items():
        if name in _OURS or not isinstance(kind, Format):
            raise BadArgument(f"format {name!r} of another package must be a Format under a name of its own: {kind!r}")
    return {**_OURS, **others}
