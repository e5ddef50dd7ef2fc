"""Numbers of varying length in files: seven bits a byte, the lowest first."""

__all__ = ["varint", "zigzag"]


def varint(data: bytes, at: int) -> tuple[int, int]:
    r"""Return a number and the offset after it; IndexError if it does not end.

    Example:
        >>> varint(b"\xac\x02", 0)
        (300, 2)
    """
    value = shift = 0
    while shift < 70:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise IndexError(at)


def zigzag(data: bytes, at: int) -> tuple[int, int]:
    r"""Return a signed number and the offset after it; IndexError if it does not end.

    Example:
        >>> zigzag(b"\x03", 0)
        (-2, 1)
    """
    value, at = varint(data, at)
    return value >> 1 ^ -(value & 1), at
