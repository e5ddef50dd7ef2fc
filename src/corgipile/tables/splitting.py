"""Reproducible train/test splits and folds, by a keyed hash of row numbers or column values."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema
from corgipile.random import derive, randoms
from corgipile.sizes import real, whole
from corgipile.tables.opening import open as open_table
from corgipile.tables.row_mask import RowMask
from corgipile.tables.scan import scan
from corgipile.tables.spans import flat
from corgipile.tables.table import Table, check_columns
from corgipile.tables.views import mask_rows

__all__ = ["folds_of", "train_test_split"]

TAG = 0x5B117  # key tag of these hashes
ROWS = 1 << 20  # hashed at a time
FOLD_STEP = 1 << 16  # hashes mapped to folds at a time
U = np.uint64
_MIX = (U(0xBF58476D1CE4E5B9), U(0x94D049BB133111EB))


def train_test_split(table: Any, test: float = 0.1, seed: int = 0, group: str | None = None) -> tuple[Table, Table]:
    """Split a table into a training and a test part; nothing is copied.

    A hash of the seed and the row number puts each row into the test part with probability ``test``. The split is the
    same in every process, does not depend on the file name, and appended rows do not move others. The test part of n
    rows has n x test rows, within 5 x sqrt(n x test x (1 - test)) except for one seed in a million. With ``group``, all
    rows with the same value of that column are on the same side, each value with probability ``test``.

    A part takes about 1.13 bits for each row of the table, 14 MB for 10^8; with ``group``, that column is read once.

    Args:
        table: The table, or a source for `corgipile.open`.
        test: Share of the test part, more than 0 and less than 1.
        seed: Selects the split.
        group: A column of numbers, text, bytes, dates or booleans; null is a value like others.

    Returns:
        The training part and the test part.

    Raises:
        BadArgument: ``test`` is not between 0 and 1, or a part is empty.
        BadSchema: The column holds lists or structs.

    Example:
        >>> rows = pa.table({"x": range(1000), "user": [i // 10 for i in range(1000)]})
        >>> train, test = train_test_split(rows, 0.2, group="user")
        >>> len(train) + len(test), set(train.read(0, len(train))["user"]) & set(test.read(0, len(test))["user"])
        (1000, set())
    """
    share, seed = real(test, "test"), whole(seed, "seed")
    if not 0 < share < 1:
        raise BadArgument(f"test must be a share between 0 and 1, such as 0.1, got {test!r}")
    opened = open_table(table)
    bound = U(min(int(share * 2**64), 2**64 - 1))
    bits = RowMask.joined(part < bound for part in _hashes(opened, seed, group))
    if not 0 < len(bits) < len(opened):
        of = "rows" if group is None else f"values of {group!r}"
        raise BadArgument(
            f"both parts must have rows, but all {len(opened)} rows of {opened!r} are on one side: it has too few {of} "
            f"for test={test!r}; change test or seed"
        )
    return mask_rows(opened, bits.flipped(len(opened))), mask_rows(opened, bits)


def folds_of(table: Table, folds: int, seed: int = 0, group: str | None = None) -> npt.NDArray[np.uint8]:
    """Return the fold of each row by the hash of `train_test_split`; the first of k folds is its test part for 1 / k.

    Raises:
        BadArgument: A fold is empty.
        BadSchema: See `train_test_split`.

    Example:
        >>> from corgipile.tables.opening import open
        >>> np.bincount(folds_of(open(pa.table({"x": range(1000)})), 3)).tolist()
        [327, 335, 338]
    """
    fold_numbers, counts, start = np.empty(len(table), np.uint8), np.zeros(folds, np.int64), 0
    for part in _hashes(table, seed, group):
        for begin in range(0, len(part), FOLD_STEP):
            some = ((part[begin : begin + FOLD_STEP] >> U(32)) * U(folds) >> U(32)).astype(np.uint8)
            fold_numbers[start + begin : start + begin + len(some)] = some
            counts += np.bincount(some, minlength=folds)
        start += len(part)
    empty = np.flatnonzero(counts == 0)
    if empty.size:
        of = "rows" if group is None else f"values of {group!r}"
        raise BadArgument(f"{table!r} has too few {of} for folds={folds}: fold {empty[0]} has no rows")
    return fold_numbers


def _hashes(table: Table, seed: int, group: str | None) -> Iterator[npt.NDArray[np.uint64]]:
    """Yield the hashes of rows, or of their groups, in parts."""
    key = derive(TAG, seed)
    return _row_hashes(len(table), key) if group is None else _value_hashes(table, group, key)


def _row_hashes(rows: int, key: int) -> Iterator[npt.NDArray[np.uint64]]:
    for start in range(0, rows, ROWS):
        yield randoms(key, start, min(ROWS, rows - start))


def _value_hashes(table: Table, name: str, key: int) -> Iterator[npt.NDArray[np.uint64]]:
    check_columns(table.schema, [name])
    return (hashes(batch.column(0), name, key) for _, batch in scan(table, [name]))


def hashes(column: pa.Array, name: str, key: int) -> npt.NDArray[np.uint64]:
    """Return hashes of values, equal for equal values of any width and encoding.

    Example:
        >>> one, other = pa.array([7, None], pa.int8()), pa.array([7, None])
        >>> bool((hashes(one, "x", 1) == hashes(other, "x", 1)).all())
        True
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    hashed = _mix_bits(_bits(column), key) if _is_number(column.type) else _hash_bytes(column, name, key)
    if nulls is not None:
        hashed[nulls] = U(derive(key, 0))
    return hashed


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or (types.is_temporal(kind) and not types.is_interval(kind))
    )


def _bits(column: pa.Array) -> npt.NDArray[np.uint64]:
    """Return 64 bits of each number; those of null are arbitrary."""
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    filled = column.fill_null(False if pa.types.is_boolean(kind) else 0) if column.null_count else column
    values = flat(filled)
    if values.dtype.kind != "f":
        return values.astype(np.uint64 if values.dtype.kind == "u" else np.int64).view(np.uint64)
    wide = values.astype(np.float64) + 0.0  # -0.0 becomes 0.0
    same = np.abs(wide) < 2**53
    integral = same & (np.trunc(np.where(same, wide, 0.5)) == wide)  # 7.0 hashes as 7
    bits = np.where(np.isnan(wide), np.nan, wide).view(np.uint64)
    return np.where(integral, np.where(integral, wide, 0).astype(np.int64).view(np.uint64), bits)


def _mix_bits(values: npt.NDArray[np.uint64], key: int) -> npt.NDArray[np.uint64]:
    """Mix 64 bits with a key by two rounds of the SplitMix64 finalizer."""
    mixed = values + U(derive(key, 1))
    for addend in (U(derive(key, 2)), U(0)):
        mixed = (mixed ^ (mixed >> U(30))) * _MIX[0]
        mixed = (mixed ^ (mixed >> U(27))) * _MIX[1]
        mixed = (mixed ^ (mixed >> U(31))) ^ addend
    return mixed


def _hash_bytes(column: pa.Array, name: str, key: int) -> npt.NDArray[np.uint64]:
    """Hash each value of text, bytes or decimals once."""
    types = pa.types
    if types.is_nested(column.type) or types.is_null(column.type):
        raise BadSchema(f"column {name!r} must hold numbers, text, bytes or dates to form groups, got {column.type}")
    if types.is_decimal(column.type):
        column = column.cast(pa.string())
    coded = column.dictionary_encode()
    secret = key.to_bytes(8, "little")
    digests = [
        blake2b(value.encode() if isinstance(value, str) else bytes(value), digest_size=8, key=secret).digest()
        for value in coded.dictionary.to_pylist()
    ]
    numbers = np.frombuffer(b"".join(digests) or bytes(8), "<u8").astype(np.uint64)
    codes = coded.indices.fill_null(0) if coded.null_count else coded.indices
    return np.asarray(numbers[flat(codes)], np.uint64)
