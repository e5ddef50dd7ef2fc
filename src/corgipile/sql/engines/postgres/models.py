"""Models stored in the extension's tables, as far as the session's role may read them."""

import json
from dataclasses import dataclass, replace
from typing import Any

from corgipile.errors import BadArgument, MissingColumn, ServerError
from corgipile.features.encoders import encoder_of
from corgipile.features.encoding import feature_names
from corgipile.sql.engines.postgres.session import Session
from corgipile.sql.engines.results import EPOCHS, MODELS
from corgipile.sql.engines.shared import missing_model
from corgipile.sql.exceptions import NotSupportedError
from corgipile.suggestions import did_you_mean, listed

__all__ = ["Known", "Models", "Stored"]

NAMED = "name OPERATOR(pg_catalog.=) %s"  # qualified, since the search path may hide operators
BUILD = "build it on the server with corgipile pg install"
INSTALL = f"{BUILD}; then run CREATE EXTENSION corgipile in this database"


@dataclass(frozen=True)
class Known:
    """The extension as a session sees it: argument names of ``corgipile.train``, and versions."""

    arguments: frozenset[str]
    version: str
    newest: str

    def check(self, argument: str) -> None:
        """Raise NotSupportedError unless ``corgipile.train`` has an argument."""
        if argument in self.arguments:
            return
        update = "run ALTER EXTENSION corgipile UPDATE in this database"
        how = update if self.version != self.newest else f"{BUILD}; then {update}"
        raise NotSupportedError(f"extension corgipile {self.version} has no {argument!r}. A newer version may: {how}")


@dataclass(frozen=True)
class Stored:
    """A stored model as a session sees it; ``width`` is the number of inputs of a row."""

    name: str
    kind: str
    width: int
    classes: list[Any]
    params: dict[str, Any]
    source: str
    owner: str
    created: Any

    @property
    def class_names(self) -> list[str] | None:
        """The classes if they are text, else None."""
        label = self.params.get("encoding", {}).get("label", {})
        return [str(name) for name in label["values"]] if label.get("how") == "classes" else None

    @property
    def features(self) -> list[str]:
        """The feature columns."""
        return list(self.params["features"])

    @property
    def by(self) -> str | None:
        """The group column of a grouped model, else None."""
        return self.params.get("by")

    @property
    def labels(self) -> list[Any] | None:
        """The labels of a multi-label model, else None."""
        return self.params.get("labels")

    @property
    def columns(self) -> list[str]:
        """The columns that predictions need; the group column is last."""
        return self.features if self.by is None else [*self.features, self.by]

    @property
    def numbers(self) -> list[str]:
        """The name of each input of a row."""
        encoders = [encoder_of(state) for state in self.params.get("encoding", {}).get("features", ())]
        for names in (feature_names(encoders), self.features):
            if len(names) == self.width:
                return names
        one = self.features[0] if len(self.features) == 1 else "feature"
        return [f"{one}[{i}]" for i in range(self.width)]

    @property
    def label(self) -> str:
        """The label column."""
        return str(self.params.get("label") or ("label" if self.labels is None else "labels"))

    def match_columns(self, columns: list[str]) -> list[str] | None:
        """Return the model's columns if a query returns each exactly once, else None."""
        return self.columns if all(columns.count(name) == 1 for name in self.columns) else None

    def missing(self, columns: list[str], also: str | None = None) -> MissingColumn:
        """Return the error for a query that lacks the model's columns, or the column `also`."""
        absent = [name for name in [*self.columns, *([also] if also else [])] if name not in columns]
        repeated = [name for name in self.columns if columns.count(name) > 1]
        what = f"without {listed(absent)}" if absent else f"with {listed(repeated)} more than once"
        hint = did_you_mean(absent[0], columns) if absent else ""
        return MissingColumn(
            f"model {self.name!r} was trained on {listed(self.columns)}; the rows have {listed(columns)}, {what}{hint}"
        )


