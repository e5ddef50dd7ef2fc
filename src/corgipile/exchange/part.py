"""A rank's part of a table on its own disk, which an exchange turns into that of the next epoch, or not at all."""

import base64
import json
import zlib
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from corgipile.errors import BadArgument, CorruptFile, MissingFile, StateMismatch, WouldOverwrite
from corgipile.exchange.places import Files, Places, Slots, check_space
from corgipile.orders import Shard
from corgipile.outputs import PathLike, flush, writing
from corgipile.sizes import Size, to_rows
from corgipile.tables import Table
from corgipile.tables import open as open_table
from corgipile.tables.arrow.writer import plain
from corgipile.tables.io.files import digest
from corgipile.tables.io.pieces import pick
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.table import IntArray, fixed_field

__all__ = ["LocalPart"]

VERSION = 1
UNIT, FEWEST, COPIED = 64 << 10, 64, 8 << 20  # bytes of a unit; units of a part; bytes read at a time
NOW, NEXT, BEFORE = "manifest.json", "manifest-next.json", "manifest-before.json"


class Standing(NamedTuple):
    """Which epochs a part has: the one that is read, and those that it can be turned into; -1 where there is none."""

    now: int
    next: int
    before: int


class LocalPart:
    """Rows that a rank keeps on a disk of its own: a folder of units, some places for those that arrive, a manifest.

    A folder of ``/dev/shm`` keeps them in memory. What arrives is put into places that no row of the epoch lies in;
    which places are rows is said by a manifest, which is replaced at once. So a process may be killed anywhere: the
    last finished epoch is whole. Until the next exchange begins, the epoch before can be had back, too.

    Args:
        folder: What `create` made.

    Raises:
        MissingFile: There is no part in the folder.
        CorruptFile: Its manifest is damaged.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     part = LocalPart.create(pa.table({"x": range(10)}), f"{folder}/1", rank=1, world=2, unit=1)
        ...     part.table.read(0, len(part.table)).to_pydict(), LocalPart(f"{folder}/1").epoch
        ({'x': [5, 6, 7, 8, 9]}, 0)
    """

    def __init__(self, folder: PathLike) -> None:
        self.folder = Path(folder).expanduser().absolute()
        if not (self.folder / NOW).is_file():
            raise MissingFile(f"{self.folder} holds no part of a table: LocalPart.create makes one")
        self._read()

    @classmethod
    def create(
        cls,
        table: Any,
        folder: PathLike,
        rank: int,
        world: int,
        *,
        unit: Size | None = None,
        in_place: bool | None = None,
    ) -> Self:
        """Copy a rank's part of a table, as it lies there, into a new folder.

        Args:
            table: What `corgipile.open` takes; the same on all ranks.
            folder: Made here; what a copy that was broken off left in it is replaced.
            rank: This process of ``world``.
            world: How many there are.
            unit: Rows (int), bytes or share that are exchanged together; None: 64 KB of them.
            in_place: Whether rows lie in slots of one width, which is faster; None: where all columns are numbers.

        Raises:
            BadArgument: There are fewer units than ranks.
            WouldOverwrite: The folder holds a part already, or something else.
            WriteFailed: The disk is full, or the file system refuses; the space is checked first.
        """
        rank, world, *_ = Shard.checked(rank, world)
        source: Table = open_table(table)
        schema = plain(source.schema)
        rows, size = len(source), max(1.0, row_bytes(source))
        if rows < world:
            raise BadArgument(f"{rows} rows for {world} ranks: each rank needs one at least")
        default = max(1, min(int(UNIT / size), rows // world // FEWEST))
        each = default if unit is None else min(to_rows(unit, rows, size, "unit"), rows // world)
        fixed = all(fixed_field(field.type) is not None for field in schema)
        if in_place and not fixed:
            raise BadArgument(f"in_place needs columns of numbers, got {schema.types}")
        goal = Path(folder).expanduser().absolute()
        _make(goal)
        share = _Share(rows, each, rank, world)
        check_space(goal, int((share.stop - share.start) * each * size))
        said = {
            "corgipile": "part", "version": VERSION, "rank": rank, "world": world, "rows": rows, "unit": each,
            "units": share.stop - share.start, "rest": share.rest[1] - share.rest[0], "epoch": 0,
            "in_place": fixed if in_place is None else in_place,
            "of": digest(source.fingerprint, str(world), str(each)),
            "schema": base64.b64encode(schema.serialize().to_pybytes()).decode(),
        }  # fmt: skip
        places = _places(goal, said)
        share.copy(source, places, max(1, int(COPIED / size / each)), schema)
        _write(goal, NOW, said, np.arange(share.stop - share.start))
        return cls(goal)

    def _read(self) -> None:
        """Take what the manifest says."""
        self.said, self.live = self._manifest(NOW)
        self.places: Places = _places(self.folder, self.said)

    def _manifest(self, name: str) -> tuple[dict[str, Any], IntArray]:
        path = self.folder / name
        try:
            said: dict[str, Any] = json.loads(path.read_text())
            if said["version"] != VERSION:
                raise StateMismatch(f"{path} is of version {said['version']}; this corgipile reads {VERSION}")
            raw = (self.folder / said["live"]).read_bytes()
            if zlib.crc32(raw) != said["crc"] or len(raw) != 8 * said["units"]:
                raise CorruptFile(f"{self.folder / said['live']} is damaged: its checksum is another")
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, StateMismatch | CorruptFile):
                raise
            raise CorruptFile(f"{path} is damaged: {error!r}") from None
        return said, np.frombuffer(raw, "<i8").astype(np.int64)

    @property
    def epoch(self) -> int:
        """Return the epoch whose rows these are."""
        return int(self.said["epoch"])

    @property
    def table(self) -> Table:
        """Return the rows of this epoch; to be read until the exchange after the next begins."""
        return self.places.table(np.sort(self.live), self.said["rest"], f"{self.said['of']} {self.epoch}")

    @property
    def standing(self) -> Standing:
        """Return which epochs it can be turned into."""
        return Standing(self.epoch, self._epoch_of(NEXT, self.epoch + 1), self._epoch_of(BEFORE, self.epoch - 1))

    def _epoch_of(self, name: str, wanted: int) -> int:
        if not (self.folder / name).exists():
            return -1
        found = int(self._manifest(name)[0]["epoch"])
        return found if found == wanted else -1

    def free(self, count: int) -> IntArray:
        """Return so many places in which no row of this epoch lies, from the first on."""
        taken = np.zeros(len(self.live) + count, np.bool_)
        taken[self.live[self.live < len(taken)]] = True
        return np.flatnonzero(~taken)[:count]

    def begin(self, count: int) -> IntArray:
        """Give up other epochs, make room for so many units that arrive, and return their places."""
        for name in (NEXT, BEFORE):
            (self.folder / name).unlink(missing_ok=True)
        for path in self.folder.glob("live-*"):
            if path.name != self.said["live"]:
                path.unlink()
        flush(self.folder)
        free = self.free(count)
        self.places.room(max(len(self.live), int(free[-1]) + 1 if count else 0))
        return free

    def prepare(self, slots: IntArray, free: IntArray) -> None:
        """Note the next epoch, in which what arrived in these places is in these slots; nothing changes yet."""
        self.places.flush()
        live = self.live.copy()
        live[slots] = free
        _write(self.folder, NEXT, {**self.said, "epoch": self.epoch + 1}, live)

    def commit(self) -> None:
        """Become the next epoch, which was prepared."""
        _write(self.folder, BEFORE, self.said, self.live)
        self._switch(NEXT)

    def go_back(self) -> None:
        """Become the epoch before; the one that was is the next."""
        _write(self.folder, NEXT, self.said, self.live)
        self._switch(BEFORE)

    def _switch(self, name: str) -> None:
        with writing(self.folder / NOW):
            (self.folder / name).replace(self.folder / NOW)
            flush(self.folder)
        self._read()


def _places(folder: Path, said: dict[str, Any]) -> Places:
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(said["schema"])))
    if said["in_place"]:
        return Slots(folder, schema, said["unit"], said["rest"])
    return Files(folder, schema, said["unit"])


