"""Output of query results: text tables, CSV, JSON, and HTML for notebooks."""
