"""Parts of a table on many ranks: what an exchange among them does, and a part on the disk of each."""

from corgipile.exchange.part import LocalPart
from corgipile.exchange.simulate import Simulation, simulate

__all__ = ["LocalPart", "Simulation", "simulate"]
