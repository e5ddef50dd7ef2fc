"""Table identities: from the content, and for states of earlier releases from names and modification times."""

from collections import OrderedDict

import numpy as np

from corgipile.tables.io.column import PlacedColumn
from corgipile.tables.io.files import PIECE, File, digest, legacy_fingerprints, sample_size
from corgipile.tables.io.sources import files_read
from corgipile.tables.table import Table, fixed_field

__all__ = ["fingerprint_of", "is_fingerprint_of", "place_of", "sampled_rows"]

MAX_OLDER = 256  # remembered fingerprints
MAX_SAMPLED_ROWS, MAX_SAMPLED_COLUMNS = 64, 256
_older: OrderedDict[str, str] = OrderedDict()  # fingerprints of earlier releases by their present ones


def fingerprint_of(table: Table) -> str:
    """Return the fingerprint to save in a state; `is_fingerprint_of` then also accepts states of earlier releases.

    Example:
        >>> from corgipile.tables import open
        >>> table = open({"x": np.arange(3)})
        >>> fingerprint_of(table) == table.fingerprint
        True
    """
    fingerprint = table.fingerprint
    with legacy_fingerprints():
        _older[fingerprint] = table.fingerprint
    while len(_older) > MAX_OLDER:
        _older.popitem(last=False)
    return fingerprint


def is_fingerprint_of(saved: object, mine: str) -> bool:
    """Return whether a saved fingerprint belongs to the table with fingerprint ``mine``."""
    return isinstance(saved, str) and saved in (mine, _older.get(mine))


def place_of(table: Table) -> str:
    """Return the identity of a table's files in their present state on this machine."""
    return digest(table.fingerprint, *(file.place for file in files_read(table) if isinstance(file, File)))


def sampled_rows(table: Table, file: File) -> list[str]:
    """Return digests of sampled fixed-width columns, which sampled pieces of the file may miss."""
    if not file.is_sampled:
        return []
    names = [field.name for field in table.schema if fixed_field(field.type) is not None][:MAX_SAMPLED_COLUMNS]
    layout = table.layout(names) if names and len(table) else None
    if layout is None:
        return []
    picks = np.unique(np.linspace(0, len(table) - 1, sample_size(MAX_SAMPLED_ROWS)).astype(np.int64))
    narrow = [name for name in names if layout.columns[name].width < PIECE]
    return [digest(PlacedColumn(layout, name).take(picks).tobytes().hex()) for name in narrow]
