"""MDS datasets, as MosaicML Streaming writes them: a folder of shards and the ``index.json`` that lists them."""

from pathlib import Path
from typing import Any

from corgipile.errors import BadSchema, CorruptFile, MissingFile, UnknownFormat
from corgipile.nesting import parse_json
from corgipile.tables.concat import ConcatTable
from corgipile.tables.io.files import PathLike, readable
from corgipile.tables.io.spill import Spill
from corgipile.tables.mds.packed import PackedShard
from corgipile.tables.mds.shard import Column, MdsShard
from corgipile.tables.mds.stored import Encoding
from corgipile.tables.reach import within
from corgipile.tables.table import Table

__all__ = ["INDEX", "SUFFIXES", "is_mds", "open_mds"]

INDEX, SUFFIXES = "index.json", (".mds",)


def is_mds(folder: Path) -> bool:
    """Say whether a folder holds a dataset of MosaicML Streaming."""
    path = folder / INDEX
    if not path.is_file():
        return False
    with readable(str(path)), path.open("rb") as file:
        return b'"shards"' in file.read(1 << 16)


def open_mds(path: PathLike, spill: Spill = None) -> Table:
    r"""Open a dataset: its shards, in the order of the index, are one table.

    Integers, floats, text and bytes are columns of their types; arrays are lists, nested as they have axes; images
    that are compressed are bytes, others become PNM or TIFF files; JSON is text, and pickles stay bytes that nobody
    loads.

    Args:
        path: The folder.
        spill: Folder for spill files, to which compressed shards are unpacked; ``"off"``: in memory.

    Raises:
        CorruptFile: The index or a shard is damaged.
        UnknownFormat: The shards are not MDS, but the package's JSON or CSV ones.

    Example:
        >>> import corgipile as cp, tempfile, pyarrow as pa
        >>> folder = tempfile.mkdtemp() + "/rows"
        >>> cp.convert(pa.table({"x": [[1.0, 2.0], [3.0, 4.0]], "label": [0, 1]}), folder, to="mds")
        2
        >>> open_mds(folder).take([1]).to_pylist()
        [{'label': 1, 'x': [3.0, 4.0]}]
    """
    folder = Path(path).expanduser().absolute()
    if not folder.is_dir():
        raise UnknownFormat(f"{folder} is one shard of a dataset; open its folder, which has an {INDEX}")
    shards = _listed(folder / INDEX)
    if not shards:
        raise BadSchema(f"{folder / INDEX} lists no shards, so that there are no columns; one at least is needed")
    tables: list[MdsShard | PackedShard] = []
    kinds: dict[tuple[Column, ...], dict[str, Encoding]] = {}
    first = next((at for at, shard in enumerate(shards) if _number(shard, "samples", folder)), 0)
    for at in [first, *(at for at in range(len(shards)) if at != first)]:
        columns = _columns(shards[at], folder)
        table = _shard(folder, shards[at], columns, kinds.get(columns), spill)
        kinds.setdefault(columns, table.kinds)
        tables.insert(len(tables) if at > first else at, table)
    return tables[0] if len(tables) == 1 else ConcatTable(tables)


def _shard(
    folder: Path, said: dict[str, Any], columns: tuple[Column, ...], kinds: dict[str, Encoding] | None, spill: Spill
) -> MdsShard | PackedShard:
    """Open a shard, as it is where it lies unpacked."""
    rows = _number(said, "samples", folder)
    raw = _file(said.get("raw_data"), folder)
    size = _number(said["raw_data"], "bytes", folder)
    packed = said.get("zip_data")
    if packed and not raw.exists():
        codec = str(said.get("compression")).partition(":")[0]
        return PackedShard(_file(packed, folder), codec, size, rows, columns, kinds, spill)
    if not raw.exists():
        raise MissingFile(f"no file at {raw}, which {folder / INDEX} lists; the dataset may be copied in part")
    shard = MdsShard(raw, rows, columns, kinds)
    if shard.nbytes != size:
        raise CorruptFile(f"{raw} has {shard.nbytes} bytes; {folder / INDEX} says {size}")
    return shard


def _listed(path: Path) -> list[dict[str, Any]]:
    """Return what the index says of each shard."""
    with readable(str(path)):
        text = path.read_bytes()
    found = parse_json(text, str(path))
    shards = found.get("shards") if isinstance(found, dict) else None
    if not isinstance(shards, list) or not all(isinstance(shard, dict) for shard in shards):
        raise CorruptFile(f"{path} does not list shards")
    for shard in shards:
        if shard.get("format") != "mds" or shard.get("version") != 2:
            raise UnknownFormat(
                f"{path} lists a shard of format {shard.get('format')!r}, version {shard.get('version')!r}; 'mds' of "
                "version 2 can be read. Shards of text are opened as such, by a glob of their names"
            )
    return shards


def _columns(said: dict[str, Any], folder: Path) -> tuple[Column, ...]:
    """Return the columns that a shard has."""
    lists = [said.get(f"column_{word}") for word in ("names", "encodings", "sizes")]
    right = all(isinstance(one, list) for one in lists) and len({len(one) for one in lists if one is not None}) == 1
    if not right or not lists[0]:
        raise CorruptFile(f"{folder / INDEX}: a shard does not list names, encodings and sizes of its columns")
    found = []
    for name, encoding, size in zip(*lists, strict=True):
        fixed = isinstance(size, int) and 0 < size < 1 << 32
        if not isinstance(name, str) or not isinstance(encoding, str) or not (fixed or not size):
            raise CorruptFile(
                f"{folder / INDEX}: a column is called {name!r}, stored as {encoding!r} of {size!r} bytes"
            )
        found.append(Column(name, encoding, size or None))
    if len({column.name for column in found}) != len(found):
        raise BadSchema(f"{folder / INDEX}: two columns have one name among {[column.name for column in found]}")
    return tuple(found)


def _number(said: Any, what: str, folder: Path) -> int:
    value = said.get(what) if isinstance(said, dict) else None
    if not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise CorruptFile(f"{folder / INDEX}: {what} of a shard is {value!r}; a whole number is right")
    return value


def _file(said: Any, folder: Path) -> Path:
    """Return the path of a file that the index lists."""
    return within(folder, said.get("basename") if isinstance(said, dict) else None, folder / INDEX)
