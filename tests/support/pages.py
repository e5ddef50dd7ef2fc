"""Strict parser of our pages: they must be XML without links, scripts or foreign content."""

import re
import xml.etree.ElementTree as ET

FOREIGN = re.compile(r"""<script|<link|<iframe|@import|url\(|(?:src|href)="(?!#)|https?:""", re.IGNORECASE)


def tree(page):
    """Parse a page, or its text."""
    text = page if isinstance(page, str) else page.html()
    assert text.startswith("<!DOCTYPE html>\n")
    assert not FOREIGN.search(text)
    return ET.fromstring(text.partition("\n")[2])  # noqa: S314 - our own


def text_of(page):
    """Return the visible text of a page."""
    return " ".join(" ".join(tree(page).itertext()).split())
