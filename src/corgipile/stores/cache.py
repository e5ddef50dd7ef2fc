"""A local disk cache of objects in stores, shared by all processes of a user and limited in size."""

import hashlib
import os
import weakref
from typing import NamedTuple

import numpy as np

from corgipile import _kernel
from corgipile.errors import BadArgument
from corgipile.sizes import Size
from corgipile.stores.cache_folder import folder_for
from corgipile.stores.cache_pages import PAGE, Bytes, Pages, runs
from corgipile.stores.ranges import IntArray, Ranges

__all__ = ["Cached"]

AT_ONCE = (32 << 20) // PAGE  # pages fetched at a time, and held in memory until they are written


class Cached:
    """An object of a store whose bytes are cached on a local disk once read.

    The cache stores pages of 16 KB with checksums; a page that does not match is fetched again. Its key is the
    object's URL, ETag and size, so a changed object never meets old pages. Processes share a folder without a
    daemon, and the folder never exceeds its size. Pages of objects that no process has open are evicted first, the
    least recently used ones before others. For a table larger than the cache, the part read first stays. If writing
    fails, reading continues without it, with a warning.

    Args:
        ranges: The object.
        folder: Folder of the cache on a local disk.
        size: Most bytes of the folder, such as ``"200GB"`` or ``"50%"`` of the disk; None: half of the free space.

    Attributes:
        from_disk: Bytes of pages read from the disk.
        from_store: Bytes fetched.

    Raises:
        BadArgument: The folder belongs to another user, or the object has no ETag.
        WriteFailed: The folder cannot be written.

    Example:
        >>> import tempfile
        >>> class Fake:
        ...     url, size, etag = "s3://bucket/a", 40_000, "1"
        ...     def fetch(self, offsets, lengths, out, to):
        ...         print("fetched", lengths.tolist())
        ...         out[:] = 7
        >>> cached = Cached(Fake(), tempfile.mkdtemp(), "4MB")
        >>> out, at = np.zeros(100, np.uint8), np.array([0])
        >>> cached.fetch(np.array([16_300]), np.array([100]), out, at)
        fetched [32768]
        >>> cached.fetch(np.array([16_300]), np.array([100]), out, at)
        >>> int(out.min()), cached.from_disk
        (7, 32768)
    """

    def __init__(self, ranges: Ranges, folder: str | os.PathLike[str], size: Size | None = None) -> None:
        self.url, self.size, self.etag = ranges.url, ranges.size, ranges.etag
        if not self.etag:
            raise BadArgument(
                f"{self.url} cannot be cached: its server sends no ETag, so a changed object would "
                "go unnoticed; open it without cache"
            )
        self._made_of = ranges, os.fspath(folder), size
        self._ranges, self._folder = ranges, folder_for(folder, size)
        which = f"{getattr(self.url, 'identity', self.url)}\0{self.etag}\0{self.size}\0{PAGE}"
        key = hashlib.blake2b(which.encode(), digest_size=16).hexdigest()
        self._pages = Pages(self._folder.path, key, self.size)
        self._folder.use(key)
        weakref.finalize(self, self._folder.leave, key)
        self.from_disk = self.from_store = 0

    def __reduce__(self) -> tuple[type["Cached"], tuple[Ranges, str, Size | None]]:
        return Cached, self._made_of

    def fetch(self, offsets: IntArray, lengths: IntArray, out: Bytes, to: IntArray) -> None:
        """Read ranges, each to its place in ``out``; bytes not on the disk are fetched at once.

        Args:
            offsets: Their offsets, in any order; they may overlap.
            lengths: Their bytes, at least 0.
            out: The output.
            to: The place of each range in the output.

        Raises:
            CorruptFile: The object has changed since it was opened, or is shorter.
            MissingFile: The object was deleted.
            ReadFailed: The store refused, or did not answer for long.
        """
        if len(offsets) and (int(offsets.min()) < 0 or int((offsets + lengths).max()) > self.size):
            self._ranges.fetch(offsets, lengths, out, to)  # raises the error
            return
        self._folder.touch()
        wanted = _Wanted.of(offsets, lengths, to)

        def take(which: IntArray, data: Bytes) -> None:
            self.from_disk += int(self._pages.lengths(wanted.pages[which]).sum())
            wanted.copy(which, data, out)

        missing = self._pages.read(wanted.pages, take)
        for at in range(0, len(missing), AT_ONCE):
            which = missing[at : at + AT_ONCE]
            data = self._fetched(wanted.pages[which])
            wanted.copy(which, data, out)
            self._keep(wanted.pages[which], data)

    def whole(self, start: int, stop: int) -> Bytes:
        """Read a range, by at most one request unless parts of it are on the disk."""
        out = np.empty(stop - start, np.uint8)
        self.fetch(np.array([start]), np.array([stop - start]), out, np.array([0]))
        return out

    def _fetched(self, pages: IntArray) -> Bytes:
        """Fetch pages into contiguous memory, adjacent ones as one range."""
        ends = [*runs(pages)]
        offsets = pages[[first for first, _ in ends]] * PAGE
        lengths = np.minimum(self.size - offsets, np.array([last - first for first, last in ends]) * PAGE)
        data = np.empty(int(lengths.sum()), np.uint8)
        self._ranges.fetch(offsets, lengths, data, np.cumsum(lengths) - lengths)
        self.from_store += len(data)
        return data

    def _keep(self, pages: IntArray, data: Bytes) -> None:
        """Write as many pages as the folder has space for."""
        step = max(1, self._folder.grant // PAGE)
        for at in range(0, len(pages), step):
            step_pages = pages[at : at + step]
            with self._folder.room(self._pages.room_for(step_pages)) as allowed:
                if not allowed:
                    return
                self._pages.write(step_pages, data[at * PAGE : (at + step) * PAGE])


class _Wanted(NamedTuple):
    """Ranges split at page boundaries into parts, ordered by page."""

    pages: IntArray  # distinct, ascending
    firsts: IntArray  # the first part of each page, and the number of parts
    inside: IntArray  # offset of each part in its page
    lengths: IntArray
    to: IntArray

    @classmethod
    def of(cls, offsets: IntArray, lengths: IntArray, to: IntArray) -> "_Wanted":
        """Split ranges."""
        first = offsets // PAGE
        counts = np.where(lengths > 0, (offsets + lengths - 1) // PAGE - first + 1, 0)
        of, pages = _spread(first, counts)
        begins = np.maximum(offsets[of], pages * PAGE)
        ends = np.minimum(offsets[of] + lengths[of], (pages + 1) * PAGE)
        places = to[of] + begins - offsets[of]
        if (pages[1:] < pages[:-1]).any():
            order = np.argsort(pages, kind="stable")
            pages, begins, ends, places = pages[order], begins[order], ends[order], places[order]
        firsts = np.append(True, pages[1:] != pages[:-1])[: len(pages)].nonzero()[0]
        return cls(pages[firsts], np.append(firsts, len(pages)), begins - pages * PAGE, ends - begins, places)

    def copy(self, which: IntArray, data: Bytes, out: Bytes) -> None:
        """Copy the parts of some pages, which are contiguous in ``data``, to their places."""
        firsts = self.firsts[which]
        of, parts = _spread(firsts, self.firsts[which + 1] - firsts)
        _kernel.copy_ranges(data, of * PAGE + self.inside[parts], self.lengths[parts], out, self.to[parts])


def _spread(firsts: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return, for ``counts[i]`` numbers from ``firsts[i]`` on, every i and number."""
    of = np.repeat(np.arange(len(counts)), counts)
    return of, firsts[of] + np.arange(len(of)) - (np.cumsum(counts) - counts)[of]
