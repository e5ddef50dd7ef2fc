"""Walks over the headers of a tar file without reading its members."""

from collections.abc import Iterator
from typing import NamedTuple

from corgipile.errors import CorruptFile
from corgipile.tables.io.files import File

__all__ = ["Member", "Walk", "printable"]

BLOCK = 512
MIN_READ, MAX_READ = 1 << 12, 1 << 20  # bytes per read; long members are skipped
MAX_EXTENDED_HEADER = 1 << 20  # bytes
_END = bytes(BLOCK)
_FILES = frozenset((b"0", b"\0", b"7"))
_NOT_MEMBERS = frozenset((b"5", b"V", b"K"))  # folders, volume labels, long link names
_HEADER_ONLY = b"123456V"  # members without data, whatever size they state
_UNSUPPORTED = {
    b"1": "is a hard link without data; rewrite the archive with tar --hard-dereference",
    b"2": "is a symbolic link without data; rewrite the archive with tar --dereference",
    b"3": "is a device, not a file",
    b"4": "is a device, not a file",
    b"6": "is a pipe, not a file",
    b"S": "is a sparse file, whose bytes are not contiguous; rewrite the archive without tar --sparse",
    b"M": "continues from another volume; join the volumes first",
}


class Member(NamedTuple):
    """A member of an archive.

    Attributes:
        name: Its path in the archive.
        head: Start of its first header.
        start: Start of its bytes.
        size: Number of bytes.
        flaw: Reason why it cannot be read, None if it can.
    """

    name: str
    head: int
    start: int
    size: int
    flaw: str | None


class Walk:
    """Walks over the headers of an archive: ustar, GNU and pax.

    Args:
        file: The archive.

    Example:
        >>> import tarfile, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with tarfile.open(f"{folder}/a.tar", "w") as archive:
        ...         archive.addfile(tarfile.TarInfo("0001.cls"))
        ...     [member[:4] for member in Walk(File(f"{folder}/a.tar")).members()]
        [('0001.cls', 0, 512, 0)]
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self._data, self._at, self._ahead = b"", 0, MIN_READ

    def members(self, at: int = 0) -> Iterator[Member]:
        """Yield the files from a header on, and the other members that cannot be read.

        Raises:
            CorruptFile: A header is damaged, or the archive is truncated.
        """
        general: dict[str, str] = {}
        local: dict[str, str] = {}
        head = at
        while True:
            block = self._block(at)
            if block == _END:
                self._check_end(at)
                return
            kind, size = block[156:157], self._size(block, at)
            start, head = at + BLOCK, head if local else at
            if kind in (b"x", b"X", b"g", b"L"):
                fields = self._read_extended(at, kind, size)
                general, local = (general | fields, local) if kind == b"g" else (general, local | fields)
                at = start + _padded(size)
                head = head if local else at
                continue
            attributes = general | local if general or local else local
            member = self._member(block, head, at, int(attributes.get("size", size)), attributes)
            local = {} if kind != b"K" else local
            at = start + _padded(0 if kind in _HEADER_ONLY else member.size)
            if at > self._file.size:
                raise CorruptFile(f"{self._place(member.head)}: the archive is truncated within {member.name!r}")
            if kind not in _NOT_MEMBERS and not (kind in _FILES and member.name.endswith("/")):
                yield member

    def read(self, at: int, length: int) -> bytes:
        """Read bytes near the last header, through a read-ahead buffer."""
        begin = at - self._at
        if begin < 0 or begin + length > len(self._data):
            near = 0 <= begin <= len(self._data) + self._ahead
            self._ahead = min(2 * self._ahead, MAX_READ) if near else MIN_READ
            self._data = self._file.read(at, min(max(length, self._ahead), self._file.size - at))
            self._at, begin = at, 0
        return self._data[begin : begin + length]

    def _block(self, at: int) -> bytes:
        if at + BLOCK > self._file.size:
            raise CorruptFile(
                f"{self._file.path} is truncated: byte {at} must begin a header or an end mark of zeros, "
                f"but the file has {self._file.size} bytes"
            )
        return self.read(at, BLOCK)

    def _size(self, block: bytes, at: int) -> int:
        """Check a header and return the bytes of its member."""
        checksum, size = _number(block[148:156]), _number(block[124:136])
        if checksum != sum(block[:148]) + 8 * ord(" ") + sum(block[156:].rstrip(b"\0")):
            raise CorruptFile(f"{self._place(at)}: the header has a wrong checksum: no tar file, or damage")
        if size is None or size < 0:
            raise CorruptFile(f"{self._place(at)}: the size must be a number, got {block[124:136]!r}")
        return size

    def _member(self, block: bytes, head: int, at: int, size: int, attributes: dict[str, str]) -> Member:
        name = block[:100].partition(b"\0")[0]
        prefix = block[345:500].partition(b"\0")[0] if block[257:263] == b"ustar\0" else b""
        path = attributes.get("path") or _text(prefix + b"/" + name if prefix else name)
        kind = block[156:157]
        flaw = None if kind in _FILES else _UNSUPPORTED.get(kind, f"is of the unknown type {kind!r}")
        if attributes and any(key.startswith("GNU.sparse.") for key in attributes):
            flaw = _UNSUPPORTED[b"S"]
        return Member(path, head, at + BLOCK, size, flaw)

    def _read_extended(self, at: int, kind: bytes, size: int) -> dict[str, str]:
        """Return the attributes in an extended header."""
        if size > MAX_EXTENDED_HEADER or at + BLOCK + size > self._file.size:
            raise CorruptFile(f"{self._place(at)}: the tar file is damaged: an extended header of {size} bytes")
        data = self.read(at + BLOCK, size)
        if kind == b"L":
            return {"path": _text(data.partition(b"\0")[0])}
        fields = {}
        while data:
            length = data.partition(b" ")[0]
            end = int(length) if length.isdigit() else 0
            key, equals, value = data[len(length) + 1 : end - 1].partition(b"=")
            if not equals or data[end - 1 : end] != b"\n" or (key == b"size" and not value.isdigit()):
                raise CorruptFile(f"{self._place(at)}: an extended header does not parse: {data[:40]!r}")
            fields[_text(key)] = _text(value)
            data = data[end:].lstrip(b"\0")
        return fields

    def _check_end(self, at: int) -> None:
        """Raise CorruptFile if data follow the end mark, since rows would be lost silently."""
        while at < self._file.size:
            data = self._file.read(at, min(MAX_READ, self._file.size - at))
            if data.count(0) != len(data):
                place = at + len(data) - len(data.lstrip(b"\0"))
                raise CorruptFile(
                    f"{self._file.path} has data after its end mark, at byte {place}: it is damaged, or two archives; "
                    "join archives with `tar --concatenate`"
                )
            at += len(data)

    def _place(self, at: int) -> str:
        return f"{self._file.path}, header at byte {at}"


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _number(field: bytes) -> int | None:
    """Return a number in octal digits, or in base 256 if it is large; None if malformed."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.partition(b"\0")[0].strip()
    try:
        return int(digits or b"0", 8) if field[0] < 0x80 else None
    except ValueError:
        return None


def printable(name: str) -> str:
    """Return a name as valid UTF-8 text, with other bytes escaped."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
