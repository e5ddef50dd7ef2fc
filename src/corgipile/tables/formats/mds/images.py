"""Images in MDS columns: compressed images stay as they are, raw pixels become PNM or TIFF files."""

import io
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from corgipile.errors import BadValue
from corgipile.extras import extra
from corgipile.tables.formats.mds.stored import Encoding, Stored

__all__ = ["IMAGES"]


def _raw(stored: Stored) -> pa.Array:
    return pa.array([_image(stored.bytes(row), stored.place, row) for row in range(len(stored.ends) - 1)], pa.binary())


def _lists(stored: Stored, skip: int, *, raw: bool) -> pa.Array:
    """Split lists of images: their number after ``skip`` bytes, their sizes, then the images."""
    image_lists = []
    for row in range(len(stored.ends) - 1):
        data = stored.bytes(row)
        count = int.from_bytes(data[skip : skip + 4], "little")
        head = skip + 4 + 4 * count
        sizes = np.frombuffer(data[skip + 4 : head], "<u4") if len(data) >= head else np.zeros(0, "<u4")
        if len(data) != head + int(sizes.sum(dtype=np.int64)):
            raise BadValue(f"{stored.place(row)} must be a list of images")
        ends = (head + np.append(0, np.cumsum(sizes, dtype=np.int64))).tolist()
        images = [data[low:high] for low, high in pairwise(ends)]
        image_lists.append([_image(image, stored.place, row) for image in images] if raw else images)
    return pa.array(image_lists, pa.list_(pa.binary()))


def _image(data: bytes, place: Callable[[int], str], row: int) -> bytes:
    if len(data) < 12:
        raise BadValue(f"{place(row)} must be an image, got {len(data)} bytes")
    width, height, size = np.frombuffer(data[:12], "<u4").tolist()
    mode, pixels = data[12 : 12 + size].decode("ascii", "replace"), data[12 + size :]
    number = {"L": 5, "RGB": 6}.get(mode)
    if number is not None and len(pixels) == width * height * (3 if number == 6 else 1):
        return b"P%d %d %d 255\n" % (number, width, height) + pixels
    if width * height > 8 * len(pixels):  # no mode takes less than a bit
        raise BadValue(f"{place(row)} is no image: {width} x {height} pixels in {len(pixels)} bytes")
    pillow = extra("PIL.Image", f"an image of mode {mode!r}", "images", package="Pillow")
    out = io.BytesIO()
    try:
        pillow.frombytes(mode, (width, height), pixels).save(out, "TIFF")
    except (ValueError, OSError, KeyError, MemoryError) as error:
        raise BadValue(f"{place(row)} must be an image: {error}") from None
    return out.getvalue()


_LIST = pa.list_(pa.binary())
IMAGES = {
    "pil": Encoding(pa.binary(), _raw),
    "list[pil]": Encoding(_LIST, partial(_lists, skip=4, raw=True)),
    "list[jpeg]": Encoding(_LIST, partial(_lists, skip=4, raw=False)),
    "list[png]": Encoding(_LIST, partial(_lists, skip=4, raw=False)),
    "jpeg_array": Encoding(_LIST, partial(_lists, skip=0, raw=False)),
    "jpegarray": Encoding(_LIST, partial(_lists, skip=0, raw=False)),
}
