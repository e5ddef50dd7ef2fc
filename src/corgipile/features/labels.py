"""Reads a label column of text once: for its classes, and where there are few rows for each row's class, too."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.arrow_memory import frugal
from corgipile.errors import BadLabel
from corgipile.features.encoders import Classes, plain
from corgipile.tables.arrow.spans import flat
from corgipile.tables.scan import scan_column
from corgipile.tables.table import Table

__all__ = ["Codes", "TextLabels", "read_labels"]

MOST_KEPT = 4 << 20  # bytes, outside of any budget
Codes = npt.NDArray[np.unsignedinteger]


class TextLabels(NamedTuple):
    """The classes of a label column, ascending, and of each row the place of its class, where those were kept."""

    classes: tuple[str, ...]
    codes: Codes | None


def read_labels(table: Table, label: str) -> TextLabels:
    """Read a label column of text.

    Args:
        table: The rows.
        label: The column; null is no class, and where there is one no codes are kept.

    Raises:
        BadSchema: It holds no text.
        BadLabel: It has none, or more values than a model tells classes apart.

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
            found = plain(column).dictionary_encode()
            places = [_place(seen, value, label) for value in found.dictionary.to_pylist()]
            if parts is not None:
                parts = _kept(parts, found, places)
    if not seen:
        raise BadLabel(f"label column {label!r} of {table!r} has no value that could be a class")
    classes = sorted(seen)
    if parts is None:
        return TextLabels(tuple(classes), None)
    rank = np.empty(len(seen), np.min_scalar_type(len(seen)))
    rank[[seen[value] for value in classes]] = np.arange(len(seen))
    return TextLabels(tuple(classes), np.concatenate([rank[part] for part in parts]))


def _place(seen: dict[str, int], value: str, label: str) -> int:
    """Return the place of a value among those seen, now or before."""
    place = seen.setdefault(value, len(seen))
    if place >= _kernel.MOST_CLASSES:
        raise BadLabel(
            f"label column {label!r} has more than {_kernel.MOST_CLASSES} different values; of text each is a "
            "class, and no model tells more apart"
        )
    return place


def _kept(parts: list[Codes], found: pa.DictionaryArray, places: list[int]) -> list[Codes] | None:
    """Add the codes of some rows to those that are kept; None where that cannot be."""
    if found.null_count:
        return None
    codes = np.array(places, np.min_scalar_type(max(places, default=0)))[flat(found.indices)]
    return [*parts, codes] if sum(part.nbytes for part in parts) + codes.nbytes <= MOST_KEPT else None
