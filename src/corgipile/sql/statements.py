"""What a script of SQL says, one value a statement; how it is written is `grammar`'s, what it does is an engine's."""

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
    "Predict",
    "Query",
    "RenameModel",
    "ShowModels",
    "Source",
    "Statement",
    "Train",
]


@dataclass(frozen=True)
class ModelCall:
    """``ML.PREDICT(MODEL m, TABLE t)`` and its like, which stand in a query where a table does.

    Attributes:
        function: ``"predict"``, whose rows have ``predicted_<label>`` first, and ``predicted_<label>_probs`` (a list,
            in the order of the model's classes) where the model has probabilities; ``"evaluate"``, one row;
            ``"weights"``, rows of ``processed_input`` and ``weight``, and ``class`` where there are more than two;
            ``"training_info"``, the rows of training's answer.
        model: The model's name.
        source: The rows; None where the function takes none, or where those of training are meant.
        options: What a STRUCT in third place says, such as ``threshold``.
    """

    function: str
    model: str
    source: "Source | None" = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fragment:
    """SQL for the engine, as it was written, but for places of values and of models."""

    pieces: tuple[str | Parameter | ModelCall, ...]

    def written(self, parameter: Callable[[Parameter], str], call: Callable[[ModelCall], str]) -> str:
        """Return the SQL, with what two functions make of places of values and of calls.

        Example:
            >>> Fragment(("SELECT ", Parameter(1), " + 1")).written(lambda one: f"${one.key}", str)
            'SELECT $1 + 1'
        """
        makers: dict[type, Callable[[Any], str]] = {str: str, Parameter: parameter, ModelCall: call}
        return "".join(makers[type(piece)](piece) for piece in self.pieces)


@dataclass(frozen=True, kw_only=True)
class Source:
    """The rows that a SELECT gives.

    Attributes:
        sql: The whole SELECT.
        items: What stands between SELECT and FROM.
        rest: What follows, FROM included.
        columns: The columns that are chosen, by name; None: all, or some are more than names.
        table: The name of the table that FROM names, its schema first; None: it names a file, or more than one table.
        alias: The other name that FROM gives it.
        file: The path, glob or URL that FROM names.
        plain: It chooses columns of one table or file, all rows, so that nothing has to be computed to read it.
        where: The condition behind WHERE, where the source would be plain without it.
        foldable: An expression may be added to `items`: no WITH, grouping, DISTINCT or set operation.
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
    """What all statements have: where in the script they begin, and what is to be said of them besides.

    Attributes:
        offset: Characters of the script before it.
        notes: What the reader is told, such as options of others that mean nothing here.
    """

    offset: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Query(Statement):
    """A statement for the engine itself."""

    sql: Fragment


@dataclass(frozen=True, kw_only=True)
class Train(Statement):
    """``SELECT … TRAIN BY`` and ``CREATE MODEL … AS SELECT``.

    Attributes:
        source: The rows.
        model: The loss, as `corgipile.train` names it.
        label: The column of labels; None: see `label_of`.
        usual_label: What the label is called where nobody says, in lower case.
        features: The columns of features; None: all but the label.
        settings: Settings of `corgipile.train` by their names there, and ``block``, ``buffer`` and ``balance`` of the
            order; values as Python has them. A `Parameter` is a value to come, of ``features``, ``label`` and
            ``warm_start`` too: `options.settled` puts all in their places.
        name: What the model is stored as; None: it is not.
        replace: Whether a model of that name gives way.
        if_not_exists: Whether one of that name makes the statement do nothing.
        warm_start: The name of the model to go on from.
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

    def label_of(self, columns: Sequence[str]) -> str:
        """Return the column of labels among those of the rows: the one that is named, the usual one, or the last."""
        usual = [name for name in columns if name.lower() == self.usual_label]
        return (usual or columns)[-1] if self.label is None else self.label

    def label_notes(self, columns: Sequence[str]) -> list[str]:
        """Return which column became the label, if the statement names none."""
        if self.label is not None or self.settings.get("labels"):
            return []
        found = self.label_of(columns)
        return [f"the label is column {found!r}{', the last one' * (found == columns[-1])}; LABEL names another"]


@dataclass(frozen=True, kw_only=True)
class Predict(Statement):
    """``SELECT … PREDICT BY``.

    Attributes:
        source: The rows, to whose columns the prediction is added.
        model: The model's name.
        before: What the rows are for, such as ``INSERT INTO t``; empty where they are the answer.
        after: What follows the rows, such as ``) TO 'predicted.parquet'`` after ``COPY (``.
        column: The name of the column that is added.
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
class ShowModels(Statement):
    """``SHOW MODELS [LIKE]``."""

    like: str | None = None


@dataclass(frozen=True, kw_only=True)
class DescribeModel(Statement):
    """``DESCRIBE MODEL``."""

    name: str
