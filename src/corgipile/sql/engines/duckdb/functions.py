"""Functions of SQL that ask models: ``predict``, of text ``predict_label(s)``, ``predict_proba`` and ``decision``."""

import atexit
import contextlib
import itertools
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, CorgiPileError
from corgipile.sql.engines.duckdb.faults import library
from corgipile.sql.engines.duckdb.models import Models, Stored
from corgipile.sql.engines.duckdb.pins import Pins
from corgipile.sql.engines.duckdb.session import Session
from corgipile.tables.databases import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from corgipile.linear.model import What
    from corgipile.sql.engines.duckdb.matrices import Scorer

__all__ = ["PREFIX", "Functions", "functions_of"]

PREFIX = "corgipile_"  # of the names by which our own SQL calls them, whatever else is called so
KINDS = {
    "predict": "DOUBLE",
    "predict_label": "VARCHAR",
    "predict_labels": "VARCHAR[]",
    "predict_proba": "DOUBLE[]",
    "decision": "DOUBLE[]",
}
ASK = f"{PREFIX}functions"
_all: "weakref.WeakValueDictionary[int, Functions]" = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


class Functions:
    """What the functions of one database know: all its connections have the same.

    A query asks for models by name, as they are committed; those of its own transaction, and others that must not
    change while it runs, are pinned under names that nobody else knows.
    """

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.raised: CorgiPileError | None = None
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._pinned: dict[str, Stored] = {}
        self._known: dict[str, Stored] = {}
        self._made = [ASK]
        self._local = threading.local()

    def begin(self, session: Session) -> None:
        """Hear that a statement begins: models are looked up anew."""
        self._sessions.add(session)
        self._known, self.raised = {}, None
        for name in session.pinned:
            self._pinned.pop(name, None)
        session.pinned.clear()

    def cause(self, text: str) -> CorgiPileError | None:
        """Return the error that a function raised, if this text quotes it."""
        return self.raised if self.raised is not None and str(self.raised) in text else None

    def pin(self, stored: Stored, session: Session) -> str:
        """Keep a model for one statement of a session; return the name by which functions find it."""
        key = Pins.key(next(_numbers), stored.name)
        self._pinned[key] = stored
        session.pinned[key] = stored.name
        return key

    def register(self, connection: Any) -> None:
        """Make the functions known to a database."""
        duckdb = library()
        answer: Callable[..., Any] = lambda rows: pa.array([self.number] * len(rows))  # noqa: E731
        create = partial(connection.create_function, type="arrow", null_handling="special")
        create(ASK, answer, ["BIGINT"], "BIGINT")
        for (name, kind), prefix in itertools.product(KINDS.items(), (PREFIX, "")):
            try:
                create(prefix + name, partial(self._answer, name), None, kind)
                self._made.append(prefix + name)
            except (duckdb.CatalogException, duckdb.NotImplementedException):  # a function of the user's has this name
                if prefix:
                    raise

    def forget(self) -> None:
        """Take the functions from the database, if a connection to it is open."""
        for session in list(self._sessions):
            with contextlib.suppress(Exception):  # it is closed, or goes as Python ends
                session.begin()
                for name in self._made:
                    session.connection.remove_function(name)
                return

    def _answer(self, function: str, names: pa.ChunkedArray, *columns: pa.ChunkedArray) -> pa.Array:
        try:
            return self._answered(function, names, columns)
        except CorgiPileError as error:
            self.raised = error
            raise

    def _answered(self, function: str, names: pa.ChunkedArray, columns: tuple[pa.ChunkedArray, ...]) -> pa.Array:
        if not len(names):
            return pa.nulls(0, _arrow(function))
        if (same := _same(names)) is not None:
            return self._of(function, same, columns, len(names))
        given = names.unique().to_pylist()
        parts = [np.flatnonzero(np.array([one == name for one in names.to_pylist()])) for name in given]
        found = [
            self._of(function, name, tuple(column.take(pa.array(part)) for column in columns), len(part))
            for name, part in zip(given, parts, strict=True)
        ]
        return pa.concat_arrays(found).take(pa.array(np.argsort(np.concatenate(parts))))

    def _of(self, function: str, name: Any, columns: tuple[pa.ChunkedArray, ...], rows: int) -> pa.Array:
        if name is None:
            return pa.nulls(rows, _arrow(function))
        if not isinstance(name, str):
            raise BadArgument(f"the first argument of {function} is the name of a model, got {name!r}")
        if not columns:
            raise BadArgument(f"{function}({name!r}) has no features; they follow the name of the model")
        stored = self._stored(name)
        scores, valid = self._scorer(stored)(columns, rows)
        return _column(stored, function, scores, valid)

    def _scorer(self, stored: Stored) -> "Scorer":
        """Return this thread's own scorer of a model."""
        from corgipile.sql.engines.duckdb.matrices import Scorer  # noqa: PLC0415 - loads all that trains

        kept: dict[str, Scorer] = self._local.__dict__.setdefault("kept", {})
        if stored.version not in kept:
            if len(kept) > 8:
                kept.clear()
            kept[stored.version] = Scorer(stored)
        return kept[stored.version]

    def _stored(self, name: str) -> Stored:
        found = self._pinned.get(name) or self._known.get(name)
        if found is None:
            found = self._known[name] = self._looked_up(name)
        return found

    def _looked_up(self, name: str) -> Stored:
        for session in list(self._sessions):
            connection = session.connection.cursor()
            try:
                other = Session(connection)
                if session.database:
                    other.rows(f"USE {quoted(session.database)}")
                return Models(other).find(name)
            finally:
                connection.close()
        raise BadArgument(f"there is no model {name!r}: the connection that knew it is closed")


