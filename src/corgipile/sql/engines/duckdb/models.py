"""Models stored in a table of the database, within its transactions."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from corgipile.errors import BadArgument, BadModelFile
from corgipile.lazy import lazy
from corgipile.sql.engines.duckdb.session import Session
from corgipile.sql.engines.shared import missing_model, name_taken, transaction
from corgipile.sql.exceptions import DatabaseError, OperationalError
from corgipile.suggestions import listed
from corgipile.tables.databases import quoted

if TYPE_CHECKING:
    from corgipile.linear import model as trained
    from corgipile.linear.model import Model
else:  # which loads the training code
    trained = lazy("corgipile.linear.model")

__all__ = ["Models", "Stored"]

TABLE = "corgipile_models"
COLUMNS = {
    "name": "VARCHAR",
    "model": "VARCHAR",
    "features": "BIGINT",
    "epochs": "BIGINT",
    "loss": "DOUBLE",
    "created": "TIMESTAMP WITH TIME ZONE",
    "version": "UUID",
    "content": "BLOB",
}
MAX_NAME_BYTES = 1000  # as in PostgreSQL
MAX_WRITES, RETRY_SECONDS = 10, 0.02  # attempts to write despite conflicts, and the pause between them


class Stored(NamedTuple):
    """A stored model and its version."""

    name: str
    version: str
    model: "Model"


class Models:
    """The models of a session's current database; changes belong to its transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kept: dict[str, Stored] = {}
        self._changed: tuple[int, set[str]] = 0, set()

    def uncommitted(self) -> set[str]:
        """Return the model names that the running transaction has stored, removed or renamed."""
        transaction, names = self._changed
        if names and transaction != self._session.transaction():
            self._changed = 0, set()
        return self._changed[1]

    def _mark_changed(self, *names: str) -> None:
        """Record that an open transaction has changed models of these names."""
        if self._session.in_transaction():
            known = self.uncommitted()
            self._changed = self._session.transaction(), known | set(names)

    def names(self) -> list[str]:
        """Return the names of all models, sorted."""
        place = self._table()
        return [] if place is None else [row[0] for row in self._rows(f"SELECT name FROM {place} ORDER BY name")]

    def summaries(self, like: str | None = None) -> list[dict[str, Any]]:
        """Return a summary of each model whose name matches a pattern."""
        place = self._table()
        if place is None:
            return []
        shown = [name for name in COLUMNS if name not in ("version", "content")]
        where, values = ("", {}) if like is None else ("WHERE name LIKE $like", {"like": like})
        rows = self._rows(f"SELECT {', '.join(shown)} FROM {place} {where} ORDER BY name", values)
        return [dict(zip(shown, row, strict=True)) for row in rows]

    def exists(self, name: str) -> bool:
        """Return whether a model exists."""
        place = self._table()
        return place is not None and bool(self._rows(f"SELECT 1 FROM {place} WHERE name = $name", {"name": name}))

    def find(self, name: str) -> Stored:
        """Load a model; raise BadArgument if it does not exist, BadModelFile if it is damaged."""
        place = self._table()
        sql = f"SELECT version::VARCHAR FROM {place} WHERE name = $name"
        versions = [] if place is None else self._rows(sql, {"name": name})
        if not versions:
            raise self._missing(name)
        version = str(versions[0][0])
        if name in self._kept and self._kept[name].version == version:
            return self._kept[name]
        rows = self._rows(f"SELECT content FROM {place} WHERE name = $name", {"name": name})
        content = rows[0][0] if rows else None
        if content is None:
            raise BadModelFile(f"model {name!r} in table {TABLE} is empty; drop it and train it again")
        self._kept[name] = Stored(name, version, trained.unpack(bytes(content), f"model {name!r} in table {TABLE}"))
        return self._kept[name]

    def check_writable(self, name: str) -> None:
        """Check before training that a model can be stored: its name, and the database."""
        check_name(name)
        self._table()
        place = "system.main.duckdb_databases() WHERE database_name = system.main.current_database()"
        if self._rows(f"SELECT readonly FROM {place}") == [(True,)]:
            raise OperationalError(f"cannot store model {name!r}: the database is read-only")

    def keep(self, name: str, model: "Model", *, replace: bool) -> None:
        """Store a model; raise IntegrityError if it exists and `replace` is False."""
        last = model.history[-1] if model.history else {}
        values = {
            "name": name,
            "model": model.kind,
            "features": model.width,
            "epochs": len(model.history),
            "loss": last.get("loss"),
            "content": model.pack(),
        }
        autocommitted = not self._session.in_transaction()
        for left in reversed(range(MAX_WRITES)):
            try:
                with transaction(self._session):
                    self._write(values, replace=replace)
                break
            except DatabaseError as error:  # another connection wrote at the same time
                if not (autocommitted and left and "conflict" in str(error).lower()):
                    raise
            time.sleep(RETRY_SECONDS)
        self._mark_changed(name)

    def _write(self, values: Mapping[str, Any], *, replace: bool) -> None:
        """Insert the row of a model."""
        place, name = self._ensure_table(), values["name"]
        if replace:
            self._rows(f"DELETE FROM {place} WHERE name = $name", {"name": name})
        elif self.exists(name):
            raise name_taken(name)
        named, placeholders = ", ".join(values), ", ".join(f"${column}" for column in values)
        values_sql = f"VALUES ({placeholders}, system.main.now(), system.main.uuid())"
        self._rows(f"INSERT INTO {place} ({named}, created, version) {values_sql}", values)

    def drop(self, name: str) -> None:
        """Remove a model; raise BadArgument if it does not exist."""
        place = self._table()
        sql = f"DELETE FROM {place} WHERE name = $name RETURNING name"
        if place is None or not self._rows(sql, {"name": name}):
            raise self._missing(name)
        self._mark_changed(name)

    def rename(self, name: str, to: str) -> None:
        """Rename a model; raise BadArgument if it does not exist."""
        check_name(to)
        place = self._table()
        if place is None or not self.exists(name):
            raise self._missing(name)
        self._rows(f"UPDATE {place} SET name = $to WHERE name = $name", {"name": name, "to": to})
        self._mark_changed(name, to)

    def _missing(self, name: str) -> BadArgument:
        return missing_model(name, self.names())

    def _table(self) -> str | None:
        """Return the qualified name of the models table, or None if it does not exist; another's table raises."""
        sql = (
            "SELECT system.main.current_database(), column_name, data_type FROM system.main.duckdb_columns() "
            f"WHERE database_name = system.main.current_database() AND schema_name = 'main' AND table_name = '{TABLE}'"
            " AND table_oid IN (SELECT table_oid FROM system.main.duckdb_tables())"
        )
        rows = self._rows(sql)
        if not rows:
            return None
        if (columns := {name: kind for _, name, kind in rows}) != COLUMNS:
            raise OperationalError(
                f"table {TABLE} was not created by corgipile: its columns are {listed(list(columns))}; "
                "rename it or use another database"
            )
        return f"{quoted(rows[0][0])}.main.{TABLE}"

    def _ensure_table(self) -> str:
        """Return the qualified name of the models table, which is created if missing."""
        place = self._table()
        if place is None:
            columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
            columns = columns.replace("name VARCHAR", "name VARCHAR PRIMARY KEY", 1)
            place = f"{quoted(self._rows('SELECT system.main.current_database()')[0][0])}.main.{TABLE}"
            self._rows(f"CREATE TABLE IF NOT EXISTS {place} ({columns})")
        return place

    def _rows(self, sql: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        return self._session.rows(sql, values)


def check_name(name: str) -> None:
    """Raise BadArgument unless the name of a model is valid."""
    if not name or len(name.encode(errors="surrogatepass")) > MAX_NAME_BYTES or "\0" in name:
        raise BadArgument(f"a model's name must have 1 to {MAX_NAME_BYTES} bytes without zero bytes, got {name!r}")
