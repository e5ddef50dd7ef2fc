"""Tables made of stored arrays, as HDF5, Zarr and NumPy archives keep them: a column an array, or several."""