class Models:
    """The models of a database; changes belong to the session's transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def known(self) -> Known:
        """Return the installed extension; raise ServerError if the database lacks it."""
        rows = self._session.rows(
            "SELECT p.proargnames, e.extversion, a.default_version FROM pg_catalog.pg_extension e "
            "JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace "
            "JOIN pg_catalog.pg_proc p ON p.pronamespace OPERATOR(pg_catalog.=) n.oid "
            "AND p.proname OPERATOR(pg_catalog.=) 'train' "
            "LEFT JOIN pg_catalog.pg_available_extensions a ON a.name OPERATOR(pg_catalog.=) e.extname "
            "WHERE e.extname OPERATOR(pg_catalog.=) 'corgipile'"
        )
        if not rows:
            available = "SELECT 1 FROM pg_catalog.pg_available_extensions WHERE name OPERATOR(pg_catalog.=) 'corgipile'"
            how = "run CREATE EXTENSION corgipile here as a superuser" if self._session.rows(available) else INSTALL
            raise ServerError(f"extension corgipile is not installed; {how}")
        arguments = frozenset(name for names, _, _ in rows for name in names)
        return Known(arguments, rows[0][1], rows[0][2] or rows[0][1])

    def exists(self, name: str) -> bool:
        """Return whether the session sees a model of this name."""
        self.known()
        return bool(self._session.rows(f"SELECT 1 FROM corgipile.models WHERE {NAMED}", [name]))

    def find(self, name: str) -> Stored:
        """Load a model's description; raise BadArgument if the session sees no such model."""
        self.known()
        rows = self._session.rows(
            "SELECT name, kind, dims, pg_catalog.to_json(classes)::pg_catalog.text, params::pg_catalog.text, source, "
            f"owner::pg_catalog.text, created FROM corgipile.models WHERE {NAMED}",
            [name],
        )
        if not rows:
            raise self._missing(name)
        called, kind, width, classes, params, *more = rows[0]
        stored = Stored(called, kind, width, json.loads(classes), json.loads(params), *more)
        if stored.params.get("class_type") == "bool":
            stored = replace(stored, classes=[bool(value) for value in stored.classes])
        return stored

    def history(self, name: str) -> list[dict[str, Any]]:
        """Return the epochs of a model as rows of the training's result."""
        names = EPOCHS.names
        sql = f"SELECT {', '.join(names)} FROM corgipile.history WHERE model OPERATOR(pg_catalog.=) %s ORDER BY epoch"
        return [dict(zip(names, row, strict=True)) for row in self._session.rows(sql, [name])]

    def weights(self, name: str) -> tuple[list[list[float]], list[float]]:
        """Return the coefficients and intercepts of a model, for each class."""
        sql = f"SELECT coefficients, intercepts FROM corgipile.models WHERE {NAMED}"
        coefficients, intercepts = self._session.rows(sql, [name])[0]
        return coefficients, intercepts

    def summaries(self, like: str | None = None) -> list[dict[str, Any]]:
        """Return a summary of each model whose name matches a pattern."""
        self.known()
        epochs = "FROM corgipile.history h WHERE h.model OPERATOR(pg_catalog.=) m.name"
        rows = self._session.rows(
            f"SELECT m.name, m.kind, m.dims, (SELECT pg_catalog.count(*) {epochs}), "
            f"(SELECT h.loss {epochs} ORDER BY h.epoch DESC LIMIT 1), m.created FROM corgipile.models m "
            'WHERE %s::pg_catalog.text IS NULL OR m.name OPERATOR(pg_catalog.~~) %s ORDER BY m.name COLLATE "C"',
            [like, like],
        )
        return [dict(zip(MODELS.names, row, strict=True)) for row in rows]

    def drop(self, name: str) -> None:
        """Remove a model; raise BadArgument if it does not exist, or another role owns it."""
        exists = self.exists(name)
        if not self._session.update_count(f"DELETE FROM corgipile.models WHERE {NAMED}", [name]):
            raise self._others(name) if exists else self._missing(name)

    def rename(self, name: str, to: str) -> None:
        """Rename a model; raise BadArgument if it does not exist, another role owns it, or the new name is invalid."""
        if not to or "\0" in to:
            raise BadArgument(f"a model's name must not be empty or contain a zero byte, got {to!r}")
        exists = self.exists(name)
        if not self._session.update_count(f"UPDATE corgipile.models SET name = %s WHERE {NAMED}", [to, name]):
            raise self._others(name) if exists else self._missing(name)

    def _others(self, name: str) -> BadArgument:
        return BadArgument(f"only its owner {self.find(name).owner} can drop or rename model {name!r}")

    def _missing(self, name: str) -> BadArgument:
        return missing_model(name, [row["name"] for row in self.summaries()], " that this role may read")
