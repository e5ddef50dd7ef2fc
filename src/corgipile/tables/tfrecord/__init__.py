"""TFRecord: records found by an index, kept as bytes or decoded as ``tensorflow.Example``."""
