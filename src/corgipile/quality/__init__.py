"""Measures an order, or anybody's loader, from the rows it visited."""

from corgipile.quality.blocks import h_d
from corgipile.quality.coverage import Coverage, coverage
from corgipile.quality.report import Report, measure
from corgipile.quality.spread import deff, expected_deff_corgipile, prefix_discrepancy

__all__ = [
    "Coverage",
    "Report",
    "coverage",
    "deff",
    "expected_deff_corgipile",
    "h_d",
    "measure",
    "prefix_discrepancy",
]
