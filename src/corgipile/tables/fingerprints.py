"""What tells tables apart: their content, wherever it lies; in states made before that, names and times of change."""

from collections import OrderedDict

import numpy as np

from corgipile.outputs import files_read
from corgipile.tables.io.column import PlacedColumn
from corgipile.tables.io.files import PIECE, File, digest, legacy_fingerprints, sample_size
from corgipile.tables.table import Table, fixed_field

__all__ = ["fingerprint_of", "is_of", "place_of", "sampled_rows"]

KEPT = 256
SAMPLES, COLUMNS = 64, 256  # rows, and columns, of which values are looked at
_older: OrderedDict[str, str] = OrderedDict()  # of tables that were asked for theirs, as earlier releases had them


def fingerprint_of(table: Table) -> str:
    """Return the fingerprint of a table, for a state; `is_of` then knows it in states of earlier releases, too.

    Example:
        >>> from corgipile.tables import open
        >>> table = open({"x": np.arange(3)})
        >>> fingerprint_of(table) == table.fingerprint
        True
    """
    found = table.fingerprint
    with legacy_fingerprints():
        _older[found] = table.fingerprint
    while len(_older) > KEPT:
        _older.popitem(last=False)
    return found


def is_of(said: object, mine: str) -> bool:
    """Say whether a fingerprint in a state is that of a table whose fingerprint is ours."""
    return isinstance(said, str) and said in (mine, _older.get(mine))


def place_of(table: Table) -> str:
    """Return what tells the files of a table, as they are now on this machine, from all others."""
    return digest(table.fingerprint, *(file.place for file in files_read(table) if isinstance(file, File)))


def sampled_rows(table: Table, file: File) -> list[str]:
    """Return digests of some rows of columns that lie in place, where pieces of the file may show nothing of them."""
    if not file.is_sampled:
        return []
    names = [field.name for field in table.schema if fixed_field(field.type) is not None][:COLUMNS]
    layout = table.layout(names) if names and len(table) else None
    if layout is None:
        return []
    picks = np.unique(np.linspace(0, len(table) - 1, sample_size(SAMPLES)).astype(np.int64))
    narrow = [name for name in names if layout.columns[name].width < PIECE]
    return [digest(PlacedColumn(layout, name).take(picks).tobytes().hex()) for name in narrow]
