"""Bytes of files, whatever the format: descriptors, pieces of files, columns in place, spill files, indexes."""
