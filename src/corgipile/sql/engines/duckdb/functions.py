"""SQL functions of models: ``predict``, for text ``predict_label(s)``, ``predict_proba`` and ``decision``."""

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
from corgipile.lazy import lazy
from corgipile.sql.engines.duckdb.faults import library
from corgipile.sql.engines.duckdb.models import Models, Stored
from corgipile.sql.engines.duckdb.pins import Pins
from corgipile.sql.engines.duckdb.session import Session
from corgipile.sql.exceptions import OperationalError
from corgipile.tables.databases import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from corgipile.linear.model import What
    from corgipile.sql.engines.duckdb import matrices
else:  # which loads the training code
    matrices = lazy("corgipile.sql.engines.duckdb.matrices")

__all__ = ["PREFIX", "Functions", "functions_of"]

PREFIX = "corgipile_"  # of the names in our own SQL, which user functions cannot shadow
KINDS = {
    "predict": "DOUBLE",
    "predict_label": "VARCHAR",
    "predict_labels": "VARCHAR[]",
    "predict_proba": "DOUBLE[]",
    "decision": "DOUBLE[]",
}
CLASS_FUNCTIONS = ("predict", "predict_label", "predict_labels")
ASK = f"{PREFIX}functions"
_all: "weakref.WeakValueDictionary[int, Functions]" = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


class Functions:
    """The functions of one database, shared by its connections.

    Queries find committed models by name. Models of the running transaction, and models that must not change during a
    query, are pinned under internal names.
    """

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.raised: CorgiPileError | None = None
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._pinned: dict[str, Stored] = {}
        self._known: dict[str, Stored] = {}
        self._made = list[str]()
        self._local = threading.local()

    def begin(self, session: Session) -> None:
        """Prepare for a statement: drop cached and pinned models."""
        self._sessions.add(session)
        self._known, self.raised = {}, None
        for name in session.pinned:
            self._pinned.pop(name, None)
        session.pinned.clear()

    def cause(self, text: str) -> CorgiPileError | None:
        """Return the error that a function raised, if DuckDB's message quotes it."""
        return self.raised if self.raised is not None and str(self.raised) in text else None

    def pin(self, stored: Stored, session: Session) -> str:
        """Pin a model for one statement of a session; return its internal name."""
        key = Pins.key(next(_numbers), stored.name)
        self._pinned[key] = stored
        session.pinned[key] = stored.name
        return key

    def register(self, connection: Any) -> None:
        """Register the functions in a database."""
        duckdb = library()
        answer: Callable[..., Any] = lambda rows: pa.array([self.number] * len(rows))  # noqa: E731
        made: list[tuple[str, Callable[..., Any], list[str] | None, str]] = [(ASK, answer, ["BIGINT"], "BIGINT")]
        for (name, kind), prefix in itertools.product(KINDS.items(), (PREFIX, "")):
            made.append((prefix + name, partial(self._call, name), None, kind))
        for name, function, inputs, kind in made:
            try:
                connection.create_function(name, function, inputs, kind, type="arrow", null_handling="special")
                self._made.append(name)
            except (duckdb.CatalogException, duckdb.NotImplementedException):  # the user has a function of this name
                if name.startswith(PREFIX):
                    raise OperationalError(f"the database must not have a function {name}; drop it") from None

    def forget(self) -> None:
        """Remove the functions from the database if a connection to it is open."""
        for session in list(self._sessions):
            with contextlib.suppress(Exception):  # the connection is closed, or Python exits
                session.begin()
                for name in self._made:
                    session.connection.remove_function(name)
                return

    def _call(self, function: str, names: pa.ChunkedArray, *columns: pa.ChunkedArray) -> pa.Array:
        try:
            return self._dispatch(function, names, columns)
        except CorgiPileError as error:
            self.raised = error
            raise

    def _dispatch(self, function: str, names: pa.ChunkedArray, columns: tuple[pa.ChunkedArray, ...]) -> pa.Array:
        if not len(names):
            return pa.nulls(0, _arrow(function))
        if (same := _constant_text(names)) is not None:
            return self._evaluate(function, same, columns, len(names))
        distinct = names.unique().to_pylist()
        parts = [np.flatnonzero(np.array([value == name for value in names.to_pylist()])) for name in distinct]
        results = [
            self._evaluate(function, name, tuple(column.take(pa.array(part)) for column in columns), len(part))
            for name, part in zip(distinct, parts, strict=True)
        ]
        return pa.concat_arrays(results).take(pa.array(np.argsort(np.concatenate(parts))))

    def _evaluate(self, function: str, name: Any, columns: tuple[pa.ChunkedArray, ...], rows: int) -> pa.Array:
        if name is None:
            return pa.nulls(rows, _arrow(function))
        if not isinstance(name, str):
            raise BadArgument(f"the first argument of {function} must be a model's name, got {name!r}")
        if not columns:
            raise BadArgument(f"{function}({name!r}) needs features after the model's name")
        stored = self._stored(name)
        scores, valid = self._scorer(stored)(columns, rows)
        return _column(stored, function, scores, valid)

    def _scorer(self, stored: Stored) -> "matrices.Scorer":
        """Return this thread's scorer of a model."""
        scorers: dict[str, matrices.Scorer] = self._local.__dict__.setdefault("scorers", {})
        if stored.version not in scorers:
            if len(scorers) > 8:
                scorers.clear()
            scorers[stored.version] = matrices.Scorer(stored)
        return scorers[stored.version]

    def _stored(self, name: str) -> Stored:
        stored = self._pinned.get(name) or self._known.get(name)
        if stored is None:
            stored = self._known[name] = self._look_up(name)
        return stored

    def _look_up(self, name: str) -> Stored:
        for session in list(self._sessions):
            connection = session.connection.cursor()
            try:
                other = Session(connection)
                if session.database:
                    other.rows(f"USE {quoted(session.database)}")
                return Models(other).find(name)
            finally:
                connection.close()
        raise BadArgument(f"model {name!r} is not available: its connection is closed")


