"""Call of the extension's training function, and its progress."""

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Self

from corgipile.errors import BadArgument
from corgipile.orders.riffle import CONTENT
from corgipile.settings import TrainArguments, declared
from corgipile.sizes import parse_bytes
from corgipile.sql.engines.engine import Progress
from corgipile.sql.engines.postgres.faults import library
from corgipile.sql.engines.postgres.models import Known
from corgipile.sql.engines.postgres.rows import Relation
from corgipile.sql.engines.postgres.writing import Writer
from corgipile.sql.engines.training import balanced_by, missing_column, not_numeric, train_columns
from corgipile.sql.statements import Train

__all__ = ["Watch", "has_percentages", "source_arguments", "train_call", "watch_training"]

NUMBERS = ("smallint", "integer", "bigint", "real", "double precision", "numeric", "boolean")
# The extension's arguments with a name other than the setting's.
NAMES = {"validation": "holdout", "block": "block_size", "buffer": "buffer_size", "memory": "buffer_size"}
DEFAULTS = {name: one.default for name, one in declared(TrainArguments).items()}
OMITTED = ("order", "on_bad", "missing", "solver", "inner")  # if equal to their default
FILE_ONLY = {"group": "holds single rows out", "solver": "learns by SGD", "inner": "learns by SGD"}
POLL_SECONDS = 0.2


def train_call(train: Train, relation: Relation, known: Known, writer: Writer, size: Callable[[], int]) -> str:
    """Return the SQL call of ``corgipile.train`` for a bound training.

    ``size`` returns the bytes of the rows' table.
    """
    find = partial(_checked_column, relation=relation)
    label, labels, features, hashed = train_columns(train, relation.columns, find)
    given = {**_arguments(train, balanced_by({"labels": labels, "label": label}), size), **hashed}
    if "encode" not in given:
        _check_kinds(features, relation)
    written = {name: _argument_sql(name, value, writer) for name, value in given.items()}
    columns = f"ARRAY[{', '.join(map(writer.literal, features))}]" if features else "NULL"
    written |= {"model": f"{writer.literal(train.model)}::pg_catalog.text", "features": f"{columns}::pg_catalog.text[]"}
    written |= {} if labels else {"label": f"{writer.literal(label)}::pg_catalog.text"}
    written |= source_arguments(relation, known, writer)
    for name in written:
        known.check(name)
    return f"corgipile.train({', '.join(f'{writer.name(name)} => {text}' for name, text in written.items())})"


def source_arguments(relation: Relation, known: Known, writer: Writer) -> dict[str, str]:
    """Return the arguments that select the rows; raise NotSupportedError if the extension lacks one."""
    if relation.query is not None:
        arguments = {"query": f"{writer.literal(relation.query)}::pg_catalog.text"}
    else:
        arguments = {"source": f"{writer.literal(relation.name)}::pg_catalog.regclass"}
        if relation.where is not None:
            arguments["where"] = f"{writer.literal(relation.where)}::pg_catalog.text"
    for name in arguments:
        known.check(name)
    return arguments


def has_percentages(train: Train) -> bool:
    """Return whether a size is a percentage, so that the rows' bytes must be known."""
    return any(_is_percentage(train.settings.get(name)) for name in ("block", "buffer", "memory"))


def _is_percentage(value: Any) -> bool:
    return isinstance(value, str) and value.rstrip().endswith("%")


def _checked_column(name: str, relation: Relation) -> str:
    if name not in relation.columns:
        raise missing_column(name, relation.columns)
    return name


def _check_kinds(features: list[str], relation: Relation) -> None:
    for name in features:
        kind = relation.kinds[name]
        if kind.removesuffix("[]") not in NUMBERS:
            raise not_numeric(name, kind)


