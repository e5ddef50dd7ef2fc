"""SVMlight and LIBSVM text: rows found by an index, parsed by the kernel."""
