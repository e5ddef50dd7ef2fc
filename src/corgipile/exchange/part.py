"""A rank's part of a table on its disk, which an exchange atomically advances to the next epoch."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from corgipile.errors import CorruptFile, MissingFile, StateMismatch
from corgipile.exchange.places import Places, Sums, places_of, whole_units
from corgipile.outputs import PathLike, flush, keep_rights, writing
from corgipile.tables import Table
from corgipile.tables.formats.part import NOW, Manifest, crc_of
from corgipile.tables.table import IntArray

__all__ = ["LocalPart", "write_manifest"]

NEXT, BEFORE = "manifest-next.json", "manifest-before.json"


class Position(NamedTuple):
    """Epochs of a part: the current one, and the next and previous ones if available, else -1."""

    now: int
    next: int
    before: int


class LocalPart:
    """A rank's rows on its own disk: a folder of units, free places for arriving ones, and a manifest.

    A folder in ``/dev/shm`` keeps them in memory. Arriving rows go to places without rows of the current epoch. The
    manifest lists the places of rows and is replaced atomically, so the last finished epoch survives a kill at any
    time. The previous epoch can be restored until the next exchange begins.

    Args:
        folder: A folder written by `stage`; `corgipile.open` reads it, too.

    Raises:
        MissingFile: The folder has no part, or an unfinished one.
        CorruptFile: The manifest is damaged.

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
            raise MissingFile(f"{self.folder} has no finished part of a table: write it by corgipile partition")
        self._read()

    def _read(self) -> None:
        """Load the manifest."""
        self.manifest = Manifest.read(self.folder)
        self.header, self.live, self.sums = self.manifest
        self.places: Places = places_of(self.folder, self.header, self.manifest.schema)

    @property
    def epoch(self) -> int:
        """Return the current epoch."""
        return int(self.header["epoch"])

    @property
    def table(self) -> Table:
        """Return the rows of this epoch, readable until the exchange after the next begins."""
        return self.manifest.table(self.folder)

    @property
    def standing(self) -> Position:
        """Return the epochs that are available."""
        return Position(self.epoch, self._epoch_of(NEXT, self.epoch + 1), self._epoch_of(BEFORE, self.epoch - 1))

    def _epoch_of(self, name: str, wanted: int) -> int:
        if not (self.folder / name).exists():
            return -1
        epoch = int(Manifest.read(self.folder, name).header["epoch"])
        return epoch if epoch == wanted else -1

    def of_epoch(self, epoch: int) -> Manifest:
        """Return the manifest of the current epoch, or of the next one if prepared.

        Raises:
            StateMismatch: The epoch is not available.
        """
        if epoch == self.epoch:
            return self.manifest
        if epoch != self.standing.next:
            raise StateMismatch(f"{self.folder} must have the part of epoch {epoch}, got epoch {self.epoch}")
        return Manifest.read(self.folder, NEXT)

    def verify(self, epoch: int | None = None) -> None:
        """Read all rows of an epoch, by default the current one, and verify their checksums.

        Raises:
            CorruptFile: A checksum does not match.
        """
        header, live, sums = self.of_epoch(self.epoch if epoch is None else epoch)
        units = np.append(live, [-1] if header["rest"] else []).astype(np.int64)
        valid = whole_units(self.places, units, sums)
        if valid < len(units):
            raise CorruptFile(f"{self.folder}: unit {valid} is damaged: its checksum does not match")

    def free(self, count: int) -> IntArray:
        """Return the first free places, without rows of this epoch."""
        taken = np.zeros(len(self.live) + count, np.bool_)
        taken[self.live[self.live < len(taken)]] = True
        return np.flatnonzero(~taken)[:count]

    def begin(self, count: int) -> IntArray:
        """Discard other epochs, allocate places for arriving units, and return them."""
        for name in (NEXT, BEFORE):
            (self.folder / name).unlink(missing_ok=True)
        for path in self.folder.glob("live-*"):
            if path.name != self.header["live"]:
                path.unlink()
        flush(self.folder)
        free = self.free(count)
        self.places.room(max(len(self.live), int(free[-1]) + 1 if count else 0))
        return free

    def prepare(self, slots: IntArray, places: IntArray, sums: Sums) -> None:
        """Prepare the next epoch, which has arrived units in these slots; the current one does not change.

        Args:
            slots: Slots of the part that are replaced.
            places: Places of the arrived units.
            sums: Checksums of the arrived units.
        """
        self.places.flush()
        live, all_sums = self.live.copy(), self.sums.copy()
        live[slots], all_sums[slots] = places, sums
        write_manifest(self.folder, NEXT, Manifest({**self.header, "epoch": self.epoch + 1}, live, all_sums))

    def commit(self) -> None:
        """Switch to the prepared next epoch."""
        write_manifest(self.folder, BEFORE, self.manifest)
        self._switch(NEXT)

    def go_back(self) -> None:
        """Switch to the previous epoch; the current one becomes the next."""
        write_manifest(self.folder, NEXT, self.manifest)
        self._switch(BEFORE)

    def _switch(self, name: str) -> None:
        with writing(self.folder / NOW):
            (self.folder / name).replace(self.folder / NOW)
            flush(self.folder)
        self._read()


def write_manifest(folder: Path, name: str, manifest: Manifest) -> None:
    """Write a manifest atomically."""
    header, live, sums = manifest
    raw = live.astype("<i8").tobytes() + sums.astype("<u4").tobytes()
    file = f"live-{header['epoch']}"
    header = {**header, "live": file}
    text = json.dumps({**header, "crc": crc_of(header, raw)})
    with writing(folder / name):
        for path, data in ((file, raw), (name, text.encode())):
            new = folder / f"{path}.new"
            new.write_bytes(data)
            flush(new)
            keep_rights(new, folder / path)
            new.replace(folder / path)
        flush(folder)
