"""A rank's part of a table on its own disk, which an exchange turns into that of the next epoch, or not at all."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from corgipile.errors import CorruptFile, MissingFile, StateMismatch
from corgipile.exchange.places import Places, Sums, places_of, whole_units
from corgipile.outputs import PathLike, flush, keep_rights, writing
from corgipile.tables import Table
from corgipile.tables.part import NOW, Manifest, crc_of
from corgipile.tables.table import IntArray

__all__ = ["LocalPart", "write_manifest"]

NEXT, BEFORE = "manifest-next.json", "manifest-before.json"


class Position(NamedTuple):
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
        folder: What `stage` made; `corgipile.open` reads it, too.

    Raises:
        MissingFile: There is no part in the folder, or one that is not finished.
        CorruptFile: Its manifest is damaged.

    Example:
        >>> import pyarrow as pa, tempfile
        >>> from corgipile.exchange import stage
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     part = stage(pa.table({"x": range(10)}), f"{folder}/1", rank=1, world=2, unit=1)
        ...     part.table.read(0, len(part.table)).to_pydict(), LocalPart(f"{folder}/1").epoch
        ({'x': [5, 6, 7, 8, 9]}, 0)
    """

    def __init__(self, folder: PathLike) -> None:
        self.folder = Path(folder).expanduser().absolute()
        if not (self.folder / NOW).is_file():
            raise MissingFile(f"{self.folder} holds no part of a table: corgipile stage makes one, or finishes it")
        self._read()

    def _read(self) -> None:
        """Take what the manifest says."""
        self.manifest = Manifest.read(self.folder)
        self.said, self.live, self.sums = self.manifest
        self.places: Places = places_of(self.folder, self.said, self.manifest.schema)

    @property
    def epoch(self) -> int:
        """Return the epoch whose rows these are."""
        return int(self.said["epoch"])

    @property
    def table(self) -> Table:
        """Return the rows of this epoch; to be read until the exchange after the next begins."""
        return self.manifest.table(self.folder)

    @property
    def standing(self) -> Position:
        """Return which epochs it can be turned into."""
        return Position(self.epoch, self._epoch_of(NEXT, self.epoch + 1), self._epoch_of(BEFORE, self.epoch - 1))

    def _epoch_of(self, name: str, wanted: int) -> int:
        if not (self.folder / name).exists():
            return -1
        found = int(Manifest.read(self.folder, name).said["epoch"])
        return found if found == wanted else -1

    def of_epoch(self, epoch: int) -> Manifest:
        """Return which places are the rows of the epoch at hand, or of the next where it is prepared.

        Raises:
            StateMismatch: It has neither.
        """
        if epoch == self.epoch:
            return self.manifest
        if epoch != self.standing.next:
            raise StateMismatch(f"{self.folder} has the part of epoch {self.epoch}; that of epoch {epoch} is wanted")
        return Manifest.read(self.folder, NEXT)

    def verify(self, epoch: int | None = None) -> None:
        """Read all rows of an epoch, that at hand by default, and compare them with their checksums.

        Raises:
            CorruptFile: They are not what was written.
        """
        said, live, sums = self.of_epoch(self.epoch if epoch is None else epoch)
        units = np.append(live, [-1] if said["rest"] else []).astype(np.int64)
        right = whole_units(self.places, units, sums)
        if right < len(units):
            raise CorruptFile(f"{self.folder}: unit {right} is not what was written: its checksum is another")

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

    def prepare(self, slots: IntArray, places: IntArray, sums: Sums) -> None:
        """Note the next epoch, in which what arrived in these places is in these slots; nothing changes yet.

        Args:
            slots: Which.
            places: Where what arrived for them lies.
            sums: Its checksums.
        """
        self.places.flush()
        live, known = self.live.copy(), self.sums.copy()
        live[slots], known[slots] = places, sums
        write_manifest(self.folder, NEXT, Manifest({**self.said, "epoch": self.epoch + 1}, live, known))

    def commit(self) -> None:
        """Become the next epoch, which was prepared."""
        write_manifest(self.folder, BEFORE, self.manifest)
        self._switch(NEXT)

    def go_back(self) -> None:
        """Become the epoch before; the one that was is the next."""
        write_manifest(self.folder, NEXT, self.manifest)
        self._switch(BEFORE)

    def _switch(self, name: str) -> None:
        with writing(self.folder / NOW):
            (self.folder / name).replace(self.folder / NOW)
            flush(self.folder)
        self._read()


def write_manifest(folder: Path, name: str, manifest: Manifest) -> None:
    """Write a manifest, wholly or not at all."""
    said, live, sums = manifest
    raw = live.astype("<i8").tobytes() + sums.astype("<u4").tobytes()
    file = f"live-{said['epoch']}"
    said = {**said, "live": file}
    text = json.dumps({**said, "crc": crc_of(said, raw)})
    with writing(folder / name):
        for path, data in ((file, raw), (name, text.encode())):
            new = folder / f"{path}.new"
            new.write_bytes(data)
            flush(new)
            keep_rights(new, folder / path)
            new.replace(folder / path)
        flush(folder)
