"""Columns of any type as numbers: which columns are features, how each becomes numbers, what was found out of it."""

from corgipile.features.encoding import Encoding
from corgipile.features.fit import fit_encoding

__all__ = ["Encoding", "fit_encoding"]
