"""What was found, as a page that is shown to others: one file of HTML that needs no network and no script."""

from corgipile.proof.about import about_page
from corgipile.proof.audit import audit_page
from corgipile.proof.comparison import Compared, comparison_page
from corgipile.proof.page import PAGE, Page, Section, table

__all__ = ["PAGE", "Compared", "Page", "Section", "about_page", "audit_page", "comparison_page", "table"]
