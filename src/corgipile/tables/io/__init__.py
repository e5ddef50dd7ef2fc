"""Byte-level input: descriptors, remote files, pieces, columns in place, spill files and indexes."""
