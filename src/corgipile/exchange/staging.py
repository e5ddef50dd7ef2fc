"""Writer of a rank's part of a table to its disk, resumable by the same call after any interruption."""

import base64
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.errors import BadArgument, WouldOverwrite, WriteFailed
from corgipile.exchange.dealing import By, Rows, Share, deal
from corgipile.exchange.part import LocalPart, write_manifest
from corgipile.exchange.places import Bytes, Places, Sums, check_space, places_of, sums_of, whole_units
from corgipile.nesting import parse_json
from corgipile.orders import Shard
from corgipile.outputs import PathLike, flush, refuse_url, writing
from corgipile.sizes import Size, choice, to_rows, whole
from corgipile.tables import Table
from corgipile.tables import open as open_table
from corgipile.tables.concat import ConcatTable
from corgipile.tables.formats.arrow.writer import conform, plain
from corgipile.tables.formats.part import BEGUN, NOW, VERSION, Manifest
from corgipile.tables.io.files import digest
from corgipile.tables.io.remote import in_turn
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.table import IntArray, fixed_field

__all__ = ["restage", "stage"]

UNIT_BYTES, MIN_UNITS = 64 << 10, 64  # bytes per unit; units per part at least
CHUNK_BYTES, FLUSH_BYTES = 8 << 20, 64 << 20  # bytes copied at a time; bytes written between flushes
SECTOR_BYTES = 4 << 10  # bytes that a file takes at least
DONE = "staging-sums"
Progress = Callable[[int, int | None], None]


