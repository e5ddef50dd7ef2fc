"""A report page in one self-contained file, without network access or scripts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corgipile.environment import versions
from corgipile.outputs import Kind, PathLike
from corgipile.proof.charts import Chart
from corgipile.proof.markup import Markup, concatenate, element
from corgipile.tables.inputs import replacing

__all__ = ["PAGE", "Page", "Section", "table"]

HEAD = '<!DOCTYPE html>\n<html lang="en" data-made-by="corgipile">'
PAGE = Kind("page", lambda path: path.read_bytes()[: len(HEAD)] == HEAD.encode())
STYLE = Path(__file__).with_name("page.css")
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes:
        title: Heading of the section.
        lead: A sentence on its content; may be empty.
        parts: Elements before the charts, such as a table.
        charts: Charts of the section.
        layout: Layout of the charts: "small" for many small ones, "pairs" for two per row if they fit.
    """

    title: str
    lead: str = ""
    parts: Sequence[Markup] = ()
    charts: Sequence[Chart] = ()
    layout: str = ""


@dataclass(frozen=True)
class Page:
    """A report page.

    Attributes:
        kind: Subject of the page, in a few words.
        verdict: The result, in a sentence.
        lead: How it was obtained, in a sentence or two.
        facts: Main figures, by name.
        sections: Other sections.
        command: Command that makes the page; empty if unknown.

    Example:
        >>> page = Page("an example", "Nothing is wrong.", sections=[Section("Figures", "None.")])
        >>> "<h1>Nothing is wrong.</h1>" in page.html()
        True
    """

    kind: str
    verdict: str
    lead: str = ""
    facts: Sequence[tuple[str, str]] = ()
    sections: Sequence[Section] = ()
    command: str = ""

    def html(self) -> str:
        """Return the page as HTML."""
        sections = [*self.sections, self._origin()]
        links = (element("li", element("a", section.title, href=f"#s{at}")) for at, section in enumerate(sections))
        meta = (
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", http_equiv="Content-Security-Policy", content=POLICY),
            element("title", f"{self.kind}: {self.verdict}"),
            element("style", Markup(STYLE.read_text(encoding="utf-8"))),
        )
        header = element(
            "header",
            element("p", self.kind, class_="kind"),
            element("h1", self.verdict),
            element("p", self.lead, class_="lead") if self.lead else None,
            element("nav", element("ul", *links), aria_label="Parts of this page"),
        )
        facts = (element("div", element("dt", name), element("dd", text)) for name, text in self.facts)
        main = element(
            "main",
            element("dl", *facts, class_="facts") if self.facts else None,
            *(_section(section, at) for at, section in enumerate(sections)),
            id="main",
        )
        skip = element("a", "Skip to the figures", href="#main", class_="skip")
        foot = element("footer", "Made by corgipile. This file needs neither network nor scripts.")
        return f"{HEAD}{element('head', *meta)}{element('body', skip, header, main, foot)}</html>\n"

    def save(self, path: PathLike, *, inputs: Iterable[Any] = (), overwrite: bool = False) -> None:
        """Write the page atomically, replacing an earlier page.

        Args:
            path: The file.
            inputs: Files that were read, which are never replaced.
            overwrite: Replace a file of another kind.

        Raises:
            WouldOverwrite: The file is an input, or of another kind.
            WriteFailed: The file cannot be written.
        """
        with replacing(path, PAGE, inputs=inputs, overwrite=overwrite) as temporary:
            Path(temporary).write_text(self.html(), encoding="utf-8")

    def _origin(self) -> Section:
        parts = [element("pre", self.command, tabindex=0)] if self.command else []
        rows = [(name, str(value)) for name, value in versions().items()]
        parts.append(table("Versions", ("component", "version"), rows, text=True))
        return Section("Reproduce this page", "", parts)


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, text: bool = False) -> Markup:
    """Return a table whose first column names the rows; ``text``: the others hold text, not numbers.

    Example:
        >>> print(table("", ("a", "b"), [("x", "1")])[:26])
        <div class="wide" tabindex
    """
    kind = "text" if text else None
    top = element("thead", element("tr", *(element("th", name, scope="col", class_=kind) for name in head)))
    body = (
        element("tr", element("th", row[0], scope="row"), *(element("td", cell, class_=kind) for cell in row[1:]))
        for row in rows
    )
    inside = element("table", element("caption", caption) if caption else None, top, element("tbody", *body))
    return element("div", inside, class_="wide", tabindex=0, role="region", aria_label=caption or "Table")


def _section(section: Section, at: int) -> Markup:
    kind = f"charts {section.layout}".rstrip()
    figures = [_figure(chart, f"s{at}c{number}") for number, chart in enumerate(section.charts)]
    return element(
        "section",
        element("h2", section.title, id=f"h{at}"),
        element("p", section.lead) if section.lead else None,
        *section.parts,
        element("div", *figures, class_=kind) if figures else None,
        id=f"s{at}",
        aria_labelledby=f"h{at}",
    )


def _figure(chart: Chart, name: str) -> Markup:
    described = (element("title", chart.title, id=f"{name}t"), element("desc", chart.alternative, id=f"{name}d"))
    box = f"0 0 {chart.width} {chart.height}"
    drawn = element(
        "svg", concatenate([*described, *chart.drawing]), viewBox=box, role="img", aria_labelledby=f"{name}t",
        aria_describedby=f"{name}d",
    )  # fmt: skip
    behind = element("details", element("summary", "Figures"), table(chart.title, chart.head, chart.rows))
    return element("figure", element("figcaption", chart.title), drawn, behind if chart.rows else None)
