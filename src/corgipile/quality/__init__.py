"""Quality measures of an order, or of any loader, from the rows it visits."""

from corgipile.quality.audit import Audit, audit
from corgipile.quality.audited import AuditReport, EpochReport
from corgipile.quality.blocks import h_d
from corgipile.quality.coverage import Coverage, coverage
from corgipile.quality.faults import Fault
from corgipile.quality.keyed import Spread
from corgipile.quality.loader_audit import AuditPlan, audit_loader
from corgipile.quality.loader_report import Check, LoaderAudit
from corgipile.quality.report import Report, measure
from corgipile.quality.sampled_blocks import HD, h_d_of_columns, h_d_of_gradients, h_d_of_samples
from corgipile.quality.spread import deff, expected_deff_corgipile, prefix_discrepancy

__all__ = [
    "HD",
    "Audit",
    "AuditPlan",
    "AuditReport",
    "Check",
    "Coverage",
    "EpochReport",
    "Fault",
    "LoaderAudit",
    "Report",
    "Spread",
    "audit",
    "audit_loader",
    "coverage",
    "deff",
    "expected_deff_corgipile",
    "h_d",
    "h_d_of_columns",
    "h_d_of_gradients",
    "h_d_of_samples",
    "measure",
    "prefix_discrepancy",
]
