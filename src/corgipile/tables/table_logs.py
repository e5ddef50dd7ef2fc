"""Detection of folders whose table log lists the live files, so that stale files are not read."""

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from corgipile.errors import UnknownFormat

__all__ = ["refuse_logged", "refuse_logged_keys"]


class _Log(NamedTuple):
    """A log format: its name, the file that marks it, and the code that reads the current rows."""

    name: str
    sign: str
    rows: str


_SPARK = 'spark.read.format("{}").load({{path!r}}).write.parquet("NEW")'
_OPEN = "corgipile.open({path!r})"
_LOGS = (
    _Log("Delta Lake", "_delta_log", _OPEN),
    _Log("Iceberg", "metadata/*.metadata.json", _OPEN),
    _Log("Lance", "_versions", _OPEN),
    _Log("Hudi", ".hoodie", _SPARK.format("hudi")),
    _Log("Paimon", "snapshot/LATEST", _SPARK.format("paimon")),
    _Log("Spark Structured Streaming", "_spark_metadata", 'spark.read.parquet({path!r}).write.parquet("NEW")'),
)


def refuse_logged(paths: Iterable[str]) -> None:
    """Raise UnknownFormat if a file lies in a table folder with a log.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     (Path(folder) / "_delta_log").mkdir()
        ...     try:
        ...         refuse_logged([f"{folder}/year=2024/part-0.parquet"])
        ...     except UnknownFormat as error:
        ...         "open the table" in str(error)
        True
    """
    direct = {Path(path).parent for path in paths}
    for folder in map(str, direct.union(*(inner.parents for inner in direct))):
        for log in _LOGS:
            inside, _, name = log.sign.rpartition("/")
            exists = os.path.exists(f"{folder}/{inside or name}")  # noqa: PTH110 - called for every folder above a file
            if exists and (signs := sorted(Path(folder).glob(log.sign))):  # globs are slow
                raise UnknownFormat(_message(folder, log, str(signs[-1])))


def refuse_logged_keys(folder: str, keys: Iterable[str]) -> None:
    """Raise UnknownFormat if an object lies in a table folder with a log; keys are relative to ``folder``.

    Example:
        >>> refuse_logged_keys("s3://bucket/table/", ["_delta_log/0.json", "a.parquet"])
        Traceback (most recent call last):
        ...
        corgipile.errors.UnknownFormat: s3://bucket/table is a table of Delta Lake: ...
    """
    for key in keys:
        parts = key.split("/")
        for log in _LOGS:
            signs = log.sign.split("/")
            for at in range(len(parts) - len(signs) + 1):
                if all(fnmatchcase(part, sign) for part, sign in zip(parts[at:], signs, strict=False)):
                    path = "/".join([folder.rstrip("/"), *parts[:at]])
                    raise UnknownFormat(_message(path, log, "/".join([path, *parts[at : at + len(signs)]])))


def _message(folder: str, log: _Log, sign: str) -> str:
    rows = log.rows.format(path=folder, sign=sign)
    if "NEW" in rows:
        hint = f"write its current rows to a new folder by {rows} and open that"
    elif log.rows is _OPEN:
        hint = f"open the table, {rows}"
    else:
        hint = f"give corgipile.open the current rows, {rows}, or write these to a Parquet or Arrow file and open that"
    return (
        f"{folder} is a table of {log.name}: its log ({sign.removeprefix(folder).lstrip('/')}) lists the live files, "
        f"and the folder still has deleted and replaced rows; {hint}"
    )
