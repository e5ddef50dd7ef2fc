"""Fields of batches of any kind: row numbers or keys."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument

Finder = str | int | Callable[[Any], Any]


class Field:
    """Reads a field of batches: dictionaries, tuples, Arrow, data frames, objects, lists of rows.

    A field of a named tuple has a name and an index.

    Example:
        >>> Field("label", "key").of({"x": [[1.0], [2.0]], "label": [0, 1]})
        array([0, 1])
        >>> Field(1, "key").of(([[1.0], [2.0]], [0, 1])), Field("label", "key").of([{"label": 4}, {"label": 5}])
        (array([0, 1]), array([4, 5]))
    """

    def __init__(self, finder: Finder, what: str) -> None:
        if isinstance(finder, bool) or not (isinstance(finder, str | int) or callable(finder)):
            raise BadArgument(f"{what} must be a name, an index in the batch, or a function of it, got {finder!r}")
        self._finder, self._what = finder, what
        self._columns: int | None = None  # 0: one value per row

    def of(self, batch: Any) -> npt.NDArray[Any]:
        """Return a batch's values: one per row, or (rows, columns)."""
        column = batch.get(self._finder) if type(batch) is dict else None
        if type(column) is np.ndarray and column.ndim == 1 and self._columns == 0 and column.dtype.kind in "iuf":
            return column  # the usual batch, in a tenth of the time
        values = as_array(self._read(batch))
        if values.ndim == 0:
            values = values[None]
        if values.dtype == object:
            values = self._text_of(values)
        if values.dtype.kind in "mM":
            values = np.where(np.isnat(values), np.nan, values.astype(np.int64))
        if values.dtype.kind not in "biufSU":
            raise BadArgument(f"{self.name} must be numbers, booleans, text or timestamps, got {values.dtype}")
        if values.ndim > 2:
            values = values.reshape(len(values), -1)
        self._check_columns(values)
        return values

    @property
    def name(self) -> str:
        """Return the field's name in messages."""
        return f"{self._what}={getattr(self._finder, '__name__', repr(self._finder))}"

    def _read(self, batch: Any) -> Any:
        if callable(self._finder):
            return self._finder(batch)
        try:
            if isinstance(batch, Mapping) or hasattr(batch, "columns"):
                return batch[self._finder]
            if isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
                if batch and _single(batch[0], self._finder):
                    return [_value(row, self._finder) for row in batch]
                return _value(batch, self._finder)
            if isinstance(self._finder, str) and hasattr(batch, self._finder):
                return getattr(batch, self._finder)
            return batch[self._finder]
        except (KeyError, IndexError, TypeError, AttributeError):
            raise BadArgument(f"{self.name} must be in each batch, got {_describe(batch)}") from None

    def _text_of(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        kinds = {type(value).__name__ for value in values.ravel()}
        if kinds <= {"str"}:
            return values.astype(str)
        if kinds <= {"bytes"}:
            return values.astype(bytes)
        raise BadArgument(f"{self.name} must be all numbers or all text, got {', '.join(sorted(kinds))}")

    def _check_columns(self, values: npt.NDArray[Any]) -> None:
        columns = values.shape[1] if values.ndim == 2 else 0
        if self._columns is None:
            self._columns = columns
        if columns != self._columns:
            raise BadArgument(
                f"{self.name} must have {self._columns} columns as in the first batch, got {columns} later"
            )


def as_array(values: Any) -> npt.NDArray[Any]:
    """Return a batch's field, such as a tensor, Arrow column, series or list, as an array.

    Example:
        >>> import pyarrow as pa
        >>> as_array(pa.array([1, 2]))
        array([1, 2])
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        try:
            values = values.numpy()
        except TypeError:  # number types that NumPy lacks, such as bfloat16
            values = values.float().numpy()
    elif hasattr(values, "to_numpy"):
        try:
            values = values.to_numpy(zero_copy_only=False)
        except TypeError:
            values = values.to_numpy()
    elif isinstance(values, Sequence) and values and hasattr(values[0], "detach"):
        values = [as_array(value) for value in values]
    try:
        return np.asarray(values)
    except ValueError:
        raise BadArgument("a batch must have one value per row, got rows of different lengths") from None


def batches_of(table: Any) -> str:
    """Return code that makes batches of a table that does not iterate over them; "" for other objects.

    Example:
        >>> import pyarrow as pa
        >>> batches_of(pa.table({"x": [1]})), batches_of([1])
        ('table.to_batches(64)', '')
    """
    if hasattr(table, "iter_slices") and hasattr(table, "columns"):
        return "frame.iter_slices(64)"
    if hasattr(table, "collect_schema"):
        return "frame.collect().iter_slices(64)"
    if hasattr(table, "iloc") and hasattr(table, "columns"):
        return "(frame[at : at + 64] for at in range(0, len(frame), 64))"
    return "table.to_batches(64)" if hasattr(table, "to_batches") and hasattr(table, "combine_chunks") else ""


def _value(row: Any, finder: Any) -> Any:
    """Return a field of a tuple or mapping, by index or name."""
    return getattr(row, finder) if isinstance(finder, str) and hasattr(row, "_fields") else row[finder]


def _single(row: Any, finder: Finder) -> bool:
    """Return whether a batch is a list of rows, given its first element, and not a list of columns."""
    if isinstance(row, Mapping) or (isinstance(finder, str) and hasattr(row, "_fields")):
        return finder in (row if isinstance(row, Mapping) else row._fields)
    return isinstance(row, tuple) and isinstance(finder, int) and -len(row) <= finder < len(row)


def _describe(batch: Any) -> str:
    if isinstance(batch, Mapping):
        return f"a dictionary of {', '.join(map(repr, list(batch)[:10]))}"
    if isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        return f"a {type(batch).__name__} of {len(batch)}"
    names = getattr(getattr(batch, "schema", None), "names", None)
    return f"a {type(batch).__name__}" + (f" of {', '.join(map(repr, names[:10]))}" if names else "")
