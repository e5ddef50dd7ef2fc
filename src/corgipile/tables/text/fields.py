"""Columns of numbers out of delimited text, read by the kernel; what it is not sure of is left to who knows more."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.tables.table import fixed_field, type_code

__all__ = ["Slots", "number_code", "parts_numbers", "read_numbers", "slots_for"]

TRUTH, BYTE = 10, 1  # CP_FIELD_BOOL of kernel/formats/fields.h, and how it lies in memory
# Memory, where the first row of a field goes and how far apart rows are, types in text and in memory, what is known.
Slots = tuple[npt.NDArray[Any], int, int, int, int, npt.NDArray[np.uint8] | None]


def parts_numbers(mark: str) -> bool:
    """Say whether what parts fields cannot be within a number, where the kernel would take it for a part of it.

    Example:
        >>> parts_numbers(";"), parts_numbers("e"), parts_numbers(".")
        (True, False, False)
    """
    return not (mark.isalnum() or mark in "+-.")


def number_code(kind: pa.DataType) -> int:
    """Return the kernel's number for a type of columns of text that it reads, -1 of others.

    Example:
        >>> number_code(pa.float64()), number_code(pa.string())
        (9, -1)
    """
    if pa.types.is_boolean(kind):
        return TRUTH
    fixed = fixed_field(kind)
    return -1 if fixed is None or fixed[1] or pa.types.is_float16(kind) else type_code(fixed[0])


def slots_for(kind: pa.DataType, array: npt.NDArray[Any], at: int, stride: int) -> Slots | None:
    """Return what lets a field go into slots; None where the kernel does not read, or cast, what it is.

    Example:
        >>> slots_for(pa.float64(), np.zeros((2, 3), np.float32), 4, 12)[1:]
        (4, 12, 9, 8, None)
    """
    code, truth = number_code(kind), array.dtype == np.bool_
    to = BYTE if truth else type_code(array.dtype)
    fits = truth if code == TRUTH else code == to or array.dtype in (np.float32, np.float64)
    return (array, at, stride, code, to, None) if code >= 0 and fits else None


def read_numbers(
    text: "bytes | memoryview", rows: int, mark: str, kinds: Sequence[pa.DataType | None]
) -> list[pa.Array | None]:
    r"""Read columns of numbers.

    Args:
        text: Rows.
        rows: How many there are.
        mark: What parts fields, see `parts_numbers`.
        kinds: The type of each field, None of those that are not asked for.

    Returns:
        A column for each field, None where it is not asked for, or something may be no number; all are None where rows
        are not as expected.

    Example:
        >>> read_numbers(b"1,a,1e3\n,b,x\n", 2, ",", [pa.int64(), None, pa.float64()])[0].to_pylist()
        [1, None]
    """
    if text[-1:] not in (b"\n", b"\r"):
        text = bytes(text) + b"\n"
    wanted = [place for place, kind in enumerate(kinds) if kind is not None]
    codes = [number_code(kinds[place]) for place in wanted]
    widths = [1 if code == TRUTH else kinds[place].bit_width // 8 for code, place in zip(codes, wanted, strict=True)]  # type: ignore[union-attr]
    ends = np.cumsum([-(-rows * width // 8) * 8 for width in widths]).tolist()
    data, known = np.empty(ends[-1], np.uint8), np.full((len(wanted), -(-rows // 8)), 255, np.uint8)
    fields: list[Slots | None] = [None] * len(kinds)
    for place, code, width, begin, bits in zip(wanted, codes, widths, [0, *ends], known, strict=False):
        fields[place] = data, begin, width, code, BYTE if code == TRUTH else code, bits
    nulls = _kernel.fields_read(text, rows, ord(mark), None, fields)
    found: list[pa.Array | None] = [None] * len(kinds)
    if nulls is None:
        return found
    whole = pa.py_buffer(data)
    for place, code, width, begin, bits in zip(wanted, codes, widths, [0, *ends], known, strict=False):
        missing = nulls[place]
        if missing < 0:
            continue
        values = whole.slice(begin, rows * width)
        if code == TRUTH:
            values = pa.py_buffer(np.packbits(np.frombuffer(values, np.uint8), bitorder="little"))
        validity = pa.py_buffer(bits) if missing else None
        found[place] = pa.Array.from_buffers(kinds[place], rows, [validity, values], missing)
    return found
