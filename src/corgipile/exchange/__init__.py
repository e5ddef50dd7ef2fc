"""Exchange of table parts among ranks: simulation, and each rank's part on its disk."""

from corgipile.exchange.part import LocalPart
from corgipile.exchange.simulate import Simulation, simulate
from corgipile.exchange.staging import restage, stage

__all__ = ["LocalPart", "Simulation", "restage", "simulate", "stage"]
