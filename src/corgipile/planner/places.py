"""Where a table lies, and what was measured there before: a small file for each place, in the folder of caches."""

import contextlib
import hashlib
import json
import logging
import math
import os
import platform
import re
import time
from pathlib import Path
from typing import Any

from corgipile import scratch
from corgipile.nesting import parse_json
from corgipile.planner.probe import Cell, Probe
from corgipile.stores.urls import parts_of
from corgipile.tables.io.files import File
from corgipile.tables.io.index_cache import cache_folder
from corgipile.tables.io.remote import RemoteFile
from corgipile.tables.io.sources import files_read
from corgipile.tables.table import Table

__all__ = ["place_of", "recall", "remember"]

VERSION = 1
FRESH = 90 * 86400.0  # seconds for which a device is thought to be the same
MOUNTS = Path("/proc/self/mountinfo")
LARGEST = 1 << 16  # bytes of a file that could be ours
log = logging.getLogger("corgipile")


def place_of(table: Table) -> str | None:
    """Name the device of this machine, or the bucket, that holds most of a table; None for one in memory.

    Example:
        >>> from corgipile.tables import open
        >>> place_of(open({"x": [1.0]})) is None
        True
    """
    files = [file for file in files_read(table) if isinstance(file, File)]
    if not files:
        return None
    largest = max(files, key=lambda file: file.size)
    if isinstance(largest, RemoteFile):
        if largest.near:  # what is read comes from this machine's disk, sooner or later
            return None
        parts = parts_of(largest.path.full)
        return f"{platform.node()} {parts.scheme}://{parts.place}"
    return f"{platform.node()} {_device(os.path.realpath(largest.path))}"


def _device(path: str) -> str:
    """Name the file system of a path by what it is mounted from."""
    best, name = -1, f"device {Path(path).stat().st_dev}"
    with contextlib.suppress(OSError):
        for line in MOUNTS.read_text(errors="replace").splitlines():
            words, _, rest = line.partition(" - ")
            fields, more = words.split(), rest.split()
            if len(fields) < 5 or len(more) < 2:
                continue
            point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[4])
            if len(point) > best and (path == point or path.startswith(point.rstrip("/") + "/")):
                best, name = len(point), f"{more[0]} {more[1]} at {point}"
    return name


def recall(place: str) -> Probe | None:
    """Return what was measured of a place, None if nothing was; what is damaged is ignored, with a word."""
    try:
        path = _path(place)
        with path.open("rb") as file:
            data = file.read(LARGEST)
        found = _read(parse_json(data, str(path)), place)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        log.warning("%s is damaged (%s), and not used", path, error)
        return None
    except (OSError, RuntimeError) as error:
        log.warning("what was measured of %s before cannot be read: %s", place, error)
        return None
    return found if 0 <= time.time() - found.taken < FRESH else None


def remember(probe: Probe) -> bool:
    """Keep what was measured, wholly or not at all; where that cannot be, say so and return False."""
    facts: dict[str, Any] = {"version": VERSION, "place": probe.place, "taken": probe.taken, "cells": probe.cells}
    try:
        goal = _path(probe.place)
        with scratch.temporary(goal, 0o600) as path:
            path.write_text(json.dumps({**facts, "sum": _sum(facts)}))
            path.replace(goal)
    except (OSError, RuntimeError) as error:
        log.warning("what was measured of %s cannot be kept for the next time: %s", probe.place, error)
        return False
    return True


def _path(place: str) -> Path:
    return cache_folder("probes") / f"{hashlib.blake2b(place.encode(errors='replace'), digest_size=8).hexdigest()}.json"


def _sum(facts: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()


def _read(facts: Any, place: str) -> Probe:
    """Check what was kept.

    Raises:
        ValueError: It is not what we would have written.
    """
    known = {name: facts[name] for name in ("version", "place", "taken", "cells")}
    if known["version"] != VERSION:
        raise ValueError(f"it is of version {known['version']!r}, {VERSION} is read here")
    if facts["sum"] != _sum(known):
        raise ValueError("its sum is another")
    cells = tuple(Cell(int(size), int(depth), float(rate), bool(lies)) for size, depth, rate, lies in known["cells"])
    right = all(c.nbytes > 0 and c.at_once > 0 and c.rate > 0 and math.isfinite(c.rate) for c in cells)
    if known["place"] != place or not right or all(cell.sequential for cell in cells):
        raise ValueError("it says something else")
    return Probe(place, float(known["taken"]), cells)
