"""Registry of table formats."""

from collections.abc import Mapping
from functools import cache

from corgipile.errors import BadArgument
from corgipile.plugins import FORMATS as GROUP
from corgipile.plugins import registered
from corgipile.tables.format import Format
from corgipile.tables.formats import duckdb, huggingface, iceberg, lance, npz, numpy, orc, part, sqlite
from corgipile.tables.formats.arrow import elsewhere as arrow
from corgipile.tables.formats.arrow import stream as arrows
from corgipile.tables.formats.avro import table as avro
from corgipile.tables.formats.delta import table as delta
from corgipile.tables.formats.hdf5 import table as hdf5
from corgipile.tables.formats.images import remote as images
from corgipile.tables.formats.mds import table as mds
from corgipile.tables.formats.parquet import table as parquet
from corgipile.tables.formats.svmlight import table as svmlight
from corgipile.tables.formats.text import csv
from corgipile.tables.formats.text import json as jsonl
from corgipile.tables.formats.tfrecord import table as tfrecord
from corgipile.tables.formats.webdataset import table as webdataset
from corgipile.tables.formats.zarr import table as zarr

__all__ = ["formats"]

BUILT_IN = {
    "anndata": hdf5.ANNDATA,
    "arrow": arrow.FORMAT,
    "arrows": arrows.FORMAT,
    "avro": avro.FORMAT,
    "csv": csv.FORMAT,
    "delta": delta.FORMAT,
    "duckdb": duckdb.FORMAT,
    "hdf5": hdf5.FORMAT,
    "huggingface": huggingface.FORMAT,
    "iceberg": iceberg.FORMAT,
    "images": images.FORMAT,
    "jsonl": jsonl.FORMAT,
    "lance": lance.FORMAT,
    "mds": mds.FORMAT,
    "npz": npz.FORMAT,
    "numpy": numpy.FORMAT,
    "orc": orc.FORMAT,
    "parquet": parquet.FORMAT,
    "part": part.FORMAT,
    "sqlite": sqlite.FORMAT,
    "svmlight": svmlight.FORMAT,
    "tfrecord": tfrecord.FORMAT,
    "webdataset": webdataset.FORMAT,
    "zarr": zarr.FORMAT,
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
