"""Image folders in stores: objects from a listing, each fetched whole by one request."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from corgipile.stores.opening import listed_ranges
from corgipile.tables.format import Format
from corgipile.tables.formats.images.folder import ImageFolder, holds_images, is_image
from corgipile.tables.io.files import PathLike, digest
from corgipile.tables.table import IntArray, check_columns
from corgipile.urls import RemotePath, parts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corgipile.stores.buckets import Listed

__all__ = ["FORMAT", "ImageObjects", "RemoteImageFolder", "open_folder"]

FETCHES = 48  # concurrent requests


class ImageObjects:
    """The images below a folder of a store.

    Args:
        path: The folder; its URL ends with a slash.
        objects: The objects listed below it.
    """

    def __init__(self, path: RemotePath, objects: "Sequence[Listed]") -> None:
        self.path, root = path, parts_of(path.full).key
        paths = [(PurePosixPath(one.key.removeprefix(root)), one) for one in objects if one.key.startswith(root)]
        paths = [(below, one) for below, one in sorted(paths) if not any(part.startswith(".") for part in below.parts)]
        self.objects = [(str(below), one) for below, one in paths if len(below.parts) > 1]
        self.loose = [str(below) for below, _ in paths if len(below.parts) == 1 and is_image(str(below))]

    def __str__(self) -> str:
        return str(self.path)

    def __bool__(self) -> bool:
        return any(is_image(below) for below, _ in self.objects)


def open_folder(path: PathLike | ImageObjects, *, paths: bool = False) -> ImageFolder:
    """Open a local or remote folder of images."""
    return RemoteImageFolder(path, paths=paths) if isinstance(path, ImageObjects) else ImageFolder(path, paths=paths)


class RemoteImageFolder(ImageFolder):
    """Reads a remote folder with one folder of images for each class.

    An object that has changed since it was listed raises an error.

    Args:
        folder: The folder.
        paths: Add a column ``path``, relative to the folder.
    """

    is_remote = True

    def __init__(self, folder: ImageObjects, *, paths: bool = False) -> None:
        self._folder, self._shown = folder, paths
        images: dict[str, list[tuple[str, int]]] = {below.partition("/")[0]: [] for below, _ in folder.objects}
        for below, one in folder.objects:
            if is_image(below):
                images[below.partition("/")[0]].append((below, one.size))
        self._set(str(folder.path), images, folder.loose, paths=paths)
        self._objects = [one for below, one in folder.objects if is_image(below)]

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._folder, self._shown)

    @property
    def fingerprint(self) -> str:
        """Return the identity of the classes, and of the path, size and listed etag of every object."""
        return digest(super().fingerprint, *(one.etag for one in self._objects))

    def take_bytes(self, rows: IntArray, column: str) -> list[bytes]:
        """Read scattered images by concurrent requests."""
        check_columns(self.schema, [column])
        return [data.tobytes() for data in self._fetch_rows(np.asarray(rows))]

    def _fill(self, rows: IntArray, parts: list[npt.NDArray[np.uint8]]) -> None:
        for data, part in zip(self._fetch_rows(rows), parts, strict=True):
            part[:] = data

    def _fetch_rows(self, rows: IntArray) -> list[npt.NDArray[np.uint8]]:
        """Fetch objects by concurrent requests."""

        def fetch(row: int) -> npt.NDArray[np.uint8]:
            one = self._objects[row]
            scheme, _, rest = self._folder.path.full.partition("://")
            url = self._folder.path.sibling(f"{scheme}://{rest.partition('/')[0]}/{one.key}")
            return listed_ranges(url, one).whole(0, one.size) if one.size else np.empty(0, np.uint8)

        if len(rows) < 2:
            return [*map(fetch, rows.tolist())]
        with ThreadPoolExecutor(min(FETCHES, len(rows)), "corgipile-images") as pool:
            return [*pool.map(fetch, rows.tolist())]


def _reopen(folder: ImageObjects, paths: bool) -> RemoteImageFolder:
    return RemoteImageFolder(folder, paths=paths)


FORMAT = Format(b"", (), open_folder, frozenset({"paths"}), folder=holds_images)
