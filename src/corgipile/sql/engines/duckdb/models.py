"""Models in a database: a table of their own, rows of which come and go with the transaction."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from corgipile.errors import BadArgument, BadModelFile
from corgipile.sql.engines.duckdb.session import Session
from corgipile.sql.engines.shared import taken
from corgipile.sql.exceptions import DatabaseError, OperationalError
from corgipile.suggestions import did_you_mean, listed
from corgipile.tables.databases import quoted

if TYPE_CHECKING:
    from corgipile.linear.model import Model

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
LONGEST = 1000  # bytes of a name, as in PostgreSQL
TRIES, PAUSE = 10, 0.02  # of writing beside other connections, and seconds between


class Stored(NamedTuple):
    """A model that was found, and what tells this version of it."""

    name: str
    version: str
    model: "Model"


class Models:
    """The models of the database that a session uses.

    Args:
        session: The session, in whose transaction everything happens.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kept: dict[str, Stored] = {}
        self._changed: tuple[int, set[str]] = 0, set()

    def uncommitted(self) -> set[str]:
        """Return the names that the transaction under way has stored, removed or renamed."""
        transaction, names = self._changed
        if names and transaction != self._session.transaction():
            self._changed = 0, set()
        return self._changed[1]

    def _touch(self, *names: str) -> None:
        """Note that models of these names are not as others see them, if a transaction is open."""
        if self._session.in_transaction():
            known = self.uncommitted()
            self._changed = self._session.transaction(), known | set(names)

    def names(self) -> list[str]:
        """Return the names of all models, sorted."""
        place = self._place()
        return [] if place is None else [row[0] for row in self._rows(f"SELECT name FROM {place} ORDER BY name")]

    def listed(self, like: str | None = None) -> list[dict[str, Any]]:
        """Return what is listed of models, of those whose name matches a pattern."""
        place = self._place()
        if place is None:
            return []
        shown = [name for name in COLUMNS if name not in ("version", "content")]
        where, values = ("", {}) if like is None else ("WHERE name LIKE $like", {"like": like})
        found = self._rows(f"SELECT {', '.join(shown)} FROM {place} {where} ORDER BY name", values)
        return [dict(zip(shown, row, strict=True)) for row in found]

    def there(self, name: str) -> bool:
        """Say whether there is a model of this name."""
        place = self._place()
        return place is not None and bool(self._rows(f"SELECT 1 FROM {place} WHERE name = $name", {"name": name}))

    def find(self, name: str) -> Stored:
        """Return a model.

        Raises:
            BadArgument: There is none of this name.
            BadModelFile: It is damaged.
        """
        from corgipile.linear.model import unpack  # noqa: PLC0415 - loads all that trains

        place = self._place()
        sql = f"SELECT version::VARCHAR FROM {place} WHERE name = $name"
        found = [] if place is None else self._rows(sql, {"name": name})
        if not found:
            raise self._missing(name)
        version = str(found[0][0])
        if name in self._kept and self._kept[name].version == version:
            return self._kept[name]
        rows = self._rows(f"SELECT content FROM {place} WHERE name = $name", {"name": name})
        content = rows[0][0] if rows else None
        if content is None:
            raise BadModelFile(f"model {name!r} in table {TABLE} is empty; drop it, and train it again")
        self._kept[name] = Stored(name, version, unpack(bytes(content), f"model {name!r} in table {TABLE}"))
        return self._kept[name]

    def check_writable(self, name: str) -> None:
        """Raise unless a model can be stored, before it is trained.

        Raises:
            BadArgument: The name is no name.
            OperationalError: The database is read-only, or its table of models is of another make.
        """
        check_name(name)
        self._place()
        database = "SELECT readonly FROM duckdb_databases() WHERE database_name = current_database()"
        if self._rows(database) == [(True,)]:
            raise OperationalError(f"the database is open for reading only, so that model {name!r} cannot be stored")

    def keep(self, name: str, model: "Model", *, replace: bool) -> None:
        """Store a model.

        Raises:
            IntegrityError: There is one, and it is not to be replaced.
        """
        last = model.history[-1] if model.history else {}
        values = {
            "name": name,
            "model": model.kind,
            "features": model.width,
            "epochs": len(model.history),
            "loss": last.get("loss"),
            "content": model.pack(),
        }
        mine = not self._session.in_transaction()
        for left in reversed(range(TRIES)):
            try:
                with _Together(self._session):
                    self._write(values, replace=replace)
                break
            except DatabaseError as error:  # another connection wrote at the same moment
                if not (mine and left and "conflict" in str(error).lower()):
                    raise
            time.sleep(PAUSE)
        self._touch(name)

    def _write(self, values: Mapping[str, Any], *, replace: bool) -> None:
        """Write a model's row."""
        place, name = self._made(), values["name"]
        if replace:
            self._rows(f"DELETE FROM {place} WHERE name = $name", {"name": name})
        elif self.there(name):
            raise taken(name)
        named = ", ".join(values)
        given = ", ".join(f"${column}" for column in values)
        sql = f"INSERT INTO {place} ({named}, created, version) VALUES ({given}, now(), uuid())"
        self._rows(sql, values)

    def drop(self, name: str) -> None:
        """Remove a model.

        Raises:
            BadArgument: There is none.
        """
        place = self._place()
        sql = f"DELETE FROM {place} WHERE name = $name RETURNING name"
        if place is None or not self._rows(sql, {"name": name}):
            raise self._missing(name)
        self._touch(name)

    def rename(self, name: str, to: str) -> None:
        """Give a model another name.

        Raises:
            BadArgument: There is none of that name.
        """
        check_name(to)
        place = self._place()
        if place is None or not self.there(name):
            raise self._missing(name)
        self._rows(f"UPDATE {place} SET name = $to WHERE name = $name", {"name": name, "to": to})
        self._touch(name, to)

    def _missing(self, name: str) -> BadArgument:
        names = self.names()
        known = f"; there {'is' if len(names) == 1 else 'are'} {listed(names)}" if names else "; there are no models"
        return BadArgument(f"there is no model {name!r}{known}{did_you_mean(name, names)}")

    def _place(self) -> str | None:
        """Return what SQL calls the table, None if there is none yet.

        Raises:
            OperationalError: There is something else of that name.
        """
        sql = (
            "SELECT current_database(), column_name, data_type FROM duckdb_columns() "
            f"WHERE database_name = current_database() AND schema_name = 'main' AND table_name = '{TABLE}'"
        )
        found = self._rows(sql)
        if not found:
            return None
        if (columns := {name: kind for _, name, kind in found}) != COLUMNS:
            raise OperationalError(
                f"table {TABLE} of this database is not one of models that corgipile made: its columns are "
                f"{listed(list(columns))}; rename it, or use another database"
            )
        return f"{quoted(found[0][0])}.main.{TABLE}"

    def _made(self) -> str:
        """Return what SQL calls the table, which is made if there is none."""
        place = self._place()
        if place is None:
            columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
            columns = columns.replace("name VARCHAR", "name VARCHAR PRIMARY KEY", 1)
            database = quoted(self._rows("SELECT current_database()")[0][0])
            place = f"{database}.main.{TABLE}"
            self._rows(f"CREATE TABLE IF NOT EXISTS {place} ({columns})")
        return place

    def _rows(self, sql: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        return self._session.rows(sql, values)


class _Together:
    """Makes several statements one: of the transaction that is open, or else of one of their own."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> None:
        self._mine = not self._session.in_transaction()
        if self._mine:
            self._session.rows("BEGIN")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._mine:
            self._session.rows("COMMIT" if kind is None else "ROLLBACK")


def check_name(name: str) -> None:
    """Raise BadArgument unless a model can be called so."""
    if not name or len(name.encode(errors="surrogatepass")) > LONGEST or "\0" in name:
        raise BadArgument(f"a model's name has 1 to {LONGEST} bytes and no zero among them, got {name!r}")
