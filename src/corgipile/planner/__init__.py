"""Planner: recommends the fastest order and block size that mix well enough within the memory."""

from corgipile.planner.candidates import Candidate
from corgipile.planner.choice import Choice, choose, probed
from corgipile.planner.probe import Cell, Probe

__all__ = ["Candidate", "Cell", "Choice", "Probe", "choose", "probed"]
