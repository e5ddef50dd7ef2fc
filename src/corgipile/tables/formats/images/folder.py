"""Image folders, ``root/class/name.jpg``: the files' bytes and their class; users decode them."""

import hashlib
import io
import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, CorruptFile, MissingFile, UnknownFormat
from corgipile.extras import extra
from corgipile.tables.checked import Checked
from corgipile.tables.formats.tfrecord.records import binary_array
from corgipile.tables.io.files import PathLike, check_regular, describe, digest, readable
from corgipile.tables.io.pieces import pick, take_once
from corgipile.tables.io.unpacking import PACKED_TEXT, TEXT
from corgipile.tables.reach import links_to_parent
from corgipile.tables.spans import array_of, places
from corgipile.tables.table import LIMIT, IntArray, check_columns

IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
DECODABLE = ("AVIF", "BMP", "DIB", "GIF", "HEIF", "ICO", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TIFF", "WEBP")
DECODE_ERRORS = (OSError, SyntaxError, ValueError, EOFError, struct.error, LookupError, TypeError, ArithmeticError)
ABOUT = (*TEXT, *PACKED_TEXT)  # text files that may describe the images
CLASSES_KEY = b"corgipile.classes"
THREADS = 16
FILES_PER_TASK = 4
FIELDS = {"image": pa.binary(), "label": pa.int64(), "path": pa.string()}  # int64, as PyTorch losses require


class ImageFolder(Checked):
    """Reads a folder with one folder of images for each class.

    Columns are ``image`` (the file's bytes, which `decode_image` decodes) and ``label`` (int64, the rank of the class
    name). The schema metadata ``corgipile.classes`` holds the class names as JSON. Rows are ordered by class, then by
    path. Folders inside a class belong to it. Hidden files and files without an image suffix are skipped. A class
    without images is an error, and so is an image outside the class folders. Contents are checked only on decoding.

    Args:
        path: The folder.
        paths: Add a column ``path``, relative to the folder.

    Attributes:
        classes: The names of the classes.

    Raises:
        MissingFile: The folder or a class has no image.
        UnknownFormat: An image lies outside the class folders.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("cat", "dog"):
        ...         (Path(folder) / name).mkdir()
        ...         _ = (Path(folder) / name / "1.png").write_bytes(name.encode())
        ...     ImageFolder(folder).read(1, 2).to_pylist()
        [{'image': b'dog', 'label': 1}]
    """

    is_source = True
    is_remote = False

    columnar = True  # labels and paths lie in memory

    def __init__(self, path: PathLike, *, paths: bool = False) -> None:
        place = str(Path(path).expanduser().absolute())
        entries = _entries(place)
        classes = sorted(entry.name for entry in entries if _is_class(entry))
        loose = [entry.name for entry in entries if is_image(entry.name) and not _is_class(entry)]
        self._set(place, {name: sorted(_images(place, name)) for name in classes}, loose, paths=paths)

    def _set(
        self, path: str, classes: Mapping[str, Sequence[tuple[str, int]]], loose: Sequence[str], *, paths: bool
    ) -> None:
        """Set the images of each class, as relative path and size; ``loose`` images lie outside the classes."""
        self.path, self.classes, images_of = path, [*classes], [*classes.values()]
        if not self.classes:
            raise MissingFile(f"folder {path} must have a folder of images for each class, such as cat/1.jpg")
        if loose:
            raise UnknownFormat(
                f"images must lie in a folder for each class, got {min(loose)!r} and {len(loose) - 1} more in {path} "
                "itself; move them into a class folder, or elsewhere"
            )
        for name, images in classes.items():
            if not images:
                raise MissingFile(f"{path.rstrip('/')}/{name} has no image: no file ends in {', '.join(IMAGES)}")
        self._names = pa.array([name for images in images_of for name, _ in images], pa.string())
        self._sizes = np.array([size for images in images_of for _, size in images], np.int64)
        self._labels = np.repeat(np.arange(len(images_of)), list(map(len, images_of)))
        shown = [(name, kind) for name, kind in FIELDS.items() if paths or name != "path"]
        self.schema: pa.Schema = pa.schema(shown, metadata={CLASSES_KEY: json.dumps(self.classes).encode()})

    def __len__(self) -> int:
        return len(self._sizes)

    def __repr__(self) -> str:
        return f"ImageFolder({self.path!r})"

    @property
    def nbytes(self) -> int:
        """Return the bytes of all files."""
        return int(self._sizes.sum())

    @property
    def fingerprint(self) -> str:
        """Return the identity of the classes, and of the path and size of every file."""
        hashed = hashlib.blake2b(self._sizes.tobytes(), digest_size=16)
        for name in self._names.to_pylist():
            hashed.update(name.encode() + b"\0")
        place = self.schema.get_field_index("label")
        schema = self.schema.set(place, pa.field("label", pa.int32()))  # keeps states of earlier releases valid
        return digest(Path(self.path).name, describe(schema), *self.classes, hashed.hexdigest())

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        """Read scattered rows, several files in parallel."""
        return take_once(rows, lambda wanted: self._read(wanted, names))

    def row_sizes(self, rows: IntArray, columns: Sequence[str]) -> IntArray | None:
        """Return the bytes of rows from the listing of the folder."""
        sizes = np.zeros(len(rows), np.int64)
        size_of = {"label": np.full(len(self), 8), "path": np.diff(places(self._names)[0]), "image": self._sizes}
        for name in check_columns(self.schema, columns):
            sizes += size_of[name][rows]
        return sizes

    def take_bytes(self, rows: IntArray, column: str) -> list[bytes]:
        """Read scattered images, several files in parallel."""
        check_columns(self.schema, [column])
        data = [bytes(0)] * len(rows)
        names, sizes = self._names.take(array_of(rows)).to_pylist(), self._sizes[rows].tolist()

        def run(first: int) -> None:
            for i in range(first, min(first + FILES_PER_TASK, len(names))):
                data[i] = _file_bytes(os.path.join(self.path, names[i]), sizes[i])  # noqa: PTH118 - much faster

        _run_in_parallel(run, len(names))
        return data

    def _read(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self._column(name, rows) for name in names], schema=pick(self.schema, names))

    def _column(self, name: str, rows: IntArray) -> pa.Array:
        if name == "label":
            return array_of(self._labels[rows])
        return self._names.take(array_of(rows)) if name == "path" else self._files(rows)

    def _files(self, rows: IntArray) -> pa.Array:
        """Read whole files into one array."""
        ends = np.append(0, np.cumsum(self._sizes[rows]))
        if ends[-1] >= LIMIT:
            raise BadArgument(
                f"images of a record batch must have less than 2 GiB, got {ends[-1]} bytes; read fewer rows"
            )
        data = np.empty(int(ends[-1]), np.uint8)
        self._fill(rows, [data[start:stop] for start, stop in pairwise(ends.tolist())])
        return binary_array(data, ends)

    def _fill(self, rows: IntArray, parts: list[npt.NDArray[np.uint8]]) -> None:
        """Read each file into its buffer."""
        names = self._names.take(array_of(rows)).to_pylist()

        def run(first: int) -> None:
            for name, part in zip(names[first : first + FILES_PER_TASK], parts[first:], strict=False):
                _read_file(os.path.join(self.path, name), part)  # noqa: PTH118 - much faster than Path

        _run_in_parallel(run, len(names))


