"""Page cache tools: drop a file, measure what is cached, and read a file as fast as plain threads can."""

import contextlib
import ctypes
import mmap
import os
import random
import threading
import time
from pathlib import Path

from common import Skip

COLD = 0.02  # share of a file that may stay cached for a run to count as cold


def cached(path: Path) -> float:
    """Return the share of a file's pages in the page cache, by mincore."""
    size = path.stat().st_size
    pages = -(-size // mmap.PAGESIZE)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    descriptor = os.open(path, os.O_RDONLY)
    try:
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        seen = ctypes.create_string_buffer(pages)
        failed = libc.mincore(address, size, seen)
        libc.munmap(address, size)
    finally:
        os.close(descriptor)
    if failed:
        raise Skip("mincore is not permitted here, so a cold cache cannot be proved")
    return sum(byte & 1 for byte in seen.raw[:pages]) / pages


def unmap(path: Path) -> None:
    """Unmap a file's pages in this process, which would otherwise stay cached."""
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(f" {path.resolve()}"):
            start, stop = (int(word, 16) for word in line.split()[0].split("-"))
            libc.madvise(start, stop - start, mmap.MADV_DONTNEED)


def bytes_from_device() -> int:
    """Return the bytes that this process has read from devices."""
    io = Path("/proc/self/io")
    if not io.exists():
        raise Skip("this system does not count the bytes that a process reads")
    return int(dict(line.split(": ") for line in io.read_text().splitlines())["read_bytes"])


def drop(*paths: Path) -> None:
    """Drop files from the page cache, and verify it.

    Raises:
        Skip: The files are still cached.
    """
    if not hasattr(os, "posix_fadvise"):
        raise Skip("this system has no posix_fadvise, so no cold run")
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    if max(map(cached, paths)) > COLD:
        with contextlib.suppress(OSError):
            Path("/proc/sys/vm/drop_caches").write_text("1")
    for path in paths:
        if (left := cached(path)) > COLD:
            raise Skip(f"{left:.0%} of {path.name} stays in the page cache")


def read_plainly(path: Path, threads: int = 4, chunk: int = 1 << 20, shuffled: bool = False) -> float:
    """Read a whole file by pread in a few threads, into reused buffers; return seconds.

    Chunks are read in order, or in random order as block orders do.
    """
    size, lock, counted = path.stat().st_size, threading.Lock(), []
    starts = list(range(0, size, chunk))
    descriptor = os.open(path, os.O_RDONLY)
    if shuffled:
        random.Random(1).shuffle(starts)  # noqa: S311  # nothing secret here
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    waiting = iter(starts)

    def work() -> None:
        buffer, seen = bytearray(chunk), 0
        while True:
            with lock:
                start = next(waiting, None)
            if start is None:
                break
            seen += os.preadv(descriptor, [buffer], start)
        counted.append(seen)

    crew = [threading.Thread(target=work) for _ in range(threads)]
    begin = time.perf_counter()
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    seconds = time.perf_counter() - begin
    os.close(descriptor)
    if sum(counted) != size:
        raise RuntimeError(f"the plain reader got {sum(counted)} bytes of {size}")
    return seconds
