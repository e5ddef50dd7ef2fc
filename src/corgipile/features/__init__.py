"""Feature encoding: which columns are features, and how columns of any type become numbers."""

from corgipile.features.encoding import Encoding
from corgipile.features.fit import fit_encoding

__all__ = ["Encoding", "fit_encoding"]
