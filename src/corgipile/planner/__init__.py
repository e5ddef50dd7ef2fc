"""Chooses how a table is read: what mixes well enough, at the least time, within the memory."""

from corgipile.planner.candidates import Candidate
from corgipile.planner.choice import Choice, choose, probed
from corgipile.planner.probe import Cell, Probe

__all__ = ["Candidate", "Cell", "Choice", "Probe", "choose", "probed"]
