"""Converts tables of any format to Arrow IPC files with small record batches."""

from corgipile.convert.run import Progress, convert

__all__ = ["Progress", "convert"]
