"""Table formats: one module or folder each, registered in `corgipile.tables.registry`."""
