"""Writes a training as a call of the extension's function, and follows it while it runs."""

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Self

from corgipile.errors import BadArgument, BadSchema, MissingColumn
from corgipile.orders.riffle import CONTENT
from corgipile.settings import TrainArguments, declared
from corgipile.sizes import parse_bytes
from corgipile.sql.engines.engine import Progress
from corgipile.sql.engines.postgres.faults import library
from corgipile.sql.engines.postgres.models import Known
from corgipile.sql.engines.postgres.rows import Relation
from corgipile.sql.engines.postgres.writing import Writer
from corgipile.sql.engines.training import balanced_by, check_labels
from corgipile.sql.statements import Train
from corgipile.suggestions import did_you_mean, listed

__all__ = ["Watch", "following", "has_shares", "source_arguments", "train_call"]

NUMBERS = ("smallint", "integer", "bigint", "real", "double precision", "numeric", "boolean")
# Settings as the extension's arguments; the others have the same name there.
NAMES = {"validation": "holdout", "block": "block_size", "buffer": "buffer_size", "memory": "buffer_size"}
DEFAULTS = {name: one.default for name, one in declared(TrainArguments).items()}
SILENT = ("order", "on_bad", "missing", "solver", "inner")  # as they are by default they need not be said
FILES = {
    "group": "holds single rows out",
    "solver": "learns by SGD",
    "inner": "learns by SGD",
}
WAIT = 0.2  # seconds between looks at a training


def train_call(train: Train, relation: Relation, known: Known, writer: Writer, size: Callable[[], int]) -> str:
    """Return the call of ``corgipile.train`` for a training whose settings are settled.

    Args:
        train: The training.
        relation: Its rows.
        known: The arguments that the extension has.
        writer: Writes SQL.
        size: Returns the bytes of the rows, where they are those of a table.

    Raises:
        BadArgument: A setting has a value that this engine has nothing for.
        BadSchema: A column is neither numbers nor encoded.
        NotSupportedError: The extension of the server has no such argument.
    """
    labels = [_found(name, relation) for name in train.settings.get("labels") or ()]
    label = _found(labels[0] if labels else train.label_of(relation.columns), relation)
    check_labels(train)
    apart = [_found(name, relation) for name in map(train.settings.get, ("weight", "by")) if name is not None]
    hashed = _hashed(train, relation)
    crossed = [name for term in hashed.get("interactions", ()) for name in term]
    others = {label, *labels, *apart, *hashed.get("text", ()), *crossed}
    features = [_found(name, relation) for name in train.features or ()] or [
        name for name in relation.columns if name not in others
    ]
    if not features and not hashed:
        raise BadArgument(f"the rows have one column, {label!r}; features stand before the label")
    given = {**_arguments(train, balanced_by({"labels": labels, "label": label}), size), **hashed}
    if "encode" not in given:
        _check_kinds(features, relation)
    if not given.get("standardize", True) and "standardize" not in known.arguments:
        del given["standardize"]  # an extension without it learns from features as they are
    written = {name: _written(name, value, writer) for name, value in given.items()}
    columns = (
        f"ARRAY[{', '.join(map(writer.literal, features))}]::pg_catalog.text[]"
        if features
        else "NULL::pg_catalog.text[]"
    )
    written |= {"model": f"{writer.literal(train.model)}::pg_catalog.text", "features": columns}
    written |= {} if labels else {"label": f"{writer.literal(label)}::pg_catalog.text"}
    written |= {**source_arguments(relation, known, writer)}
    for name in written:
        known.check(name)
    return f"corgipile.train({', '.join(f'{writer.name(name)} => {text}' for name, text in written.items())})"


def source_arguments(relation: Relation, known: Known, writer: Writer) -> dict[str, str]:
    """Return the arguments that say which rows.

    Raises:
        NotSupportedError: The extension of the server has no such argument.
    """
    if relation.query is not None:
        found = {"query": f"{writer.literal(relation.query)}::pg_catalog.text"}
    else:
        found = {"source": f"{writer.literal(relation.name)}::pg_catalog.regclass"}
        if relation.where is not None:
            found["where"] = f"{writer.literal(relation.where)}::pg_catalog.text"
    for name in found:
        known.check(name)
    return found


def has_shares(train: Train) -> bool:
    """Say whether a size is a share of the rows, which must be counted before."""
    return any(_is_share(train.settings.get(name)) for name in ("block", "buffer", "memory"))


def _is_share(value: Any) -> bool:
    return isinstance(value, str) and value.rstrip().endswith("%")


