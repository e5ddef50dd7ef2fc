"""Chooses how a table is read: what mixes well enough, at the least time, within the memory."""

from corgipile.planner.choice import Choice, choose
from corgipile.planner.trial import Candidate

__all__ = ["Candidate", "Choice", "choose"]
