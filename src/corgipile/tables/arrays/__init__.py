"""Tables of stored arrays (HDF5, Zarr, NumPy archives): each array becomes one or more columns."""
