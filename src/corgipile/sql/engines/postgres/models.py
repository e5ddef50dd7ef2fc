"""Models in a server: rows of the extension's tables, of which a session sees those that it may read."""

import json
from dataclasses import dataclass, replace
from typing import Any

from corgipile.errors import BadArgument, MissingColumn, ServerError
from corgipile.features.encoders import encoder_of
from corgipile.features.encoding import feature_names
from corgipile.sql.engines.postgres.session import Session
from corgipile.sql.exceptions import NotSupportedError
from corgipile.suggestions import did_you_mean, listed

__all__ = ["Known", "Models", "Stored"]

NAMED = "name OPERATOR(pg_catalog.=) %s"  # qualified, since the search path may have other operators
BUILD = "on the server: corgipile pg install, which builds it"
HOW = f"{BUILD}; then, in this database: CREATE EXTENSION corgipile"


@dataclass(frozen=True)
class Known:
    """What a session knows of the extension.

    Attributes:
        arguments: The names of the arguments of ``corgipile.train``.
        version: Its version in this database.
        newest: The one that the server has.
    """

    arguments: frozenset[str]
    version: str
    newest: str

    def check(self, argument: str) -> None:
        """Check that ``corgipile.train`` has an argument.

        Raises:
            NotSupportedError: It has none of that name.
        """
        if argument in self.arguments:
            return
        update = "in this database: ALTER EXTENSION corgipile UPDATE"
        how = update if self.version != self.newest else f"{BUILD}; then, {update}"
        raise NotSupportedError(f"the extension corgipile {self.version} has no {argument!r}; a newer one may: {how}")


@dataclass(frozen=True)
class Stored:
    """What a session knows of a model.

    Attributes:
        name: Its name.
        kind: Its loss.
        width: Numbers of a row.
        classes: What it tells apart.
        params: What it was trained with.
        source: The table it was trained from.
        owner: Whose it is.
        created: When it was stored.
    """

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
        """Return the classes, where they are text."""
        label = self.params.get("encoding", {}).get("label", {})
        return [str(name) for name in label["values"]] if label.get("how") == "classes" else None

    @property
    def features(self) -> list[str]:
        """Return the columns it was trained on."""
        return list(self.params["features"])

    @property
    def by(self) -> str | None:
        """Return the column that tells groups apart, where there is a model for each."""
        return self.params.get("by")

    @property
    def labels(self) -> list[Any] | None:
        """Return the labels that a row may have several of, where there is a model for each."""
        return self.params.get("labels")

    @property
    def columns(self) -> list[str]:
        """Return the columns that prediction needs, that of groups behind the others."""
        return self.features if self.by is None else [*self.features, self.by]

    @property
    def numbers(self) -> list[str]:
        """Return the name of each number of a row."""
        encoders = [encoder_of(state) for state in self.params.get("encoding", {}).get("features", ())]
        for names in (feature_names(encoders), self.features):
            if len(names) == self.width:
                return names
        one = self.features[0] if len(self.features) == 1 else "feature"
        return [f"{one}[{i}]" for i in range(self.width)]

    @property
    def label(self) -> str:
        """Return the column of labels it was trained on."""
        return str(self.params.get("label") or ("label" if self.labels is None else "labels"))

    def names_in(self, there: list[str]) -> list[str] | None:
        """Return its columns if a query gives each of them, once."""
        return self.columns if all(there.count(name) == 1 for name in self.columns) else None

    def missing(self, there: list[str], also: str | None = None) -> MissingColumn:
        """Make the error of a query that does not give them, or another column besides."""
        lacking = [name for name in [*self.columns, *([also] if also else [])] if name not in there]
        twice = [name for name in self.columns if there.count(name) > 1]
        what = f"without {listed(lacking)}" if lacking else f"with {listed(twice)} more than once"
        hint = did_you_mean(lacking[0], there) if lacking else ""
        return MissingColumn(
            f"model {self.name!r} was trained on {listed(self.columns)}; the rows have {listed(there)}, {what}{hint}"
        )


