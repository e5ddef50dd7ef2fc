"""Syntax tree of SQL scripts: `grammar` parses it, engines run it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from corgipile.sql.parameters import Parameter

__all__ = [
    "DescribeModel",
    "DropModel",
    "Explain",
    "Fragment",
    "ModelCall",
    "Parameter",
    "Path",
    "Piece",
    "Predict",
    "Query",
    "RenameModel",
    "SetModel",
    "ShowModels",
    "Source",
    "Statement",
    "Train",
]


@dataclass(frozen=True)
class ModelCall:
    """A call such as ``ML.PREDICT(MODEL m, TABLE t)``, which a query uses like a table.

    The source is None if the function takes no rows or means those of the training; options are the fields of the
    STRUCT in third place.
    """

    function: str
    model: str
    source: "Source | None" = None
    options: Mapping[str, Any] = field(default_factory=dict)


class Path(tuple[str, ...]):
    """The parts of a table's path in backticks: an optional project, a dataset and a table."""

    __slots__ = ()

    def written(self) -> str:
        """Return dataset and table, quoted; the project is dropped."""
        return ".".join('"' + part.replace('"', '""') + '"' for part in self[-2:])


Piece = str | Parameter | ModelCall | Path


@dataclass(frozen=True)
class Fragment:
    """SQL for the engine, with placeholders for parameters, model calls and paths."""

    pieces: tuple[Piece, ...]

    def written(
        self,
        parameter: Callable[[Parameter], str],
        call: Callable[[ModelCall], str],
        path: Callable[[Path], str] = Path.written,
    ) -> str:
        """Return the SQL; functions write the parameters, calls and paths.

        Example:
            >>> Fragment(("SELECT ", Parameter(1), " + 1")).written(lambda one: f"${one.key}", str)
            'SELECT $1 + 1'
        """
        makers: dict[type, Callable[[Any], str]] = {str: str, Parameter: parameter, ModelCall: call, Path: path}
        return "".join(makers[type(piece)](piece) for piece in self.pieces)


@dataclass(frozen=True, kw_only=True)
class Source:
    """The rows of a SELECT, in parts: ``items`` between SELECT and FROM, and the ``rest``.

    ``columns`` is None for all or expressions, ``table`` (schema first) for a file or several tables. A ``plain``
    source only selects columns of one table or file, or would without ``where``. To a ``foldable`` one an expression
    can be added: no WITH, grouping, DISTINCT or set operation.
    """

    sql: Fragment
    items: Fragment
    rest: Fragment
    columns: tuple[str, ...] | None = None
    table: tuple[str, ...] | None = None
    alias: str | None = None
    file: str | None = None
    plain: bool = False
    where: Fragment | None = None
    foldable: bool = False


@dataclass(frozen=True, kw_only=True)
class Statement:
    """Base class of statements; ``offset`` is where it begins in the script, in characters."""

    offset: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Query(Statement):
    """A statement of the engine's own SQL."""

    sql: Fragment


@dataclass(frozen=True, kw_only=True)
class Train(Statement):
    """``SELECT … TRAIN BY`` and ``CREATE MODEL … AS SELECT``.

    ``settings`` are those of `corgipile.train` by name, with the order's ``block``, ``buffer`` and ``balance``. A value
    may be a `Parameter`, also of ``features``, ``label`` and ``warm_start``, which `options.bind_settings` fills in.
    Without a ``name`` the model is not stored; ``usual_label``, in lower case, is the default of the label column.
    ``options`` are those of ``CREATE MODEL`` that are no settings, by their names in BigQuery; ``bigquery`` among them:
    whether the model type is BigQuery's, and so are the treatment of text and NULL and the shape of answers.
    """

    source: Source
    model: str
    label: str | None = None
    usual_label: str | None = None
    features: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None
    replace: bool = True
    if_not_exists: bool = False
    warm_start: str | None = None
    options: Mapping[str, Any] | None = None

    def label_of(self, columns: Sequence[str]) -> str:
        """Return the label column: the named one, the usual one, or the last of the rows."""
        usual = [name for name in columns if name.lower() == self.usual_label]
        return (usual or columns)[-1] if self.label is None else self.label

    def label_notes(self, columns: Sequence[str]) -> list[str]:
        """Return a note on which column became the label, if the statement names none."""
        if self.label is not None or self.settings.get("labels"):
            return []
        label = self.label_of(columns)
        return [f"the label is column {label!r}{', the last one' * (label == columns[-1])}; LABEL names another"]


@dataclass(frozen=True, kw_only=True)
class Predict(Statement):
    """``SELECT … PREDICT BY``.

    The text before and after the query may be ``INSERT INTO t`` or ``) TO 'predicted.parquet'``.
    """

    source: Source
    model: str
    before: Fragment = Fragment(())
    after: Fragment = Fragment(())
    column: str = "prediction"


@dataclass(frozen=True, kw_only=True)
class Explain(Statement):
    """``EXPLAIN [ANALYZE]`` of a training."""

    train: Train
    analyze: bool = False


@dataclass(frozen=True, kw_only=True)
class DropModel(Statement):
    """``DROP MODEL [IF EXISTS]``."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class RenameModel(Statement):
    """``ALTER MODEL … RENAME TO``."""

    name: str
    to: str
    if_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class SetModel(Statement):
    """``ALTER MODEL … SET OPTIONS``, or ``EXPORT MODEL`` to the file ``uri``."""

    name: str
    options: Mapping[str, Any]
    if_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class ShowModels(Statement):
    """``SHOW MODELS [LIKE]``."""

    like: str | None = None


@dataclass(frozen=True, kw_only=True)
class DescribeModel(Statement):
    """``DESCRIBE MODEL``."""

    name: str
