"""Writes a rank's part of a table to its disk: whatever stops it, the same call goes on where it stood."""

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
from corgipile.exchange.dealing import By, Rows, Share, dealt
from corgipile.exchange.part import LocalPart, write_manifest
from corgipile.exchange.places import Bytes, Places, Sums, check_space, places_of, sums_of, whole_units
from corgipile.nesting import parse_json
from corgipile.orders import Shard
from corgipile.outputs import PathLike, flush, refuse_url, writing
from corgipile.sizes import Size, choice, to_rows, whole
from corgipile.tables import Table
from corgipile.tables import open as open_table
from corgipile.tables.arrow.writer import conform, plain
from corgipile.tables.concat import ConcatTable
from corgipile.tables.io.files import digest
from corgipile.tables.io.remote import in_turn
from corgipile.tables.part import BEGUN, NOW, VERSION, Manifest
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.table import IntArray, fixed_field

__all__ = ["restage", "stage"]

UNIT, FEWEST = 64 << 10, 64  # bytes of a unit; units of a part
COPIED, FLUSHED = 8 << 20, 64 << 20  # bytes copied at a time, and until what is written is noted
SECTOR = 4 << 10  # bytes that a file takes at least
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
    """Write a rank's part of a table into a folder, from shared storage, a store, or wherever a table lies.

    What is written is summed up and noted once it is on the device. Where a call was stopped, by whatever, the same one
    reads again what is there, compares it with its checksums, and goes on; what is there wholly is returned.

    Args:
        table: What `corgipile.open` takes; the same on all ranks.
        folder: Made here.
        rank: This process of ``world``.
        world: How many there are.
        by: Which rows it begins with. "contiguous": a run of them; "strided": every world-th; "block": units at random;
            "balanced": as many of each label as other ranks, give or take one.
        label: Column of "balanced": numbers, text or truth values; it is read twice.
        unit: Rows (int), bytes or share that are exchanged together; None: 64 KB of them.
        in_place: Whether rows lie in slots of one width, which is faster; None: where all columns are numbers.
        seed: Of "block".
        progress: Called with rows written, and rows of the part.

    Raises:
        BadArgument: There are fewer rows than ranks.
        WouldOverwrite: The folder holds another part, or something else, or is one that is read.
        WriteFailed: The disk is full, or the file system refuses; the space is checked first.

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
    """Write a rank's part for another number of ranks, from all parts that there are, as `stage` does from the table.

    The rows are those of the last finished epoch, as mixed as they were, and it goes on from that epoch. The old parts
    stay as they are; each is compared with its checksums by one of the new ranks. Where they lie on disks that cannot
    all be reached from here, `stage` does it from the table, for epoch 0.

    Args:
        parts: The folders of all old ranks.
        folder: As for `stage`.
        rank: This process of the new ``world``.
        world: How many there are now.
        by: As for `stage`.
        label: As for `stage`.
        unit: As for `stage`.
        in_place: As for `stage`.
        seed: As for `stage`.
        progress: As for `stage`.

    Raises:
        BadArgument: Parts are missing, or do not belong together.
        StateMismatch: They are of epochs that do not belong together.
        CorruptFile: A part is not what was written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     old = [stage(pa.table({"x": range(6)}), f"{folder}/{rank}", rank, 3).folder for rank in range(3)]
        ...     part = restage(old, f"{folder}/new", rank=1, world=2)
        ...     part.table.read(0, 3).to_pydict()
        {'x': [3, 4, 5]}
    """
    refuse_url(folder)
    found = _together([LocalPart(one) for one in parts])
    epoch = max(part.epoch for part in found)
    source = ConcatTable([part.of_epoch(epoch).table(part.folder) for part in found])
    staging = _Staging(source, folder, rank, world, by, label, unit, in_place, seed, epoch)
    for part in found[staging.share.rank :: staging.share.world]:
        part.verify(epoch)
    return staging.run([part.folder for part in found], progress)


def _together(parts: list[LocalPart]) -> list[LocalPart]:
    """Return the parts of all ranks of one staging, in order."""
    if not parts:
        raise BadArgument("no parts given; those of all old ranks are needed")
    world = parts[0].said["world"]
    if len({(part.said["of"], part.said["world"]) for part in parts}) > 1:
        raise BadArgument("the parts are of several tables or worlds; those of all ranks of one are needed")
    ranks = sorted(int(part.said["rank"]) for part in parts)
    if ranks != list(range(world)):
        missing = sorted(set(range(world)) - set(ranks))
        what = f"ranks {missing[:8]} are missing" if missing else "a rank is given twice"
        raise BadArgument(f"{len(parts)} parts of {world} are given, {what}: give each once, or stage from the table")
    return sorted(parts, key=lambda part: int(part.said["rank"]))


class _Staging:
    """What is staged where."""

    def __init__(
        self, source: Table, folder: PathLike, rank: int, world: int, by: By, label: str | None, unit: Size | None,
        in_place: bool | None, seed: int, epoch: int = 0,
    ) -> None:  # fmt: skip
        rank, world, *_ = Shard.checked(rank, world)
        choice(by, "by", By)
        if (label is not None) != (by == "balanced"):
            raise BadArgument(f"label is for by='balanced', which needs one, got by={by!r} and label={label!r}")
        self.source, self.schema = source, plain(source.schema)
        self.goal = Path(folder).expanduser().absolute()
        rows, self._width = len(source), max(1.0, row_bytes(source))
        if rows < world:
            raise BadArgument(f"{rows} rows for {world} ranks: each rank needs one at least")
        default = max(1, min(int(UNIT / self._width), rows // world // FEWEST))
        each = default if unit is None else min(to_rows(unit, rows, self._width, "unit"), rows // world)
        self.share = Share(rows, each, rank, world)
        fixed = all(fixed_field(field.type) is not None for field in self.schema)
        if in_place and not fixed:
            raise BadArgument(f"in_place needs columns of numbers, got {self.schema.types}")
        self.said: dict[str, Any] = {
            "corgipile": "part", "version": VERSION, "rank": rank, "world": world, "rows": rows, "unit": each,
            "units": self.share.units, "rest": self.share.rest, "epoch": epoch, "by": by,
            "in_place": fixed if in_place is None else in_place,
            "of": digest(source.fingerprint, str(world), str(each), by, str(whole(seed, "seed")), str(label)),
            "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
        }  # fmt: skip
        self._dealt = (by, self.share, source, seed, label)
        self.places: Places = places_of(self.goal, self.said, self.schema)

    def run(self, inputs: Sequence[Any], progress: Progress | None) -> LocalPart:
        """Write what is not there yet."""
        _refuse_inputs(self.goal, inputs)
        kept = _there(self.goal, self.said)
        if kept is None:
            check_space(self.goal, max(0, self._needed() - _taken(self.goal)))
            with writing(self.goal):
                self.goal.mkdir(parents=True, exist_ok=True)
            with _locked(self.goal):
                kept = _there(self.goal, self.said)  # by now another may have done it
                if kept is None:
                    self._write(progress)
        return kept or LocalPart(self.goal)

    def _needed(self) -> int:
        """Return the bytes that the part takes on disk, about, where rows differ in length."""
        each = self.share.unit * self._width
        if not self.said["in_place"]:
            each = -(-each // SECTOR) * SECTOR
        return int(self.share.units * (each + 12) + self.share.rest * self._width)

    def _write(self, progress: Progress | None) -> None:
        with writing(self.goal):
            if not (self.goal / BEGUN).exists():
                new = self.goal / f"{BEGUN}.new"
                new.write_text(json.dumps(self.said))
                flush(new)
                new.replace(self.goal / BEGUN)
                flush(self.goal)
        try:
            self.places.room(self.share.units)
            sums = _Copy(self, progress).run(dealt(*self._dealt))
            manifest = Manifest(self.said, np.arange(self.share.units), sums)
            write_manifest(self.goal, NOW, manifest)
        except WriteFailed as error:
            raise WriteFailed(error.errno, f"{error}. What is staged is kept: run the same again to go on") from error
        for name in (DONE, BEGUN):
            (self.goal / name).unlink(missing_ok=True)


class _Copy:
    """Copies units, some at a time, and notes the checksums of those that are on the device.

    Args:
        staging: What is copied whither.
        progress: Told of it.
    """

    def __init__(self, staging: _Staging, progress: Progress | None) -> None:
        self._of, self._share, self._places = staging, staging.share, staging.places
        self._progress: Progress = progress or (lambda done, rows: None)  # noqa: ARG005 - the shape of such a function
        self._path = staging.goal / DONE
        self._waiting: list[Sums] = []  # of units that may not be on the device yet
        self._bytes = 0
        self._some = max(1, int(COPIED / (staging._width + 8) / self._share.unit))  # noqa: SLF001 - of one module

    def run(self, rows: Rows) -> Sums:
        """Copy all that is not there; return the checksums of all units and of the rows that make none."""
        share, unit = self._share, self._share.unit
        done = self._kept()
        with writing(self._path):
            os.truncate(self._path, 4 * done)
        self._progress(done * unit, share.size)
        chunks = [(at * unit, min(share.units, at + self._some) * unit) for at in range(done, share.units, self._some)]
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
            some = rows(start, stop)
            together = int(some[-1] - some[0]) + 1 == len(some)
            batch = source.read(int(some[0]), int(some[-1]) + 1) if together else source.take(some)
            return conform(batch, schema)

        return read

    def _rest(self, rows: Rows) -> int:
        """Copy the rows that make no unit; return their checksum."""
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
        self._waiting.append(sums_of(data, starts, lengths))
        self._bytes += len(data)
        if self._bytes >= FLUSHED:
            self._flush()

    def _flush(self) -> None:
        """Note what was written, once it is on the device."""
        self._places.flush()
        with writing(self._path):
            with self._path.open("ab") as file:
                file.write(b"".join(sums.astype("<u4").tobytes() for sums in self._waiting))
            flush(self._path)
        self._waiting, self._bytes = [], 0

    def _kept(self) -> int:
        """Return how many units are there, from the first on, as they were noted."""
        self._path.touch()
        noted = np.fromfile(self._path, "<u4", min(self._path.stat().st_size // 4, self._share.units))
        return whole_units(self._places, np.arange(len(noted)), noted)


def _there(goal: Path, said: dict[str, Any]) -> LocalPart | None:
    """Return the part if it is there, whole, and none where it is begun, or nothing.

    Raises:
        WouldOverwrite: There is another, or something else.
    """
    with writing(goal):
        there = {path.name for path in goal.iterdir()} if goal.exists() else set()
    names = {"slots", "units", DONE, BEGUN, NOW}
    if not all(name in names or name.startswith(("live-", "manifest-")) or name.endswith(".new") for name in there):
        raise WouldOverwrite(f"{goal} holds other files; name a new folder")
    if NOW in there:
        part = LocalPart(goal)
        begun = part.said
    elif BEGUN in there:
        begun = parse_json((goal / BEGUN).read_text(), str(goal / BEGUN))
    else:
        return None
    differs = [name for name in said if begun.get(name) != said[name]]
    if differs:
        what = "a part already, of" if NOW in there else "the beginning of a part of"
        raise WouldOverwrite(f"{goal} holds {what} another {differs[0]}: name a new folder, or remove it")
    return part if NOW in there else None


def _refuse_inputs(goal: Path, inputs: Sequence[Any]) -> None:
    """Raise WouldOverwrite if a folder is one that is read, or lies in one."""
    for one in inputs:
        folder = Path(one).expanduser().resolve() if isinstance(one, str | os.PathLike) else None
        if folder is not None and folder.is_dir() and goal.resolve().is_relative_to(folder):
            raise WouldOverwrite(f"{goal} lies in {folder}, which is read here: name a folder elsewhere")


def _taken(goal: Path) -> int:
    """Return the bytes of disk that an earlier call has taken."""
    files = [goal / "slots", *((goal / "units").iterdir() if (goal / "units").is_dir() else ())]
    return sum(path.stat().st_blocks * 512 for path in files if path.exists())


@contextmanager
def _locked(goal: Path) -> Iterator[None]:
    """Keep others from staging into a folder meanwhile, where the file system has locks."""
    handle = os.open(goal, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise WouldOverwrite(f"another process stages into {goal} at this moment: wait for it") from None
    except OSError:
        pass
    try:
        yield
    finally:
        os.close(handle)
