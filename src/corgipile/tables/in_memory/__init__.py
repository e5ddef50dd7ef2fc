"""Tables of objects in memory, without a copy where their layout is Arrow's."""

import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.tables.in_memory import arrays, datasets, frames, sparse, streams
from corgipile.tables.in_memory.science import of_science
from corgipile.tables.io.spill import Spill
from corgipile.tables.memory import MemoryTable
from corgipile.tables.table import Table

__all__ = ["is_pair", "of_memory"]

TENSORS = ("torch", "jax", "jaxlib", "tensorflow")


def is_pair(source: Any) -> bool:
    """Return whether a tuple is rows and their labels, not two tables.

    Example:
        >>> is_pair((np.eye(2), [0, 1])), is_pair(("a.arrow", "b.arrow")), is_pair((np.eye(2), np.eye(2)))
        (True, False, False)
    """
    if not isinstance(source, tuple) or len(source) != 2:
        return False
    rows, labels = source
    if not (_is_array(rows) or sparse.is_sparse(rows) or _library(rows) in ("pandas", "polars")):
        return False
    if not hasattr(labels, "shape") or len(labels.shape) < 2:
        return hasattr(labels, "__len__") and not isinstance(labels, str | bytes | Mapping)
    return bool(labels.shape[1:] == (1,) != rows.shape[1:])  # one column of labels; else two tables


def of_memory(source: Any, open_file: Callable[[str], Table], spill: Spill = None) -> Table | None:
    """Return the table of an object in memory; None for unknown types.

    Args:
        source: The object.
        open_file: Opens a file, for datasets of files.
        spill: Folder for spill files, for streams.

    Example:
        >>> of_memory({"x": [1, 2]}, open).read(0, 1).to_pydict()
        {'x': [1]}
    """
    library, kind = _library(source), type(source).__name__
    if isinstance(source, pa.RecordBatch):
        return MemoryTable(pa.Table.from_batches([source]))
    if library == "datasets" or hasattr(source, "save_to_disk"):
        return datasets.of_hugging_face(source, spill)
    if library in ("anndata", "h5py", "zarr") and (table := of_science(source, library, spill)) is not None:
        return table
    if kind == "LazyFrame":
        raise BadArgument("a LazyFrame must be evaluated first; collect() it, or sink_ipc() it to a file and open that")
    rows = _whole_rows(source, library)
    if rows is not None:
        return MemoryTable(rows)
    if _is_arrow_dataset(source):
        return datasets.of_arrow_dataset(
            source, open_file, lambda found: streams.of_reader(found.scanner().to_reader(), f"a {kind}", spill)
        )
    return _of_stream(source, kind, spill)


def _whole_rows(source: Any, library: str) -> pa.Table | None:
    """Return the rows of an object that is completely in memory; None for others."""
    if is_pair(source):
        rows, labels = _whole_rows(source[0], _library(source[0])), source[1]
        if len(getattr(labels, "shape", ())) == 2:
            labels = _first_column(labels)
        return None if rows is None else arrays.of_pair(rows, labels)
    if sparse.is_sparse(source):
        return sparse.of_sparse(source)
    if library in ("pandas", "polars"):
        return _frame(source, library)
    if isinstance(source, Mapping):
        return arrays.of_columns(source)
    if arrays.is_rows(source):
        return arrays.of_rows(source)
    found = arrays.of_matrix(arrays.as_array("features", source)) if _is_array(source) else source
    return found if isinstance(found, pa.Table) else None


def _first_column(labels: Any) -> Any:
    """Return the single column of labels with two axes."""
    if hasattr(labels, "columns"):
        return labels[labels.columns[0]]
    return arrays.as_array("label", labels)[:, 0]


def _frame(source: Any, library: str) -> pa.Table | None:
    if type(source).__name__ == "Series":
        raise BadArgument(f"a Series of {library} must be made a table first; call to_frame()")
    if library == "polars":
        return frames.of_polars(source) if hasattr(source, "to_arrow") else None
    return frames.of_pandas(source) if hasattr(source, "columns") else None


def _of_stream(source: Any, kind: str, spill: Spill) -> Table | None:
    if hasattr(source, "__arrow_c_stream__"):
        try:
            reader = pa.RecordBatchReader.from_stream(source)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise BadArgument(f"the {kind} must export a table to Arrow: {str(error).splitlines()[0][:300]}") from None
        return streams.of_reader(reader, f"a {kind}", spill)
    if hasattr(source, "__arrow_c_array__"):
        return MemoryTable(pa.Table.from_batches([pa.record_batch(source)]))
    if hasattr(source, "to_reader") and callable(source.to_reader):  # a scanner
        return streams.of_reader(source.to_reader(), f"a {kind}", spill)
    if isinstance(source, types.GeneratorType | Iterator):
        return streams.of_batches(source, f"a {kind}", spill)
    return None


def _library(source: Any) -> str:
    return type(source).__module__.partition(".")[0]


def _is_array(source: Any) -> bool:
    """Return whether an object is a NumPy array or a tensor."""
    return isinstance(source, np.ndarray) or (hasattr(source, "__array__") and _library(source) in TENSORS)


def _is_arrow_dataset(source: Any) -> bool:
    return type(source).__module__.startswith("pyarrow") and hasattr(source, "get_fragments")
