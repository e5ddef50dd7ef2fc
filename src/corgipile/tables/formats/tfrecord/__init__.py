"""TFRecord tables: records located by an index, as bytes or decoded as ``tensorflow.Example``."""
