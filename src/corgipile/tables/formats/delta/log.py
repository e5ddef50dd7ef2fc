"""Files that a Delta log refers to: data files, sidecars of checkpoints, deletion vectors."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq

from corgipile.errors import UnknownFormat
from corgipile.tables.reach import outside, trusts_paths, within

__all__ = ["LOG", "check_sidecars", "check_vectors", "place"]

LOG, SIDECARS = "_delta_log", "_sidecars"
VECTOR = ("add.deletionVector.storageType", "add.deletionVector.pathOrInlineDv")
UUID = 20  # characters at the end of a vector's name
NAME = re.compile(r"[\w.%+=-]+", re.ASCII)
SPACE = re.compile(r"\s*")
Pairs = list[tuple[str, Any]]  # a JSON object, whose keys may repeat


def place(folder: Path, path: str) -> Path:
    """Return the path of a data file from its URL-encoded name in the log."""
    if "://" in path and not path.startswith("file://"):
        raise UnknownFormat(f"{folder} must have only local files, got {path}")
    return within(folder, unquote(path.removeprefix("file://")), folder / LOG)


def check_sidecars(folder: Path) -> None:
    """Check that checkpoints give sidecars as plain file names, since the library would read any file.

    Raises:
        UntrustedPath: A name is a path or a URL.
    """
    for path in () if trusts_paths() else sorted((folder / LOG).glob("*.checkpoint.*")):
        for action in _actions(path, ["sidecar.path"]):
            for name in (name for side in _values_of(action, "sidecar") for name in _values_of(side, "path")):
                if not isinstance(name, str) or not NAME.fullmatch(name):
                    raise outside(name, path)


def check_vectors(folder: Path) -> None:
    """Check that deletion vectors lie in the table's folder, since the library would read any file.

    Raises:
        UntrustedPath: A vector lies elsewhere.
    """
    log = folder / LOG
    for path in () if trusts_paths() else sorted([*log.glob("*.json"), *log.glob("**/*.parquet")]):
        for action in _actions(path, VECTOR):
            for vector in (one for add in _values_of(action, "add") for one in _values_of(add, "deletionVector")):
                _check_vector(folder, path, vector)


def _check_vector(folder: Path, source: Path, vector: Any) -> None:
    kinds, names = [*_values_of(vector, "storageType")], [*_values_of(vector, "pathOrInlineDv")]
    for name in names:
        if "u" in kinds and not NAME.fullmatch(f"{name[:-UUID]}x"):
            raise outside(name, source)
        if "p" in kinds:
            parts = urlparse(name)
            if parts.scheme != "file" or parts.netloc or parts.query or parts.fragment or re.search(r"[\\\s]", name):
                raise outside(name, source)
            within(folder, unquote(parts.path), source)


def _values_of(pairs: Any, key: str) -> Iterator[Any]:
    """Yield the values of a key of an object, without None."""
    if isinstance(pairs, list):
        yield from (pair[1] for pair in pairs if isinstance(pair, tuple) and pair[0] == key and pair[1] is not None)


def _actions(path: Path, columns: Iterable[str]) -> Iterator[Pairs]:
    """Yield the actions of a log file; a Parquet file is read only in these columns."""
    if path.suffix == ".parquet":
        file = pq.ParquetFile(path)
        present = [name for name in columns if name.partition(".")[0] in file.schema_arrow.names]
        for batch in file.iter_batches(columns=present) if present else ():
            yield from map(_pairs, batch.to_pylist())
    elif path.suffix == ".json":
        text, at, decoder = path.read_text(), 0, json.JSONDecoder(object_pairs_hook=list)
        while (at := SPACE.match(text, at).end()) < len(text):  # type: ignore[union-attr]
            action, at = decoder.raw_decode(text, at)
            yield action


def _pairs(found: Any) -> Any:
    return [(key, _pairs(value)) for key, value in found.items()] if isinstance(found, dict) else found
