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
    """A call such as ``ML.PREDICT(MODEL m, TABLE t)``, which a query uses like a table.

    Attributes:
        function: ``"predict"``, whose rows begin with ``predicted_<label>`` and, if the model has probabilities,
            ``predicted_<label>_probs`` (a list in the order of the classes); ``"evaluate"``, one row;
            ``"weights"``, rows of ``processed_input`` and ``weight``, with ``class`` for more than two classes;
            ``"training_info"``, the rows of the training's result.
        model: The model's name.
        source: The rows; None if the function takes none or means the training rows.
        options: The fields of the STRUCT in third place, such as ``threshold``.
    """

    function: str
    model: str
    source: "Source | None" = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fragment:
    """SQL for the engine, with placeholders for parameters and model calls."""

    pieces: tuple[str | Parameter | ModelCall, ...]

    def written(self, parameter: Callable[[Parameter], str], call: Callable[[ModelCall], str]) -> str:
        """Return the SQL; two functions write the parameters and the calls.

        Example:
            >>> Fragment(("SELECT ", Parameter(1), " + 1")).written(lambda one: f"${one.key}", str)
            'SELECT $1 + 1'
        """
        makers: dict[type, Callable[[Any], str]] = {str: str, Parameter: parameter, ModelCall: call}
        return "".join(makers[type(piece)](piece) for piece in self.pieces)


@dataclass(frozen=True, kw_only=True)
class Source:
    """The rows of a SELECT.

    Attributes:
        sql: The whole SELECT.
        items: The text between SELECT and FROM.
        rest: The text from FROM on.
        columns: The selected columns; None: all, or some are expressions.
        table: The parts of the table's name in FROM, schema first; None: a file or several tables.
        alias: The table's alias in FROM.
        file: The path, glob or URL in FROM.
        plain: Whether it only selects columns of one table or file, so that nothing has to be computed.
        where: The WHERE condition, if the source would be plain without it.
        foldable: Whether an expression can be added to `items`: no WITH, grouping, DISTINCT or set operation.
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
    """Base class of statements.

    Attributes:
        offset: Where it begins in the script, in characters.
        notes: Notes for the user, such as ignored options.
    """

    offset: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Query(Statement):
    """A statement of the engine's own SQL."""

    sql: Fragment


@dataclass(frozen=True, kw_only=True)
class Train(Statement):
    """``SELECT … TRAIN BY`` and ``CREATE MODEL … AS SELECT``.

    Attributes:
        source: The rows.
        model: The loss, as `corgipile.train` names it.
        label: The label column; None: see `label_of`.
        usual_label: The default name of the label column, in lower case.
        features: The feature columns; None: all but the label.
        settings: Settings of `corgipile.train` by name, with the order's ``block``, ``buffer`` and ``balance``.
            A value may be a `Parameter`, also of ``features``, ``label`` and ``warm_start``:
            `options.bind_settings` fills them in.
        name: The name to store the model under; None: it is not stored.
        replace: Whether to replace a model of that name.
        if_not_exists: Whether to do nothing if a model of that name exists.
        warm_start: The name of the model to start from.
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

    Attributes:
        source: The rows; the prediction is added to their columns.
        model: The model's name.
        before: The text before the query, such as ``INSERT INTO t``; may be empty.
        after: The text after the query, such as ``) TO 'predicted.parquet'`` after ``COPY (``.
        column: The name of the added column.
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
