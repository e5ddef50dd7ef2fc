"""Registry of table formats."""

from collections.abc import Mapping
from functools import cache

from corgipile.errors import BadArgument
from corgipile.plugins import FORMATS as GROUP
from corgipile.plugins import registered
from corgipile.tables import (
    anndata,
    avro,
    delta,
    duckdb,
    huggingface,
    iceberg,
    images,
    lance,
    npz,
    numpy,
    orc,
    parquet,
    part,
    remote_images,
    sqlite,
    zarr,
)
from corgipile.tables.arrow import elsewhere, footer
from corgipile.tables.arrow import file as arrow
from corgipile.tables.arrow import stream as arrowstream
from corgipile.tables.format import Format
from corgipile.tables.hdf5 import table as hdf5
from corgipile.tables.hdf5.file import MAGIC as HDF5
from corgipile.tables.mds import table as mds
from corgipile.tables.svmlight import table as svmlight
from corgipile.tables.text import csv, json
from corgipile.tables.text.table import same_types
from corgipile.tables.tfrecord import table as tfrecord
from corgipile.tables.webdataset import table as webdataset

__all__ = ["formats"]

BUILT_IN = {
    "anndata": Format(
        b"", anndata.SUFFIXES, hdf5.hdf5_table, frozenset({"columns", "paths", "spill"}), agree=anndata.same_genes
    ),
    "arrow": Format(footer.MAGIC, arrow.SUFFIXES, elsewhere.open_file, frozenset({"spill"})),
    "arrows": Format(
        arrowstream.MAGIC,
        arrowstream.SUFFIXES,
        arrowstream.ArrowStream,
        frozenset({"spill"}),
        knows=arrowstream.is_early,
    ),
    "avro": Format(avro.MAGIC, avro.SUFFIXES, avro.AvroTable, frozenset({"spill"})),
    "csv": Format(
        b"",
        csv.SUFFIXES,
        csv.CsvTable,
        frozenset({"delimiter", "header", "types"}),
        agree=same_types,
        index_file=csv.index_file,
    ),
    "delta": Format(
        b"",
        (),
        delta.open_delta,
        frozenset({"version", "spill"}),
        folder=lambda path, files: delta.is_delta(path),  # noqa: ARG005 - the signature is fixed
        log=True,
    ),
    "duckdb": Format(b"", duckdb.SUFFIXES, duckdb.DuckDBTable, frozenset({"spill", "table"}), knows=duckdb.is_database),
    "hdf5": Format(HDF5, hdf5.SUFFIXES, hdf5.hdf5_table, frozenset({"columns", "group", "paths", "spill"})),
    "huggingface": Format(
        b"",
        (),
        huggingface.open_saved,
        frozenset({"spill"}),
        folder=lambda path, files: huggingface.is_saved(path),  # noqa: ARG005 - the signature is fixed
    ),
    "iceberg": Format(
        b"",
        (),
        iceberg.open_iceberg,
        frozenset({"version", "spill"}),
        folder=lambda path, files: iceberg.is_iceberg(path),  # noqa: ARG005 - the signature is fixed
        log=True,
    ),
    "images": Format(b"", (), remote_images.open_folder, frozenset({"paths"}), folder=images.holds_images),
    "jsonl": Format(
        b"",
        json.SUFFIXES,
        json.JsonLinesTable,
        frozenset({"types"}),
        agree=same_types,
        index_file=json.index_file,
    ),
    "lance": Format(
        b"",
        (),
        lance.LanceTable,
        frozenset({"version"}),
        folder=lambda path, files: lance.is_lance(path),  # noqa: ARG005 - the signature is fixed
        log=True,
    ),
    "mds": Format(
        b"",
        mds.SUFFIXES,
        mds.open_mds,
        frozenset({"spill"}),
        folder=lambda path, files: mds.is_mds(path),  # noqa: ARG005 - the signature is fixed
    ),
    "npz": Format(npz.MAGIC, npz.SUFFIXES, npz.npz_table, frozenset({"columns", "spill"})),
    "numpy": Format(numpy.MAGIC, numpy.SUFFIXES, numpy.NumpyTable, frozenset({"label"})),
    "orc": Format(orc.MAGIC, orc.SUFFIXES, orc.OrcTable, frozenset({"spill"})),
    "parquet": Format(parquet.MAGIC, parquet.SUFFIXES, parquet.ParquetTable, frozenset({"spill"})),
    "part": Format(
        b"",
        (),
        part.open_part,
        folder=lambda path, files: part.is_part(path),  # noqa: ARG005 - the signature is fixed
        log=True,
    ),
    "sqlite": Format(sqlite.MAGIC, sqlite.SUFFIXES, sqlite.SqliteTable, frozenset({"table"})),
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
        folder=lambda path, files: zarr.is_zarr(path),  # noqa: ARG005 - the signature is fixed
    ),
}


@cache
def formats() -> Mapping[str, Format]:
    """Return all formats by name: the built-in ones, then those of other packages.

    Raises:
        BadArgument: A package registered an object that is no `Format`, or used a built-in name.

    Example:
        >>> formats()["parquet"].suffixes
        ('.parquet', '.pq')
    """
    others = registered(GROUP)
    for name, kind in others.items():
        if name in BUILT_IN or not isinstance(kind, Format):
            raise BadArgument(f"format {name!r} of another package must be a Format with a new name, got {kind!r}")
    return {**BUILT_IN, **others}
