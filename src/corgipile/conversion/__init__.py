"""Converts tables of any format to Arrow IPC files with small record batches."""

from corgipile.conversion.convert import Progress, convert

__all__ = ["Progress", "convert"]
