"""Text tables: rows located by an index of line starts, parsed by pyarrow and the kernel."""
