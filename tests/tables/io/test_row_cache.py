"""Values of single rows are read once if those of all rows are small."""

import numpy as np
import pytest

from corgipile.tables.io.row_cache import MAX_CACHED_BYTES, RowCache


@pytest.mark.parametrize("rows", [10, MAX_CACHED_BYTES // 8, MAX_CACHED_BYTES // 8 + 1])
def test_each_row_is_read_once_if_little_is_kept(rows):
    kept, asked = RowCache(rows, ()), []

    def read(some, at):
        assert (wanted[at] == some).all()
        asked.extend(some.tolist())
        return some * 3

    for wanted in (np.array([7, 2]), np.array([2, 9, 7]), np.array([9, 7, 2]), np.empty(0, np.int64)):
        assert kept.take(wanted, read).tolist() == (wanted * 3).tolist()
    assert asked == ([7, 2, 9] if rows * 8 <= MAX_CACHED_BYTES else [7, 2, 2, 9, 7, 9, 7, 2])


def test_a_failed_reading_is_asked_for_again():
    kept = RowCache(3, (2,), np.float32)
    with pytest.raises(OSError, match="gone"):
        kept.take(np.array([1]), lambda rows, at: (_ for _ in ()).throw(OSError("gone")))
    assert kept.take(np.array([1]), lambda rows, at: np.array([[1, 2]])).tolist() == [[1, 2]]
