"""WebDataset tables: tar files whose members are columns of samples, located by an index and read in place."""
