"""Hugging Face datasets as ``save_to_disk`` writes them: a folder of Arrow IPC streams and some JSON."""

from pathlib import Path
from typing import Any

from corgipile.errors import BadArgument, CorruptFile, UnknownFormat
from corgipile.nesting import parse_json
from corgipile.tables.concat import ConcatTable
from corgipile.tables.format import folder_format
from corgipile.tables.formats.arrow.stream import ArrowStream
from corgipile.tables.io.files import PathLike, readable
from corgipile.tables.io.spill import Spill
from corgipile.tables.reach import within
from corgipile.tables.table import Table

STATE, SPLITS = "state.json", "dataset_dict.json"


def is_saved(folder: Path) -> bool:
    """Return whether a folder holds a saved dataset or several splits."""
    return (folder / STATE).is_file() or (folder / SPLITS).is_file()


def open_saved(path: PathLike, spill: Spill = None) -> Table:
    """Open a saved dataset; the schema metadata keeps its features.

    Raises:
        BadArgument: The dataset has several splits, each in its own folder.
        UnknownFormat: An indices file selects its rows.

    Example:
        >>> import tempfile, pyarrow as pa
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with pa.ipc.new_stream(f"{folder}/data-00000-of-00001.arrow", pa.schema([("x", pa.int32())])) as writer:
        ...         writer.write(pa.record_batch({"x": pa.array([1, 2], pa.int32())}))
        ...     _ = (Path(folder) / STATE).write_text('{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}')
        ...     open_saved(folder).read(1, 2).to_pydict()
        {'x': [2]}
    """
    folder = Path(path).expanduser().absolute()
    if not (folder / STATE).is_file():
        splits = [str(name) for name in _json(folder / SPLITS).get("splits") or ["?"]]
        raise BadArgument(f"{folder} holds the splits {', '.join(splits)}; open a split, such as {folder / splits[0]}")
    state = _json(folder / STATE)
    if state.get("_indices_data_files"):
        raise UnknownFormat(f"{folder} must not select rows by an indices file; save it after flatten_indices()")
    try:
        names = [part["filename"] for part in state["_data_files"]]
    except (KeyError, TypeError):
        raise CorruptFile(f"{folder / STATE} must list _data_files with their filename") from None
    if not names:
        raise CorruptFile(f"{folder / STATE} must list at least one data file, got none")
    tables = [ArrowStream(within(folder, name, folder / STATE), spill) for name in names]
    return tables[0] if len(tables) == 1 else ConcatTable(tables)


def _json(path: Path) -> dict[str, Any]:
    with readable(str(path)):
        text = path.read_bytes()
    value = parse_json(text, str(path))
    if not isinstance(value, dict):
        raise CorruptFile(f"{path} must hold a JSON object, got {type(value).__name__}")
    return value


FORMAT = folder_format(open_saved, is_saved, "spill")
