"""Reports as pages to share: one HTML file without network access or scripts."""

from corgipile.proof.about import about_page
from corgipile.proof.audit import audit_page
from corgipile.proof.comparison import Compared, comparison_page
from corgipile.proof.page import PAGE, Page, Section, table

__all__ = ["PAGE", "Compared", "Page", "Section", "about_page", "audit_page", "comparison_page", "table"]
