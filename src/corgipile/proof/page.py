"""One page of what was found, in one file that needs nothing else: no network, no script."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corgipile.outputs import Kind, PathLike
from corgipile.proof.charts import Chart
from corgipile.proof.markup import Markup, element, joined
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
        title: Its heading.
        lead: A sentence on what is to be seen; empty for none.
        parts: Elements before the charts, such as a table.
        charts: Its charts.
        layout: How these lie: "small" for many small ones, "pairs" for two in a row where there is room.
    """

    title: str
    lead: str = ""
    parts: Sequence[Markup] = ()
    charts: Sequence[Chart] = ()
    layout: str = ""


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        kind: What it is of, in a few words.
        verdict: What was found, in a sentence.
        lead: What was done, in a sentence or two.
        facts: Figures that stand first, by name.
        sections: The rest.
        command: How to get it again; empty where that is not known.

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
        """Return the page."""
        sections = [*self.sections, self._again()]
        links = (element("li", element("a", one.title, href=f"#s{at}")) for at, one in enumerate(sections))
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
            *(_section(one, at) for at, one in enumerate(sections)),
            id="main",
        )
        skip = element("a", "Skip to the figures", href="#main", class_="skip")
        foot = element("footer", "Made by corgipile. This file needs no network and no script.")
        return f"{HEAD}{element('head', *meta)}{element('body', skip, header, main, foot)}</html>\n"

    def save(self, path: PathLike, *, inputs: Iterable[Any] = (), overwrite: bool = False) -> None:
        """Write the page, as a whole or not at all; an earlier page that is there is replaced.

        Args:
            path: The file.
            inputs: What was read meanwhile, which is never replaced.
            overwrite: Replace a file of another kind.

        Raises:
            WouldOverwrite: An input, or a file of another kind, lies there.
            WriteFailed: It cannot be written.
        """
        with replacing(path, PAGE, inputs=inputs, overwrite=overwrite) as temporary:
            Path(temporary).write_text(self.html(), encoding="utf-8")

    def _again(self) -> Section:
        from corgipile.description import versions  # noqa: PLC0415 - which stands above us

        parts = [element("pre", self.command, tabindex=0)] if self.command else []
        rows = [(name, str(value)) for name, value in versions().items()]
        return Section("How to get this again", "", [*parts, table("Made with", ("what", "which"), rows, text=True)])


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, text: bool = False) -> Markup:
    """Return a table whose first column names the rows; ``text``: that the others hold words, not numbers.

    Example:
        >>> print(table("", ("a", "b"), [("x", "1")])[:26])
        <div class="wide" tabindex
    """
    kind = "text" if text else None
    top = element("thead", element("tr", *(element("th", name, scope="col", class_=kind) for name in head)))
    body = (
        element("tr", element("th", one[0], scope="row"), *(element("td", cell, class_=kind) for cell in one[1:]))
        for one in rows
    )
    inside = element("table", element("caption", caption) if caption else None, top, element("tbody", *body))
    return element("div", inside, class_="wide", tabindex=0, role="region", aria_label=caption or "Table")


def _section(one: Section, at: int) -> Markup:
    kind = f"charts {one.layout}".rstrip()
    figures = [_figure(chart, f"s{at}c{number}") for number, chart in enumerate(one.charts)]
    return element(
        "section",
        element("h2", one.title, id=f"h{at}"),
        element("p", one.lead) if one.lead else None,
        *one.parts,
        element("div", *figures, class_=kind) if figures else None,
        id=f"s{at}",
        aria_labelledby=f"h{at}",
    )


def _figure(chart: Chart, name: str) -> Markup:
    said = (element("title", chart.title, id=f"{name}t"), element("desc", chart.said, id=f"{name}d"))
    box = f"0 0 {chart.width} {chart.height}"
    drawn = element(
        "svg", joined([*said, *chart.drawing]), viewBox=box, role="img", aria_labelledby=f"{name}t",
        aria_describedby=f"{name}d",
    )  # fmt: skip
    behind = element("details", element("summary", "Figures"), table(chart.title, chart.head, chart.rows))
    return element("figure", element("figcaption", chart.title), drawn, behind if chart.rows else None)