class Models:
    """The models of a database.

    Args:
        session: The session, in whose transaction everything happens.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def known(self) -> Known:
        """Return what is known of the extension.

        Raises:
            ServerError: The database has none.
        """
        found = self._session.rows(
            "SELECT p.proargnames, e.extversion, a.default_version FROM pg_catalog.pg_extension e "
            "JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace "
            "JOIN pg_catalog.pg_proc p ON p.pronamespace OPERATOR(pg_catalog.=) n.oid "
            "AND p.proname OPERATOR(pg_catalog.=) 'train' "
            "LEFT JOIN pg_catalog.pg_available_extensions a ON a.name OPERATOR(pg_catalog.=) e.extname "
            "WHERE e.extname OPERATOR(pg_catalog.=) 'corgipile'"
        )
        if not found:
            there = "SELECT 1 FROM pg_catalog.pg_available_extensions WHERE name OPERATOR(pg_catalog.=) 'corgipile'"
            how = "in this database, as a superuser: CREATE EXTENSION corgipile" if self._session.rows(there) else HOW
            raise ServerError(f"the extension corgipile is not installed; {how}")
        arguments = frozenset(name for names, _, _ in found for name in names)
        return Known(arguments, found[0][1], found[0][2] or found[0][1])

    def there(self, name: str) -> bool:
        """Say whether there is a model of this name that the session sees."""
        self.known()
        return bool(self._session.rows(f"SELECT 1 FROM corgipile.models WHERE {NAMED}", [name]))

    def find(self, name: str) -> Stored:
        """Return a model.

        Raises:
            BadArgument: There is none that the session sees.
        """
        self.known()
        found = self._session.rows(
            "SELECT name, kind, dims, pg_catalog.to_json(classes)::pg_catalog.text, params::pg_catalog.text, source, "
            f"owner::pg_catalog.text, created FROM corgipile.models WHERE {NAMED}",
            [name],
        )
        if not found:
            raise self._missing(name)
        called, kind, width, classes, params, *more = found[0]
        stored = Stored(called, kind, width, json.loads(classes), json.loads(params), *more)
        if stored.params.get("class_type") == "bool":
            stored = replace(stored, classes=[bool(value) for value in stored.classes])
        return stored

    def history(self, name: str) -> list[dict[str, Any]]:
        """Return the epochs of a model, rows of training's answer."""
        names = ("epoch", "loss", "accuracy", "r2", "holdout_loss", "holdout_accuracy", "holdout_r2", "rows", "seconds")
        sql = f"SELECT {', '.join(names)} FROM corgipile.history WHERE model OPERATOR(pg_catalog.=) %s ORDER BY epoch"
        return [dict(zip(names, row, strict=True)) for row in self._session.rows(sql, [name])]

    def weights(self, name: str) -> tuple[list[list[float]], list[float]]:
        """Return the coefficients and constants of a model, a list a class or one."""
        sql = f"SELECT coefficients, intercepts FROM corgipile.models WHERE {NAMED}"
        coefficients, intercepts = self._session.rows(sql, [name])[0]
        return coefficients, intercepts

    def listed(self, like: str | None = None) -> list[dict[str, Any]]:
        """Return what is listed of models, of those whose name matches a pattern."""
        self.known()
        names = ("name", "model", "features", "epochs", "loss", "created")
        epochs = "FROM corgipile.history h WHERE h.model OPERATOR(pg_catalog.=) m.name"
        found = self._session.rows(
            f"SELECT m.name, m.kind, m.dims, (SELECT pg_catalog.count(*) {epochs}), "
            f"(SELECT h.loss {epochs} ORDER BY h.epoch DESC LIMIT 1), m.created FROM corgipile.models m "
            'WHERE %s::pg_catalog.text IS NULL OR m.name OPERATOR(pg_catalog.~~) %s ORDER BY m.name COLLATE "C"',
            [like, like],
        )
        return [dict(zip(names, row, strict=True)) for row in found]

    def drop(self, name: str) -> None:
        """Remove a model.

        Raises:
            BadArgument: There is none, or it is another role's.
        """
        there = self.there(name)
        if not self._session.changed(f"DELETE FROM corgipile.models WHERE {NAMED}", [name]):
            raise self._others(name) if there else self._missing(name)

    def rename(self, name: str, to: str) -> None:
        """Give a model another name.

        Raises:
            BadArgument: There is none, it is another role's, or the name will not do.
            IntegrityError: There is one of the other name.
        """
        if not to or "\0" in to:
            raise BadArgument(f"{to!r} is no name of a model")
        there = self.there(name)
        if not self._session.changed(f"UPDATE corgipile.models SET name = %s WHERE {NAMED}", [to, name]):
            raise self._others(name) if there else self._missing(name)

    def _others(self, name: str) -> BadArgument:
        return BadArgument(f"model {name!r} is {self.find(name).owner}'s, who alone may drop and rename it")

    def _missing(self, name: str) -> BadArgument:
        names = [row["name"] for row in self.listed()]
        known = f"; there {'is' if len(names) == 1 else 'are'} {listed(names)}" if names else "; there are no models"
        return BadArgument(f"there is no model {name!r} that this role may read{known}{did_you_mean(name, names)}")
