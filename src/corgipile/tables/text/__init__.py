"""Text: rows found by an index of line starts, parsed by pyarrow."""