def _arguments(train: Train, label: str, size: Callable[[], int]) -> dict[str, Any]:
    """Return the extension's arguments as Python values, without defaults."""
    given: dict[str, Any] = {}
    for name, value in train.settings.items():
        if value is None or (name in OMITTED and value == DEFAULTS[name]):
            continue
        if name in FILE_ONLY:
            raise BadArgument(
                f"{name} works for files and DuckDB only; PostgreSQL {FILE_ONLY[name]}, got {name} = {value!r}"
            )
        if name == "on_bad":
            if train.settings.get("missing", DEFAULTS["missing"]) != DEFAULTS["missing"]:
                raise BadArgument("in PostgreSQL missing and on_bad exclude each other; give one of them")
            given["missing"] = "skip"
        elif name == "balance" and isinstance(value, str):
            if value not in (label, CONTENT):
                raise BadArgument(f"balance must be the label {label!r} or content in PostgreSQL, got {value!r}")
            given[name] = CONTENT if value == CONTENT else True
        elif name in ("block", "buffer", "memory"):
            _add_size(given, name, value, size)
        else:
            given[NAMES.get(name, name)] = value
    return given | {name: value for name, value in (("name", train.name), ("warm_start", train.warm_start)) if value}


def _add_size(given: dict[str, Any], name: str, value: Any, size: Callable[[], int]) -> None:
    """Add a size in bytes to the arguments."""
    if not isinstance(value, str) and name != "memory":
        raise BadArgument(
            f"{name} must be bytes such as 1MB or a percentage such as 10% in PostgreSQL, got {value!r} rows"
        )
    if NAMES[name] in given:
        raise BadArgument("buffer and memory are the same setting in PostgreSQL; give one of them")
    given[NAMES[name]] = str(parse_bytes(value, name, whole=size() if _is_percentage(value) else 1))


def _argument_sql(name: str, value: Any, writer: Writer) -> str:
    """Write the value of an argument as SQL."""
    if name in ("text", "labels"):
        return f"ARRAY[{', '.join(map(writer.literal, value))}]::pg_catalog.text[]"
    if name == "interactions":
        return f"{writer.literal(json.dumps(value))}::pg_catalog.text"
    if isinstance(value, Mapping):
        return f"{writer.literal(json.dumps(dict(value)))}::pg_catalog.text"
    if name == "classes":
        texts = any(isinstance(one, str) for one in value)
        items = ", ".join(writer.literal(str(one) if texts else float(one)) for one in value)
        return f"ARRAY[{items}]::{'text' if texts else 'float8'}[]"
    if isinstance(value, str):
        return f"{writer.literal(value)}::pg_catalog.text"
    return writer.literal(value)


class Watch(AbstractContextManager["Watch"]):
    """Reports the progress of the training in backend ``pid``, polled through another connection.

    ``past`` epochs are of the warm start.
    """

    def __init__(self, progress: Progress, connect: Callable[[], Any], pid: int, past: int) -> None:
        self._progress, self._connect, self._pid, self._past = progress, connect, pid, past
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._each, self._done = 0, 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def epoch(self, record: dict[str, Any], epochs: int) -> None:
        """Report a finished epoch."""
        with self._lock:
            self._advance(record["rows"], epochs, (record["epoch"] - self._past + 1) * record["rows"])
            self._progress.epoch(record)

    def _advance(self, each: int, epochs: int, done: int) -> None:
        if not self._each:
            self._each = each
            self._progress.begin(each, epochs)
        if done > self._done:
            self._progress.rows(done - self._done)
            self._done = done

    def _poll(self) -> None:
        try:
            connection = self._connect()
        except library().Error:
            return  # no free connection; finished epochs are reported anyway
        sql = (
            "SELECT epoch, epochs, rows_done, rows FROM corgipile.progress "
            "WHERE pid OPERATOR(pg_catalog.=) %s AND rows OPERATOR(pg_catalog.>) 0"
        )
        with connection:
            while not self._over.wait(POLL_SECONDS):
                try:
                    row = connection.execute(sql, [self._pid]).fetchone()
                except library().Error:
                    return
                if row is not None:
                    epoch, epochs, done, rows = row
                    with self._lock:
                        self._advance(rows, epochs - self._past, (epoch - self._past) * rows + done)


def watch_training(
    progress: Progress | None, connect: Callable[[], Any], pid: int, past: int
) -> AbstractContextManager[Watch | None]:
    """Return a watch, or a null context without `progress`."""
    return nullcontext() if progress is None else Watch(progress, connect, pid, past)