def _hashed(train: Train, relation: Relation) -> dict[str, list[Any]]:
    """Return the columns that are hashed, as the arguments that name them."""
    text = [_found(name, relation) for name in train.settings.get("text") or ()]
    crossed = [[_found(name, relation) for name in term] for term in train.settings.get("interactions") or ()]
    return {name: columns for name, columns in (("text", text), ("interactions", crossed)) if columns}


def _found(name: str, relation: Relation) -> str:
    if name not in relation.columns:
        hint = did_you_mean(name, relation.columns)
        raise MissingColumn(f"there is no column {name!r}; the rows have {listed(relation.columns)}{hint}")
    return name


def _check_kinds(features: list[str], relation: Relation) -> None:
    for name in features:
        kind = relation.kinds[name]
        if kind.removesuffix("[]") not in NUMBERS:
            raise BadSchema(
                f"column {name!r} is {kind}, no number: WITH encode = 'onehot' (or 'ordinal', 'hash') makes numbers of "
                "it; or choose the columns to learn from: SELECT x, y, label FROM ..."
            )


def _arguments(train: Train, label: str, size: Callable[[], int]) -> dict[str, Any]:
    """Return the extension's arguments, values as Python has them, without those that say what is so anyway."""
    given: dict[str, Any] = {}
    for name, value in train.settings.items():
        if value is None or (name in SILENT and value == DEFAULTS[name]):
            continue
        if name in FILES:
            raise BadArgument(f"{name} is for files and DuckDB; PostgreSQL {FILES[name]}, got {name} = {value!r}")
        if name == "on_bad":
            if train.settings.get("missing", DEFAULTS["missing"]) != DEFAULTS["missing"]:
                raise BadArgument("PostgreSQL fills what is missing or skips such rows; give missing or on_bad")
            given["missing"] = "skip"
        elif name == "balance" and isinstance(value, str):
            if value not in (label, CONTENT):
                raise BadArgument(f"PostgreSQL balances blocks by the label, {label!r}, or content, not by {value!r}")
            given[name] = CONTENT if value == CONTENT else True
        elif name in ("block", "buffer", "memory"):
            _sized(given, name, value, size)
        else:
            given[NAMES.get(name, name)] = value
    return given | {name: value for name, value in (("name", train.name), ("warm_start", train.warm_start)) if value}


def _sized(given: dict[str, Any], name: str, value: Any, size: Callable[[], int]) -> None:
    """Add a size in bytes."""
    if not isinstance(value, str) and name != "memory":
        raise BadArgument(
            f"{name} is {value!r} rows; PostgreSQL takes bytes, such as 1MB, or a share of the table, such as 10%"
        )
    if NAMES[name] in given:
        raise BadArgument("buffer and memory are one thing in PostgreSQL; give one of them")
    given[NAMES[name]] = str(parse_bytes(value, name, whole=size() if _is_share(value) else 1))


def _written(name: str, value: Any, writer: Writer) -> str:
    """Write the value of an argument."""
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
    """Tells how a training goes on, which another connection sees.

    Args:
        progress: Who is told.
        connect: Opens another connection.
        pid: The number of the backend that trains.
        past: Epochs of the model that it goes on from.
    """

    def __init__(self, progress: Progress, connect: Callable[[], Any], pid: int, past: int) -> None:
        self._progress, self._connect, self._pid, self._past = progress, connect, pid, past
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._each, self._done = 0, 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def epoch(self, record: dict[str, Any], epochs: int) -> None:
        """Tell of an epoch that ended."""
        with self._lock:
            self._reach(record["rows"], epochs, (record["epoch"] - self._past + 1) * record["rows"])
            self._progress.epoch(record)

    def _reach(self, each: int, epochs: int, done: int) -> None:
        if not self._each:
            self._each = each
            self._progress.begin(each, epochs)
        if done > self._done:
            self._progress.rows(done - self._done)
            self._done = done

    def _look(self) -> None:
        try:
            connection = self._connect()
        except library().Error:
            return  # no connection is left for it; epochs are told of in any case
        sql = (
            "SELECT epoch, epochs, rows_done, rows FROM corgipile.progress "
            "WHERE pid OPERATOR(pg_catalog.=) %s AND rows OPERATOR(pg_catalog.>) 0"
        )
        with connection:
            while not self._over.wait(WAIT):
                try:
                    found = connection.execute(sql, [self._pid]).fetchone()
                except library().Error:
                    return
                if found is not None:
                    epoch, epochs, done, rows = found
                    with self._lock:
                        self._reach(rows, epochs - self._past, (epoch - self._past) * rows + done)


def following(
    progress: Progress | None, connect: Callable[[], Any], pid: int, past: int
) -> AbstractContextManager[Watch | None]:
    """Return a watch, where somebody is to be told."""
    return nullcontext() if progress is None else Watch(progress, connect, pid, past)
