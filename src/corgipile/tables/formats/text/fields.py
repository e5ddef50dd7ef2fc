"""Numeric columns of delimited text, read by the kernel; columns with doubtful values are left to pyarrow."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.tables.table import fixed_field, type_code

__all__ = ["Slots", "number_code", "parts_numbers", "read_numbers", "slots_for"]

BOOL_CODE, BYTE_CODE = 10, 1  # CP_FIELD_BOOL of kernel/formats/fields.h, and its type in memory
# Memory, offset of the first row, stride, types in text and in memory, validity bits.
Slots = tuple[npt.NDArray[Any], int, int, int, int, npt.NDArray[np.uint8] | None]


def parts_numbers(mark: str) -> bool:
    """Return whether a delimiter cannot be part of a number.

    Example:
        >>> parts_numbers(";"), parts_numbers("e"), parts_numbers(".")
        (True, False, False)
    """
    return not (mark.isalnum() or mark in "+-.")


def number_code(kind: pa.DataType) -> int:
    """Return the kernel's code of a column type that it parses, -1 for others.

    Example:
        >>> number_code(pa.float64()), number_code(pa.string())
        (9, -1)
    """
    if pa.types.is_boolean(kind):
        return BOOL_CODE
    fixed = fixed_field(kind)
    return -1 if fixed is None or fixed[1] or pa.types.is_float16(kind) else type_code(fixed[0])


def slots_for(kind: pa.DataType, array: npt.NDArray[Any], at: int, stride: int) -> Slots | None:
    """Return the slots for a field; None if the kernel cannot parse or cast its type.

    Example:
        >>> slots_for(pa.float64(), np.zeros((2, 3), np.float32), 4, 12)[1:]
        (4, 12, 9, 8, None)
    """
    code, is_bool = number_code(kind), array.dtype == np.bool_
    to = BYTE_CODE if is_bool else type_code(array.dtype)
    fits = is_bool if code == BOOL_CODE else code == to or array.dtype in (np.float32, np.float64)
    return (array, at, stride, code, to, None) if code >= 0 and fits else None


def read_numbers(
    text: "bytes | memoryview", rows: int, mark: str, kinds: Sequence[pa.DataType | None]
) -> list[pa.Array | None]:
    r"""Read columns of numbers.

    Args:
        text: The rows.
        rows: Number of rows.
        mark: Field delimiter; see `parts_numbers`.
        kinds: The type of each field, None to skip it.

    Returns:
        A column per field, None if it is skipped or a value may not be a number; all are None if rows are malformed.

    Example:
        >>> read_numbers(b"1,a,1e3\n,b,x\n", 2, ",", [pa.int64(), None, pa.float64()])[0].to_pylist()
        [1, None]
    """
    if text[-1:] not in (b"\n", b"\r"):
        text = bytes(text) + b"\n"
    wanted = [place for place, kind in enumerate(kinds) if kind is not None]
    codes = [number_code(kinds[place]) for place in wanted]
    widths = [
        1 if code == BOOL_CODE else kinds[place].bit_width // 8  # type: ignore[union-attr]
        for code, place in zip(codes, wanted, strict=True)
    ]
    ends = np.cumsum([-(-rows * width // 8) * 8 for width in widths]).tolist()
    data, validity_bits = np.empty(ends[-1], np.uint8), np.full((len(wanted), -(-rows // 8)), 255, np.uint8)
    fields: list[Slots | None] = [None] * len(kinds)
    for place, code, width, begin, bits in zip(wanted, codes, widths, [0, *ends], validity_bits, strict=False):
        fields[place] = data, begin, width, code, BYTE_CODE if code == BOOL_CODE else code, bits
    nulls = _kernel.fields_read(text, rows, ord(mark), None, fields)
    columns: list[pa.Array | None] = [None] * len(kinds)
    if nulls is None:
        return columns
    whole = pa.py_buffer(data)
    for place, code, width, begin, bits in zip(wanted, codes, widths, [0, *ends], validity_bits, strict=False):
        missing = nulls[place]
        if missing < 0:
            continue
        values = whole.slice(begin, rows * width)
        if code == BOOL_CODE:
            values = pa.py_buffer(np.packbits(np.frombuffer(values, np.uint8), bitorder="little"))
        validity = pa.py_buffer(bits) if missing else None
        columns[place] = pa.Array.from_buffers(kinds[place], rows, [validity, values], missing)
    return columns
