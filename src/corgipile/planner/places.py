"""Stored read rates of devices and buckets: a small file for each, in the cache folder."""

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
from corgipile.tables.io.files import File
from corgipile.tables.io.index_cache import cache_folder
from corgipile.tables.io.remote import RemoteFile
from corgipile.tables.io.sources import files_read
from corgipile.tables.table import Table
from corgipile.urls import parts_of

__all__ = ["place_of", "recall", "remember"]

VERSION = 1
MAX_AGE_SECONDS = 90 * 86400.0  # seconds for which stored rates are valid
MOUNTS = Path("/proc/self/mountinfo")
MAX_BYTES = 1 << 16  # bytes of a stored file at most
log = logging.getLogger("corgipile")


def place_of(table: Table) -> str | None:
    """Return the name of the local device or bucket that holds most of a table; None for one in memory.

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
        if largest.near:  # the local cache serves its reads
            return None
        parts = parts_of(largest.path.full)
        return f"{platform.node()} {parts.scheme}://{parts.place}"
    return f"{platform.node()} {_device(os.path.realpath(largest.path))}"


def _device(path: str) -> str:
    """Return the name of a path's file system, from its mount."""
    best, name = -1, f"device {Path(path).stat().st_dev}"
    with contextlib.suppress(OSError):
        for line in MOUNTS.read_text(errors="replace").splitlines():
            before, _, after = line.partition(" - ")
            fields, more = before.split(), after.split()
            if len(fields) < 5 or len(more) < 2:
                continue
            point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
            if len(point) > best and (path == point or path.startswith(point.rstrip("/") + "/")):
                best, name = len(point), f"{more[0]} {more[1]} at {point}"
    return name


def recall(place: str) -> Probe | None:
    """Return a place's stored rates, None if there are none; log and ignore damaged files."""
    try:
        path = _path(place)
        with path.open("rb") as file:
            data = file.read(MAX_BYTES)
        probe = _read(parse_json(data, str(path)), place)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        log.warning("ignored %s, which is damaged: %s", path, error)
        return None
    except (OSError, RuntimeError) as error:
        log.warning("cannot read the stored rates of %s: %s", place, error)
        return None
    return probe if 0 <= time.time() - probe.taken < MAX_AGE_SECONDS else None


def remember(probe: Probe) -> bool:
    """Store rates atomically; if that fails, log it and return False."""
    facts: dict[str, Any] = {"version": VERSION, "place": probe.place, "taken": probe.taken, "cells": probe.cells}
    try:
        goal = _path(probe.place)
        with scratch.temporary(goal, 0o600) as path:
            path.write_text(json.dumps({**facts, "sum": _sum(facts)}))
            path.replace(goal)
    except (OSError, RuntimeError) as error:
        log.warning("cannot store the rates of %s: %s", probe.place, error)
        return False
    return True


def _path(place: str) -> Path:
    return cache_folder("probes") / f"{hashlib.blake2b(place.encode(errors='replace'), digest_size=8).hexdigest()}.json"


def _sum(facts: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()


def _read(facts: Any, place: str) -> Probe:
    """Validate stored rates; raise ValueError if they are damaged."""
    known = {name: facts[name] for name in ("version", "place", "taken", "cells")}
    if known["version"] != VERSION:
        raise ValueError(f"version must be {VERSION}, got {known['version']!r}")
    if facts["sum"] != _sum(known):
        raise ValueError("its checksum does not match")
    cells = tuple(Cell(int(size), int(depth), float(rate), bool(lies)) for size, depth, rate, lies in known["cells"])
    valid = all(c.nbytes > 0 and c.at_once > 0 and c.rate > 0 and math.isfinite(c.rate) for c in cells)
    if known["place"] != place or not valid or all(cell.sequential for cell in cells):
        raise ValueError("its content is invalid")
    return Probe(place, float(known["taken"]), cells)