def _write(folder: Path, name: str, said: dict[str, Any], live: IntArray) -> None:
    """Write a manifest, wholly or not at all."""
    raw = live.astype("<i8").tobytes()
    file = f"live-{said['epoch']}"
    text = json.dumps({**said, "live": file, "crc": zlib.crc32(raw)})
    with writing(folder / name):
        for path, data in ((file, raw), (name, text.encode())):
            new = folder / f"{path}.new"
            new.write_bytes(data)
            flush(new)
            new.replace(folder / path)
        flush(folder)


class _Share(NamedTuple):
    """What a rank copies of a table."""

    rows: int
    unit: int
    rank: int
    world: int

    @property
    def start(self) -> int:
        """Return the first unit."""
        return self.rank * (self.rows // self.unit) // self.world

    @property
    def stop(self) -> int:
        """Return the unit after the last."""
        return (self.rank + 1) * (self.rows // self.unit) // self.world

    @property
    def rest(self) -> tuple[int, int]:
        """Return the rank's rows of those that make no whole unit."""
        whole = self.rows // self.unit * self.unit
        rest = self.rows - whole
        return whole + self.rank * rest // self.world, whole + (self.rank + 1) * rest // self.world

    def copy(self, source: Table, places: Places, some: int, schema: pa.Schema) -> None:
        """Copy units, some at a time, and what makes none."""
        places.room(self.stop - self.start)
        names = schema.names
        for first in range(self.start, self.stop, some):
            stop = min(self.stop, first + some)
            rows = source.read(first * self.unit, stop * self.unit, names)
            units = [places.encode(rows.slice(at * self.unit, self.unit)) for at in range(stop - first)]
            places.write(range(first - self.start, stop - self.start), units)
        low, high = self.rest
        if high > low:
            places.write([-1], [places.encode(source.read(low, high, pick(source.schema, names).names))])
        places.flush()


def _make(goal: Path) -> None:
    with writing(goal):
        goal.mkdir(parents=True, exist_ok=True)
        there = {path.name for path in goal.iterdir()}
    if NOW in there:
        raise WouldOverwrite(f"{goal} holds a part already: LocalPart({str(goal)!r}) opens it")
    if not all(name in ("slots", "units") or name.startswith("live-") or name.endswith(".new") for name in there):
        raise WouldOverwrite(f"{goal} holds other files; name a new folder")