def _constant_text(names: pa.ChunkedArray) -> str | None:
    """Return the text that all rows share, as for a literal; None if they differ or are not text."""
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
    """Remove the functions of unclosed databases; otherwise the library reports leaked objects at exit."""
    for functions in list(_all.values()):
        functions.forget()


def functions_of(connection: Any) -> Functions:
    """Return the functions of a database, registered on first use."""
    duckdb = library()
    try:
        ((number,),) = connection.sql(f"SELECT system.main.{ASK}(0)").fetchall()
    except duckdb.CatalogException:
        functions = Functions()
        functions.register(connection)
    else:
        functions = _all[number]
    _all[functions.number] = functions
    return functions


def _arrow(function: str) -> pa.DataType:
    kinds = {"DOUBLE": pa.float64(), "VARCHAR": pa.string()}
    kind = KINDS[function]
    return pa.list_(kinds[kind[:-2]]) if kind.endswith("[]") else kinds[kind]


def _label_lists(matrix: npt.NDArray[Any], labels: list[Any], mask: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Convert a 0/1 matrix [rows, labels] to lists of label names."""
    offsets = np.concatenate([[0], np.cumsum(matrix.sum(axis=1))]).astype(np.int32)
    names = pa.array([str(one) for one in labels], pa.string()).take(pa.array(np.nonzero(matrix)[1]))
    lists = pa.ListArray.from_arrays(pa.array(offsets), names)
    return lists if mask is None else pa.compute.if_else(pa.array(mask), None, lists)


def _column(stored: Stored, function: str, scores: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Return the result column of a function; rows with a null feature are null."""
    mask = None if valid is None else ~valid
    labels = stored.model.params.get("labels")
    if function in CLASS_FUNCTIONS and (labels is None) == (function == "predict_labels"):
        how = "no multi-label model; use predict" if labels is None else "a multi-label model; use predict_labels"
        raise BadArgument(f"model {stored.name!r} is {how}")
    what = "predict" if function.startswith("predict_label") else function
    result = stored.model.finish(scores, cast("What", what))
    if labels is not None and function == "predict_labels":
        return _label_lists(result, labels, mask)
    if function == "predict_label":
        return pa.array([str(value) for value in result.tolist()], pa.string(), mask=mask)
    if function == "predict":
        if result.dtype.kind == "U":
            raise BadArgument(f"model {stored.name!r} has text labels; use predict_label")
        return pa.array(result.astype(np.float64, copy=False), mask=mask)
    flat = result.astype(np.float64, copy=False).reshape(len(result), -1)
    offsets = np.arange(0, flat.size + 1, flat.shape[1], dtype=np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets, mask=None), pa.array(flat.ravel()))
    return lists if mask is None else pa.compute.if_else(pa.array(mask), None, lists)