def _same(names: pa.ChunkedArray) -> str | None:
    """Return the text that all rows have, as a literal of SQL; None where they differ, or it is no text."""
    if names.num_chunks != 1 or not pa.types.is_string(names.type) or names.null_count:
        return None
    part = names.chunk(0)
    first = part[0].as_py().encode()
    _, offsets, data = part.buffers()
    begin, end = np.frombuffer(offsets, np.int32)[[part.offset, part.offset + len(part)]].tolist()
    if end - begin != len(first) * len(part) or data is None:
        return None
    even = (np.diff(np.frombuffer(offsets, np.int32)[part.offset : part.offset + len(part) + 1]) == len(first)).all()
    return first.decode() if even and data[begin:end].to_pybytes() == first * len(part) else None


@atexit.register
def _forget() -> None:
    """Remove the functions of databases that nobody closed: the library says aloud what it has not let go of."""
    for functions in list(_all.values()):
        functions.forget()


def functions_of(connection: Any) -> Functions:
    """Return the functions of a database, which are made if it has none yet."""
    duckdb = library()
    try:
        ((number,),) = connection.sql(f"SELECT {ASK}(0)").fetchall()
    except duckdb.CatalogException:
        found = Functions()
        found.register(connection)
    else:
        found = _all[number]
    _all[found.number] = found
    return found


def _arrow(function: str) -> pa.DataType:
    kinds = {"DOUBLE": pa.float64(), "VARCHAR": pa.string()}
    kind = KINDS[function]
    return pa.list_(kinds[kind[:-2]]) if kind.endswith("[]") else kinds[kind]


def _named(found: npt.NDArray[Any], labels: list[Any], mask: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Return the labels of rows, [rows, labels] of 0 and 1, by their names."""
    offsets = np.concatenate([[0], np.cumsum(found.sum(axis=1))]).astype(np.int32)
    names = pa.array([str(one) for one in labels], pa.string()).take(pa.array(np.nonzero(found)[1]))
    made = pa.ListArray.from_arrays(pa.array(offsets), names)
    return made if mask is None else pa.compute.if_else(pa.array(mask), None, made)


def _column(stored: Stored, function: str, scores: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Return the answer of a function, null where a row has a null."""
    mask = None if valid is None else ~valid
    labels = stored.model.params.get("labels")
    if (
        (labels is None) == (function == "predict_labels")
        and function.startswith("predict")
        and function != "predict_proba"
    ):
        how = (
            "one label a row, which predict gives"
            if labels is None
            else "several labels a row, which predict_labels gives"
        )
        raise BadArgument(f"model {stored.name!r} has {how}")
    what = "predict" if function.startswith("predict_label") else function
    found = stored.model.finish(scores, cast("What", what))
    if labels is not None and function == "predict_labels":
        return _named(found, labels, mask)
    if function == "predict_label":
        return pa.array([str(value) for value in found.tolist()], pa.string(), mask=mask)
    if function == "predict":
        if found.dtype.kind == "U":
            raise BadArgument(f"model {stored.name!r} has labels of text, which predict_label gives")
        return pa.array(found.astype(np.float64, copy=False), mask=mask)
    flat = found.astype(np.float64, copy=False).reshape(len(found), -1)
    offsets = np.arange(0, flat.size + 1, flat.shape[1], dtype=np.int32)
    made = pa.ListArray.from_arrays(pa.array(offsets, mask=None), pa.array(flat.ravel()))
    return made if mask is None else pa.compute.if_else(pa.array(mask), None, made)
