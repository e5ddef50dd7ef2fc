"""MDS datasets of MosaicML Streaming: a folder of shards and the ``index.json`` that lists them."""

from pathlib import Path
from typing import Any

from corgipile.errors import BadSchema, CorruptFile, MissingFile, UnknownFormat
from corgipile.nesting import parse_json
from corgipile.tables.concat import ConcatTable
from corgipile.tables.format import folder_format
from corgipile.tables.formats.mds.packed import PackedShard
from corgipile.tables.formats.mds.shard import Column, MdsShard
from corgipile.tables.formats.mds.stored import Encoding
from corgipile.tables.io.files import PathLike, readable
from corgipile.tables.io.spill import Spill
from corgipile.tables.reach import within
from corgipile.tables.table import Table

__all__ = ["FORMAT", "INDEX", "SUFFIXES", "is_mds", "open_mds"]

INDEX, SUFFIXES = "index.json", (".mds",)


def is_mds(folder: Path) -> bool:
    """Return whether a folder holds a dataset of MosaicML Streaming."""
    path = folder / INDEX
    if not path.is_file():
        return False
    with readable(str(path)), path.open("rb") as file:
        return b'"shards"' in file.read(1 << 16)


def open_mds(path: PathLike, spill: Spill = None) -> Table:
    r"""Open a dataset as one table of its shards, in the order of the index.

    Integers, floats, text and bytes are columns of their types. Arrays are nested lists, a level per axis. Compressed
    images are bytes, others become PNM or TIFF files. JSON is text; pickles stay bytes and are never loaded.

    Args:
        path: The folder.
        spill: Folder for spill files of compressed shards; ``"off"``: unpack them in memory.

    Raises:
        CorruptFile: The index or a shard is damaged.
        UnknownFormat: The shards are the package's JSON or CSV ones, not MDS.

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
        raise UnknownFormat(f"{folder} is a shard of a dataset; open its folder, which has an {INDEX}")
    shards = _list_shards(folder / INDEX)
    if not shards:
        raise BadSchema(f"{folder / INDEX} must list at least one shard, got none")
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
    folder: Path, entry: dict[str, Any], columns: tuple[Column, ...], kinds: dict[str, Encoding] | None, spill: Spill
) -> MdsShard | PackedShard:
    """Open a shard, unpacked if that file exists, else compressed."""
    rows = _number(entry, "samples", folder)
    raw = _listed_file(entry.get("raw_data"), folder)
    size = _number(entry["raw_data"], "bytes", folder)
    packed = entry.get("zip_data")
    if packed and not raw.exists():
        codec = str(entry.get("compression")).partition(":")[0]
        return PackedShard(_listed_file(packed, folder), codec, size, rows, columns, kinds, spill)
    if not raw.exists():
        raise MissingFile(
            f"no file at {raw}, which {folder / INDEX} lists; check that the dataset was copied completely"
        )
    shard = MdsShard(raw, rows, columns, kinds)
    if shard.nbytes != size:
        raise CorruptFile(f"{raw} must have the {size} bytes of {folder / INDEX}, got {shard.nbytes}")
    return shard


def _list_shards(path: Path) -> list[dict[str, Any]]:
    """Return the index entries of the shards."""
    with readable(str(path)):
        text = path.read_bytes()
    parsed = parse_json(text, str(path))
    shards = parsed.get("shards") if isinstance(parsed, dict) else None
    if not isinstance(shards, list) or not all(isinstance(shard, dict) for shard in shards):
        raise CorruptFile(f"{path} must list shards")
    for shard in shards:
        if shard.get("format") != "mds" or shard.get("version") != 2:
            raise UnknownFormat(
                f"{path}: a shard must be of format 'mds', version 2, got {shard.get('format')!r}, version "
                f"{shard.get('version')!r}; open shards of text by a glob of their names"
            )
    return shards


def _columns(entry: dict[str, Any], folder: Path) -> tuple[Column, ...]:
    """Return the columns of a shard."""
    lists = [entry.get(f"column_{word}") for word in ("names", "encodings", "sizes")]
    valid = all(isinstance(one, list) for one in lists) and len({len(one) for one in lists if one is not None}) == 1
    if not valid or not lists[0]:
        raise CorruptFile(f"{folder / INDEX}: a shard must list names, encodings and sizes of its columns")
    parsed = []
    for name, encoding, size in zip(*lists, strict=True):
        fixed = isinstance(size, int) and 0 < size < 1 << 32
        if not isinstance(name, str) or not isinstance(encoding, str) or not (fixed or not size):
            raise CorruptFile(
                f"{folder / INDEX}: a column must have name, encoding and size, got {name!r}, {encoding!r}, {size!r}"
            )
        parsed.append(Column(name, encoding, size or None))
    if len({column.name for column in parsed}) != len(parsed):
        raise BadSchema(f"{folder / INDEX}: column names must differ, got {[column.name for column in parsed]}")
    return tuple(parsed)


def _number(entry: Any, what: str, folder: Path) -> int:
    value = entry.get(what) if isinstance(entry, dict) else None
    if not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise CorruptFile(f"{folder / INDEX}: {what} of a shard must be a whole number, got {value!r}")
    return value


def _listed_file(entry: Any, folder: Path) -> Path:
    """Return the path of a file that the index lists."""
    return within(folder, entry.get("basename") if isinstance(entry, dict) else None, folder / INDEX)


FORMAT = folder_format(open_mds, is_mds, "spill", suffixes=SUFFIXES)
