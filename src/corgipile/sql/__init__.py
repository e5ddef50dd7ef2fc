"""SQL that trains and predicts: on files and DuckDB without a server, and on PostgreSQL."""
