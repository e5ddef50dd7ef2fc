"""Reads a text label column once, for its classes and, in small tables, each row's class."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.arrow_memory import frugal
from corgipile.errors import BadLabel
from corgipile.features.encoders import Classes, plain
from corgipile.tables.scan import scan_column
from corgipile.tables.spans import flat
from corgipile.tables.table import Table

__all__ = ["Codes", "TextLabels", "read_labels"]

MAX_CODE_BYTES = 4 << 20  # cached codes, which no budget counts
Codes = npt.NDArray[np.unsignedinteger]


class TextLabels(NamedTuple):
    """The classes of a label column, ascending, and the class place of each row if they were cached."""

    classes: tuple[str, ...]
    codes: Codes | None


def read_labels(table: Table, label: str) -> TextLabels:
    """Read a label column of text; null is not a class, and with nulls no codes are cached.

    Example:
        >>> from corgipile.tables import open
        >>> read_labels(open(pa.table({"sort": ["pear", "apple", "pear"]})), "sort")
        TextLabels(classes=('apple', 'pear'), codes=array([1, 0, 1], dtype=uint8))
    """
    Classes(label).type_of(table.schema.field(label).type)
    seen: dict[str, int] = {}
    parts: list[Codes] | None = []
    with frugal():
        for _, column in scan_column(table, label):
            encoded = plain(column).dictionary_encode()
            places = [_number(seen, value, label) for value in encoded.dictionary.to_pylist()]
            if parts is not None:
                parts = _append_codes(parts, encoded, places)
    if not seen:
        raise BadLabel(f"label column {label!r} of {table!r} has no value that could be a class")
    classes = sorted(seen)
    if parts is None:
        return TextLabels(tuple(classes), None)
    rank = np.empty(len(seen), np.min_scalar_type(len(seen)))
    rank[[seen[value] for value in classes]] = np.arange(len(seen))
    return TextLabels(tuple(classes), np.concatenate([rank[part] for part in parts]))


def _number(seen: dict[str, int], value: str, label: str) -> int:
    """Return the number of a value, which is new or already seen."""
    place = seen.setdefault(value, len(seen))
    if place >= _kernel.MOST_CLASSES:
        excess = f"more than {_kernel.MOST_CLASSES} different values, more than a model supports as classes"
        raise BadLabel(f"label column {label!r} has {excess}")
    return place


def _append_codes(parts: list[Codes], column: pa.DictionaryArray, places: list[int]) -> list[Codes] | None:
    """Append the codes of some rows; return None if they cannot be cached."""
    if column.null_count:
        return None
    codes = np.array(places, np.min_scalar_type(max(places, default=0)))[flat(column.indices)]
    return [*parts, codes] if sum(part.nbytes for part in parts) + codes.nbytes <= MAX_CODE_BYTES else None
