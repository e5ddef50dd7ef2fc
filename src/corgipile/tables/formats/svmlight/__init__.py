"""SVMlight and LIBSVM tables: rows located by an index, parsed by the kernel."""
