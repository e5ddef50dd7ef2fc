"""Parts of a table on many ranks: what an exchange among them does, and a part on the disk of each."""

from corgipile.exchange.part import LocalPart
from corgipile.exchange.simulate import Simulation, simulate
from corgipile.exchange.staging import restage, stage

__all__ = ["LocalPart", "Simulation", "restage", "simulate", "stage"]