def stage(
    table: Any,
    folder: PathLike,
    rank: int,
    world: int,
    *,
    by: By = "contiguous",
    label: str | None = None,
    unit: Size | None = None,
    in_place: bool | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> LocalPart:
    """Write a rank's part of a table into a folder.

    Units are recorded with their checksums once they are on the device. After an interruption the same call verifies
    the written units and continues; a complete part is returned.

    Args:
        table: A source for `corgipile.open`; the same on all ranks.
        folder: The new folder.
        rank: This process of ``world``.
        world: Number of ranks.
        by: The rows it begins with. "contiguous": a run; "strided": every world-th row; "block": random units;
            "balanced": as many rows of each label as other ranks, within one.
        label: Label column of "balanced": numbers, text or booleans; it is read twice.
        unit: Rows (int), bytes or share that are exchanged together; None: 64 KB.
        in_place: Whether rows lie in slots of one width, which is faster; None: if all columns are numeric.
        seed: Seed of "block".
        progress: Called with rows written, and rows of the part.

    Raises:
        BadArgument: There are fewer rows than ranks.
        WouldOverwrite: The folder holds another part or other files, or is a source.
        WriteFailed: The disk is full, which is checked first, or the file system refuses.

    Example:
        >>> import tempfile
        >>> rows = pa.table({"x": range(6), "label": [0, 0, 0, 0, 1, 1]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     part = stage(rows, f"{folder}/1", rank=1, world=2, by="balanced", label="label")
        ...     part.table.read(0, 3).to_pydict()
        {'x': [1, 3, 5], 'label': [0, 0, 1]}
    """
    refuse_url(folder)
    source = open_table(table)
    staging = _Staging(source, folder, rank, world, by, label, unit, in_place, seed)
    return staging.run(table if isinstance(table, list) else [table], progress)


def restage(
    parts: Sequence[PathLike],
    folder: PathLike,
    rank: int,
    world: int,
    *,
    by: By = "contiguous",
    label: str | None = None,
    unit: Size | None = None,
    in_place: bool | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> LocalPart:
    """Write a rank's part for another number of ranks, from the parts of all old ranks.

    The rows are those of the last finished epoch, mixed as they were, and continue from that epoch. The old parts stay
    unchanged; each is verified by one of the new ranks. If their disks cannot all be reached, `stage` from the table
    for epoch 0.

    Args:
        parts: The folders of all old ranks.
        folder: See `stage`.
        rank: This process of the new ``world``.
        world: The new number of ranks.
        by: See `stage`.
        label: See `stage`.
        unit: See `stage`.
        in_place: See `stage`.
        seed: See `stage`.
        progress: See `stage`.

    Raises:
        BadArgument: Parts are missing or do not match.
        StateMismatch: Their epochs do not match.
        CorruptFile: A part is damaged.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     old = [stage(pa.table({"x": range(6)}), f"{folder}/{rank}", rank, 3).folder for rank in range(3)]
        ...     part = restage(old, f"{folder}/new", rank=1, world=2)
        ...     part.table.read(0, 3).to_pydict()
        {'x': [3, 4, 5]}
    """
    refuse_url(folder)
    old_parts = _sort_parts([LocalPart(part) for part in parts])
    epoch = max(part.epoch for part in old_parts)
    source = ConcatTable([part.of_epoch(epoch).table(part.folder) for part in old_parts])
    staging = _Staging(source, folder, rank, world, by, label, unit, in_place, seed, epoch)
    for part in old_parts[staging.share.rank :: staging.share.world]:
        part.verify(epoch)
    return staging.run([part.folder for part in old_parts], progress)


def _sort_parts(parts: list[LocalPart]) -> list[LocalPart]:
    """Return the parts of all ranks of one staging, in order."""
    if not parts:
        raise BadArgument("parts must name those of all old ranks, got none")
    world = parts[0].header["world"]
    if len({(part.header["of"], part.header["world"]) for part in parts}) > 1:
        raise BadArgument("parts must be of one table and world, got several")
    ranks = sorted(int(part.header["rank"]) for part in parts)
    if ranks != list(range(world)):
        missing = sorted(set(range(world)) - set(ranks))
        what = f"ranks {missing[:8]} are missing" if missing else "a rank is repeated"
        hint = "give each once, or stage from the table"
        raise BadArgument(f"parts must be all {world}, got {len(parts)}, {what}: {hint}")
    return sorted(parts, key=lambda part: int(part.header["rank"]))


class _Staging:
    """Arguments of a staging, checked."""

    def __init__(
        self, source: Table, folder: PathLike, rank: int, world: int, by: By, label: str | None, unit: Size | None,
        in_place: bool | None, seed: int, epoch: int = 0,
    ) -> None:  # fmt: skip
        rank, world, *_ = Shard.checked(rank, world)
        choice(by, "by", By)
        if (label is not None) != (by == "balanced"):
            raise BadArgument(f"label must be given for by='balanced' only, got by={by!r} and label={label!r}")
        self.source, self.schema = source, plain(source.schema)
        self.goal = Path(folder).expanduser().absolute()
        rows, self._width = len(source), max(1.0, row_bytes(source))
        if rows < world:
            raise BadArgument(f"rows must be at least {world}, one per rank, got {rows}")
        default = max(1, min(int(UNIT_BYTES / self._width), rows // world // MIN_UNITS))
        unit_rows = default if unit is None else min(to_rows(unit, rows, self._width, "unit"), rows // world)
        self.share = Share(rows, unit_rows, rank, world)
        fixed = all(fixed_field(field.type) is not None for field in self.schema)
        if in_place and not fixed:
            raise BadArgument(f"in_place needs numeric columns, got {self.schema.types}")
        self.header: dict[str, Any] = {
            "corgipile": "part", "version": VERSION, "rank": rank, "world": world, "rows": rows, "unit": unit_rows,
            "units": self.share.units, "rest": self.share.rest, "epoch": epoch, "by": by,
            "in_place": fixed if in_place is None else in_place,
            "of": digest(source.fingerprint, str(world), str(unit_rows), by, str(whole(seed, "seed")), str(label)),
            "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
        }  # fmt: skip
        self._dealing = (by, self.share, source, seed, label)
        self.places: Places = places_of(self.goal, self.header, self.schema)

    def run(self, inputs: Sequence[Any], progress: Progress | None) -> LocalPart:
        """Write the missing units; return the part."""
        _refuse_inputs(self.goal, inputs)
        part = _find_part(self.goal, self.header)
        if part is None:
            check_space(self.goal, max(0, self._needed() - _used_bytes(self.goal)))
            with writing(self.goal):
                self.goal.mkdir(parents=True, exist_ok=True)
            with _lock(self.goal):
                part = _find_part(self.goal, self.header)  # another process may have finished it
                if part is None:
                    self._write(progress)
        return part or LocalPart(self.goal)

    def _needed(self) -> int:
        """Return the bytes of disk that the part takes, an estimate for rows of varying length."""
        unit_bytes = self.share.unit * self._width
        if not self.header["in_place"]:
            unit_bytes = -(-unit_bytes // SECTOR_BYTES) * SECTOR_BYTES
        return int(self.share.units * (unit_bytes + 12) + self.share.rest * self._width)

    def _write(self, progress: Progress | None) -> None:
        with writing(self.goal):
            if not (self.goal / BEGUN).exists():
                new = self.goal / f"{BEGUN}.new"
                new.write_text(json.dumps(self.header))
                flush(new)
                new.replace(self.goal / BEGUN)
                flush(self.goal)
        try:
            self.places.room(self.share.units)
            sums = _Copy(self, progress).run(deal(*self._dealing))
            manifest = Manifest(self.header, np.arange(self.share.units), sums)
            write_manifest(self.goal, NOW, manifest)
        except WriteFailed as error:
            how = "Staged units are kept: run the same command again to continue"
            raise WriteFailed(error.errno, f"{error}. {how}") from error
        for name in (DONE, BEGUN):
            (self.goal / name).unlink(missing_ok=True)


class _Copy:
    """Copies units in chunks, and records the checksums of units on the device."""

    def __init__(self, staging: _Staging, progress: Progress | None) -> None:
        self._of, self._share, self._places = staging, staging.share, staging.places
        self._progress: Progress = progress or (lambda done, rows: None)  # noqa: ARG005 - the signature of Progress
        self._path = staging.goal / DONE
        self._pending: list[Sums] = []  # checksums of units not yet flushed
        self._bytes = 0
        self._chunk_units = max(1, int(CHUNK_BYTES / (staging._width + 8) / self._share.unit))  # noqa: SLF001

    def run(self, rows: Rows) -> Sums:
        """Copy missing units; return the checksums of all units and of the remaining rows."""
        share, unit = self._share, self._share.unit
        done = self._count_intact()
        with writing(self._path):
            os.truncate(self._path, 4 * done)
        self._progress(done * unit, share.size)
        step = self._chunk_units
        chunks = [(at * unit, min(share.units, at + step) * unit) for at in range(done, share.units, step)]
        written: Future[None] | None = None
        with ThreadPoolExecutor(1, "corgipile-staging") as pool:
            for (start, stop), batch in zip(chunks, in_turn(self._of.source, self._reading(rows), chunks), strict=True):
                data, lengths = self._places.encode(batch, (stop - start) // unit)
                if written is not None:
                    written.result()
                    self._progress(start, share.size)
                written = pool.submit(self._put, np.arange(start // unit, stop // unit), data, lengths)
            if written is not None:
                written.result()
        rest = self._rest(rows)
        self._flush()
        self._progress(share.size, share.size)
        return np.append(np.fromfile(self._path, "<u4"), rest).astype(np.uint32)

    def _reading(self, rows: Rows) -> Callable[[int, int], pa.RecordBatch]:
        source, schema = self._of.source, self._of.schema

        def read(start: int, stop: int) -> pa.RecordBatch:
            numbers = rows(start, stop)
            contiguous = int(numbers[-1] - numbers[0]) + 1 == len(numbers)
            batch = source.read(int(numbers[0]), int(numbers[-1]) + 1) if contiguous else source.take(numbers)
            return conform(batch, schema)

        return read

    def _rest(self, rows: Rows) -> int:
        """Copy the rows that form no whole unit; return their checksum."""
        share = self._share
        if not share.rest:
            return 0
        batch = self._reading(rows)(share.size - share.rest, share.size)
        data, lengths = self._places.encode(batch, 1)
        self._places.write(np.array([-1]), data, np.zeros(1, np.int64), lengths)
        return int(sums_of(data, np.zeros(1, np.int64), lengths)[0])

    def _put(self, places: IntArray, data: Bytes, lengths: IntArray) -> None:
        starts = np.cumsum(lengths) - lengths
        self._places.write(places, data, starts, lengths)
        self._pending.append(sums_of(data, starts, lengths))
        self._bytes += len(data)
        if self._bytes >= FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Record written units once they are on the device."""
        self._places.flush()
        with writing(self._path):
            with self._path.open("ab") as file:
                file.write(b"".join(sums.astype("<u4").tobytes() for sums in self._pending))
            flush(self._path)
        self._pending, self._bytes = [], 0

    def _count_intact(self) -> int:
        """Return how many recorded units, from the first on, are intact."""
        self._path.touch()
        noted = np.fromfile(self._path, "<u4", min(self._path.stat().st_size // 4, self._share.units))
        return whole_units(self._places, np.arange(len(noted)), noted)


def _find_part(goal: Path, header: dict[str, Any]) -> LocalPart | None:
    """Return the part if it is complete, None if it is unfinished or absent; raise WouldOverwrite for anything else."""
    with writing(goal):
        present = {path.name for path in goal.iterdir()} if goal.exists() else set()
    names = {"slots", "units", DONE, BEGUN, NOW}
    if not all(name in names or name.startswith(("live-", "manifest-")) or name.endswith(".new") for name in present):
        raise WouldOverwrite(f"{goal} holds other files: name a new folder")
    if NOW in present:
        part = LocalPart(goal)
        begun = part.header
    elif BEGUN in present:
        begun = parse_json((goal / BEGUN).read_text(), str(goal / BEGUN))
    else:
        return None
    differs = [name for name in header if begun.get(name) != header[name]]
    if differs:
        what = "a part with" if NOW in present else "an unfinished part with"
        raise WouldOverwrite(f"{goal} holds {what} another {differs[0]}: name a new folder, or remove it")
    return part if NOW in present else None


def _refuse_inputs(goal: Path, inputs: Sequence[Any]) -> None:
    """Raise WouldOverwrite if a folder is a source or lies in one."""
    for source in inputs:
        folder = Path(source).expanduser().resolve() if isinstance(source, str | os.PathLike) else None
        if folder is not None and folder.is_dir() and goal.resolve().is_relative_to(folder):
            raise WouldOverwrite(f"{goal} must not lie in {folder}, a source: name a folder elsewhere")


def _used_bytes(goal: Path) -> int:
    """Return the bytes of disk that an earlier call used."""
    files = [goal / "slots", *((goal / "units").iterdir() if (goal / "units").is_dir() else ())]
    return sum(path.stat().st_blocks * 512 for path in files if path.exists())


@contextmanager
def _lock(goal: Path) -> Iterator[None]:
    """Lock a folder against other stagings, if the file system supports locks."""
    handle = os.open(goal, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise WouldOverwrite(f"{goal} is locked by another process that stages into it: wait for it") from None
    except OSError:
        pass
    try:
        yield
    finally:
        os.close(handle)
