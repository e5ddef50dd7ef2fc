"""The members of a tar file, found by its headers; what they hold is passed over."""

from collections.abc import Iterator
from typing import NamedTuple

from corgipile.errors import CorruptFile
from corgipile.tables.io.files import File

__all__ = ["Member", "Walk", "printable"]

BLOCK = 512
LEAST, MOST = 1 << 12, 1 << 20  # bytes read at a time: of long members no more than their headers
LONGEST = 1 << 20  # bytes of an extended header
_END = bytes(BLOCK)
_FILES = frozenset((b"0", b"\0", b"7"))
_PASSED = frozenset((b"5", b"V", b"K"))  # folders, volume labels, long names of links
_EMPTY = b"123456V"  # kinds of members that are headers only, whatever size they tell
_KINDS = {
    b"1": "is a hard link, which has no bytes of its own (tar --hard-dereference writes them)",
    b"2": "is a symbolic link, which has no bytes of its own (tar --dereference writes them)",
    b"3": "is a device, not a file",
    b"4": "is a device, not a file",
    b"6": "is a pipe, not a file",
    b"S": "is a sparse file, whose bytes do not lie back to back (write it without tar --sparse)",
    b"M": "goes on from another volume; join the volumes first",
}


class Member(NamedTuple):
    """A member of an archive.

    Attributes:
        name: Its path in the archive.
        head: Where its first header begins.
        start: Where its bytes begin.
        size: How many there are.
        flaw: Why it cannot be read, None if it can.
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
        self._data, self._at, self._ahead = b"", 0, LEAST

    def members(self, at: int = 0) -> Iterator[Member]:
        """Yield the files from a header on, and what else has a name and cannot be read.

        Raises:
            CorruptFile: A header is damaged, or the archive is cut short.
        """
        general: dict[str, str] = {}
        own: dict[str, str] = {}
        head = at
        while True:
            block = self._block(at)
            if block == _END:
                self._check_end(at)
                return
            kind, size = block[156:157], self._size(block, at)
            start, head = at + BLOCK, head if own else at
            if kind in (b"x", b"X", b"g", b"L"):
                told = self._extended(at, kind, size)
                general, own = (general | told, own) if kind == b"g" else (general, own | told)
                at = start + _padded(size)
                head = head if own else at
                continue
            said = general | own if general or own else own
            member = self._member(block, head, at, int(said.get("size", size)), said)
            own = {} if kind != b"K" else own
            at = start + _padded(0 if kind in _EMPTY else member.size)
            if at > self._file.size:
                raise CorruptFile(
                    f"{self._place(member.head)}: the archive ends within {member.name!r}; it is truncated"
                )
            if kind not in _PASSED and not (kind in _FILES and member.name.endswith("/")):
                yield member

    def read(self, at: int, length: int) -> bytes:
        """Read bytes that lie near the header walked over last."""
        begin = at - self._at
        if begin < 0 or begin + length > len(self._data):
            near = 0 <= begin <= len(self._data) + self._ahead
            self._ahead = min(2 * self._ahead, MOST) if near else LEAST
            self._data = self._file.read(at, min(max(length, self._ahead), self._file.size - at))
            self._at, begin = at, 0
        return self._data[begin : begin + length]

    def _block(self, at: int) -> bytes:
        if at + BLOCK > self._file.size:
            raise CorruptFile(
                f"{self._file.path} is truncated: no header or end mark (blocks of zeros) at byte {at}, "
                f"where the file has {self._file.size}"
            )
        return self.read(at, BLOCK)

    def _size(self, block: bytes, at: int) -> int:
        """Return the bytes of a member, after checking its header."""
        told, size = _number(block[148:156]), _number(block[124:136])
        if told != sum(block[:148]) + 8 * ord(" ") + sum(block[156:].rstrip(b"\0")):
            raise CorruptFile(f"{self._place(at)}: the checksum of the header is wrong: no tar file, or a damaged one")
        if size is None or size < 0:
            raise CorruptFile(f"{self._place(at)}: the size {block[124:136]!r} is no number")
        return size

    def _member(self, block: bytes, head: int, at: int, size: int, said: dict[str, str]) -> Member:
        name = block[:100].partition(b"\0")[0]
        prefix = block[345:500].partition(b"\0")[0] if block[257:263] == b"ustar\0" else b""
        path = said.get("path") or _text(prefix + b"/" + name if prefix else name)
        kind = block[156:157]
        flaw = None if kind in _FILES else _KINDS.get(kind, f"is of the unknown type {kind!r}")
        if said and any(key.startswith("GNU.sparse.") for key in said):
            flaw = _KINDS[b"S"]
        return Member(path, head, at + BLOCK, size, flaw)

    def _extended(self, at: int, kind: bytes, size: int) -> dict[str, str]:
        """Return what an extended header says of the members after it."""
        if size > LONGEST or at + BLOCK + size > self._file.size:
            raise CorruptFile(f"{self._place(at)}: an extended header of {size} bytes: a damaged tar file")
        data = self.read(at + BLOCK, size)
        if kind == b"L":
            return {"path": _text(data.partition(b"\0")[0])}
        told = {}
        while data:
            length = data.partition(b" ")[0]
            end = int(length) if length.isdigit() else 0
            key, equals, value = data[len(length) + 1 : end - 1].partition(b"=")
            if not equals or data[end - 1 : end] != b"\n" or (key == b"size" and not value.isdigit()):
                raise CorruptFile(f"{self._place(at)}: an extended header does not parse: {data[:40]!r}")
            told[_text(key)] = _text(value)
            data = data[end:].lstrip(b"\0")
        return told

    def _check_end(self, at: int) -> None:
        """Raise CorruptFile if more than zeros follow the end mark: rows would be left out without a word."""
        while at < self._file.size:
            data = self._file.read(at, min(MOST, self._file.size - at))
            if data.count(0) != len(data):
                place = at + len(data) - len(data.lstrip(b"\0"))
                raise CorruptFile(
                    f"{self._file.path} goes on behind its end mark, at byte {place}: several archives in one file, "
                    "of which others would not be read (`tar --concatenate` joins archives), or damage"
                )
            at += len(data)

    def _place(self, at: int) -> str:
        return f"{self._file.path}, header at byte {at}"


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _number(field: bytes) -> int | None:
    """Return a number: octal digits, or base 256 where it is too large for these."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.partition(b"\0")[0].strip()
    try:
        return int(digits or b"0", 8) if field[0] < 0x80 else None
    except ValueError:
        return None


def printable(name: str) -> str:
    """Return a name as text that can be written: what is no UTF-8 in it escaped."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