def is_image(name: str) -> bool:
    """Return whether a file name has an image suffix and is not hidden.

    Example:
        >>> is_image("1.JPG"), is_image("1.txt"), is_image(".1.jpg")
        (True, False, False)
    """
    return name.lower().endswith(IMAGES) and not name.startswith(".")


def holds_images(folder: Path, tables: Sequence[str]) -> bool:
    """Return whether a folder has image folders and no table; text files may describe the images."""
    tables = [name for name in tables if not name.lower().endswith(ABOUT)]
    return not tables and any(
        next(_images(str(folder), entry.name), None) is not None for entry in _entries(folder) if _is_class(entry)
    )


def decode_image(data: bytes | Mapping[str, Any], mode: str = "RGB", *, name: str = "") -> npt.NDArray[np.uint8]:
    """Decode the bytes of an image by Pillow; several threads can decode in parallel.

    Args:
        data: A file's bytes, or a Hugging Face cell: a dictionary with the bytes under ``"bytes"``.
        mode: ``"RGB"``, ``"L"`` (grey), or another mode of Pillow.
        name: The name of the image in errors, such as its path (``paths=True``).

    Returns:
        uint8[height, width, channels], or uint8[height, width] for one channel; writable.

    Raises:
        MissingExtra: Pillow is not installed.
        BadArgument: A cell has only a path; files named in data are not opened.
        CorruptFile: The bytes are no image, are truncated, have a format that runs programs (EPS), or exceed
            ``PIL.Image.MAX_IMAGE_PIXELS``.

    Example:
        >>> decode_image(b"P5 3 2 255 abcdef", "L").tolist()
        [[97, 98, 99], [100, 101, 102]]
    """
    pillow = extra("PIL.Image", "decoding images", "images", package="Pillow")
    content = data.as_py() if isinstance(data, pa.Scalar) else data
    if isinstance(content, Mapping):
        name, content = name or str(content.get("path") or ""), content.get("bytes")
    try:
        content = bytes(memoryview(content))  # type: ignore[arg-type]
    except TypeError:
        path = f" and the path {name!r}" if name else ""
        raise BadArgument(f"an image must be bytes, got {content!r:.40}{path}") from None
    try:
        pillow.init()
        with pillow.open(io.BytesIO(content), formats=[one for one in DECODABLE if one in pillow.OPEN]) as image:
            most, pixels = pillow.MAX_IMAGE_PIXELS, image.width * image.height
            if most is not None and pixels > most:
                raise ValueError(f"it must have at most {most} pixels, got {pixels}; see PIL.Image.MAX_IMAGE_PIXELS")
            return np.array(image.convert(mode))
    except (*DECODE_ERRORS, pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        reason = "" if isinstance(error, pillow.UnidentifiedImageError) else f": {error}"
        at = f"{name}: " if name else ""
        begin = f"{len(content)} bytes that begin with {content[:8]!r}"
        raise CorruptFile(f"{at}{begin} are not a complete image{reason}") from None


def _entries(folder: PathLike) -> "list[os.DirEntry[str]]":
    with readable(str(folder)), os.scandir(folder) as entries:
        return list(entries)


def _is_class(entry: "os.DirEntry[str]") -> bool:
    folder = os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()  # noqa: PTH112 - links to itself raise
    return folder and not entry.name.startswith(".") and not links_to_parent(entry.path)


def _images(root: str, inside: str) -> Iterator[tuple[str, int]]:
    """Yield the path, relative to the root, and the size of all images below a folder."""
    folder = os.path.join(root, inside)  # noqa: PTH118 - much faster than Path, here and below
    for entry in _entries(folder):
        name = f"{inside}/{entry.name}"
        if _is_class(entry):
            yield from _images(root, name)
        elif is_image(entry.name):
            with readable(entry.path):
                status = entry.stat()
            check_regular(status, entry.path)
            yield name, status.st_size


def _run_in_parallel(run: Callable[[int], None], count: int) -> None:
    """Run tasks of a few files each in parallel."""
    tasks = range(0, count, FILES_PER_TASK)
    if len(tasks) == 1:
        run(0)
    elif tasks:
        with ThreadPoolExecutor(min(THREADS, len(tasks)), "corgipile-images") as pool:
            list(pool.map(run, tasks))


def _file_bytes(path: str, expected: int) -> bytes:
    """Read a file that must have the expected size."""
    with readable(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            data = os.read(descriptor, size) if size == expected else b""
            while data and len(data) < size:  # one call reads at most 2 GiB
                more = os.read(descriptor, size - len(data))
                data, size = data + more, size if more else len(data)
        finally:
            os.close(descriptor)
    if len(data) != expected:
        raise CorruptFile(f"{path} must have {expected} bytes as when it was listed, got {size}")
    return data


def _read_file(path: str, into: npt.NDArray[np.uint8]) -> None:
    """Read a file that must have the size of the array."""
    with readable(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size, done = os.fstat(descriptor).st_size, 0
            while size == len(into) and done < size:
                got = os.preadv(descriptor, [into.data[done:]], done)
                size, done = size if got else done, done + got
        finally:
            os.close(descriptor)
    if size != len(into):
        raise CorruptFile(f"{path} must have {len(into)} bytes as when it was listed, got {size}")
