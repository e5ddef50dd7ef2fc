"""WebDataset: tar files whose members are the columns of samples, found by an index and read in place."""
