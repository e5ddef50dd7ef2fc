"""Batches in the requested format, cut from groups of rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from corgipile.errors import BadArgument, MissingExtra
from corgipile.loader.sparse import SparseRows
from corgipile.tables.spans import Rows, array_of, objects
from corgipile.tables.table import is_list, item_bytes

__all__ = ["Cut", "Format", "Unseen", "cutter", "tensors_of"]

Format = Literal["numpy", "torch", "arrow"]
Cut = Callable[[dict[str, Any], int, int], Iterator[Any]]


class Unseen(NamedTuple):
    """Replacements for variable-length rows that this process passes on without reading.

    Attributes:
        numbers: Makes one from a tensor of all rows' numbers and the row lengths.
        others: Makes one from an Arrow array of non-numeric rows.
    """

    numbers: Callable[[Any, list[int]], Any]
    others: Callable[[pa.Array], Any]


def cutter(form: Format, unseen: Unseen | None = None) -> Cut:
    """Return a function that cuts columns into batches: ``(columns, rows, batch_size)``.

    Args:
        form: Batch format.
        unseen: Replacements for variable-length rows; None: lists of one tensor or object per row.

    Example:
        >>> [batch["x"].tolist() for batch in cutter("numpy")({"x": np.arange(5)}, 5, 2)]
        [[0, 1], [2, 3], [4]]
    """
    if form == "numpy":
        return _numpy
    if form == "arrow":
        return _arrow
    if form != "torch":
        raise BadArgument(f'format must be "numpy", "torch" or "arrow", got {form!r}')
    try:
        import torch  # noqa: PLC0415  # optional
    except ImportError:
        raise MissingExtra('format="torch" needs PyTorch: pip install torch') from None

    def split(flat: Any, lengths: list[int]) -> Any:  # views of one tensor are cheaper than thousands of tensors
        return list(torch.unsafe_split_with_sizes(flat, lengths))

    unseen = unseen or Unseen(split, tensors_of)
    return lambda columns, rows, size: _zip_columns(
        {name: _tensors(torch, column, rows, size, unseen) for name, column in columns.items()}
    )


def _zip_columns(parts: Mapping[str, Iterable[Any]]) -> Iterator[dict[str, Any]]:
    """Yield one dictionary per batch from each column's parts."""
    if len(parts) == 1:
        [(name, values)] = parts.items()
        return ({name: value} for value in values)
    names = tuple(parts)
    return (dict(zip(names, values, strict=True)) for values in zip(*parts.values(), strict=True))


def _slices(column: Any, rows: int, size: int) -> Iterator[Any]:
    return (column[start : start + size] for start in range(0, rows, size))


def _numpy(columns: dict[str, Any], rows: int, size: int) -> Iterator[Any]:
    for start in range(0, rows, size):
        yield {name: _array(column[start : start + size]) for name, column in columns.items()}


def _array(column: Any) -> Any:
    """Return a column as an array, with dtype object for non-numeric values."""
    if isinstance(column, SparseRows):
        return column.dense()
    if isinstance(column, pa.Array) and pa.types.is_union(column.type):
        column = column.to_pylist()  # Arrow cannot convert unions to NumPy
    if isinstance(column, pa.Array):
        return column.to_numpy(zero_copy_only=False)
    if isinstance(column, list | Rows):
        rows = column.split() if isinstance(column, Rows) else column
        return np.fromiter(rows, np.object_, len(rows))
    return column


def _arrow(columns: dict[str, Any], rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """Make record batches from copies: Arrow data must not change when pooled arrays are reused."""
    arrays = {}
    for name, column in columns.items():
        arrays[name] = column
        if not isinstance(column, pa.Array):
            arrays[name] = array_of(column.copy())
            for width in reversed(column.shape[1:]):
                arrays[name] = pa.FixedSizeListArray.from_arrays(arrays[name], width)
    whole = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
    return (whole.slice(start, min(size, rows - start)) for start in range(0, rows, size))


def tensors_of(column: pa.Array) -> list[Any]:
    """Return one value per row of an Arrow array: a tensor for lists of numbers, else a Python value.

    Example:
        >>> tensors_of(pa.array(["a", None])), tensors_of(pa.array([[1, 2], [3]]))
        (['a', None], [tensor([1, 2]), tensor([3])])
    """
    import torch  # noqa: PLC0415  # optional

    if item_bytes(column.type) and is_list(column.type):
        return [_tensor(torch, row) for row in _array(column)]
    values = objects(column)
    return values if isinstance(values, list) else column.to_pylist()


def _tensors(torch: Any, column: Any, rows: int, size: int, unseen: Unseen) -> Iterable[Any]:
    """Cut a column into tensors; variable-length rows become one tensor or Python value per row."""
    if isinstance(column, pa.Array) and is_list(column.type):
        arrays = objects(column, own=True)
        column = arrays if isinstance(arrays, Rows) else column
    if isinstance(column, SparseRows):
        return (torch.from_numpy(part.dense()) for part in _slices(column, rows, size))
    if isinstance(column, pa.Array):
        return (unseen.others(part) for part in _slices(column, rows, size))
    if isinstance(column, Rows):
        parts = _slices(column, rows, size)
        return (unseen.numbers(torch.from_numpy(part.values), part.lengths.tolist()) for part in parts)
    if isinstance(column, list):
        return ([_tensor(torch, row) for row in part] for part in _slices(column, rows, size))
    column = column if isinstance(column, torch.Tensor) else torch.from_numpy(column)
    return torch.unsafe_split(column, size)  # type: ignore[no-any-return]  # unsafe: no view tracking


def _tensor(torch: Any, row: Any) -> Any:
    if not isinstance(row, np.ndarray):
        return row
    return torch.from_numpy(row if row.flags.writeable else row.copy())
