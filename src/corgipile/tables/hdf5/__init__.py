"""HDF5 files: what h5py says of them, and rows read from where they lie."""
