"""Lookup of BigQuery's table paths, such as ```project.dataset.table```, among the tables of DuckDB."""

from corgipile.errors import BadArgument
from corgipile.sql.engines.duckdb.binding import literal
from corgipile.sql.engines.duckdb.session import Session
from corgipile.sql.statements import Path
from corgipile.tables.databases import quoted

__all__ = ["path_sql"]

SCHEMA = "SELECT 1 FROM duckdb_schemas() WHERE lower(schema_name) = lower($name) LIMIT 1"
RELATIONS = (
    "SELECT DISTINCT name FROM (SELECT schema_name, table_name FROM duckdb_tables() "
    "UNION ALL SELECT schema_name, view_name FROM duckdb_views()) relations(place, name) "
    "WHERE ($place IS NULL OR lower(place) = lower($place)) AND starts_with(lower(name), lower($name)) ORDER BY name"
)


def path_sql(session: Session, path: Path) -> str:
    """Return the SQL of a table's path: dataset and table, or the table alone if there is no schema of that name.

    The project is dropped. A path that ends with ``*`` is the union of all tables of this prefix, with the rest of
    their names as ``_TABLE_SUFFIX``.
    """
    *places, name = path.parts[-2:]
    place = next((one for one in places if session.rows(SCHEMA, {"name": one})), None)
    schema = "" if place is None else f"{quoted(place)}."
    if not name.endswith("*"):
        return schema + quoted(name)
    prefix = name[:-1]
    tables = [row[0] for row in session.rows(RELATIONS, {"place": place, "name": prefix})]
    if not tables:
        raise BadArgument(f"no table begins with {prefix!r}, the path {'.'.join(path.parts)!r} needs one")
    parts = [f"SELECT {literal(one[len(prefix) :])} AS _TABLE_SUFFIX, * FROM {schema}{quoted(one)}" for one in tables]
    return f"({' UNION ALL BY NAME '.join(parts)})"
