"""HDF5 files: metadata by h5py, rows read in place."""
