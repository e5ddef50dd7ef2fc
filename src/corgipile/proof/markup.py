"""Elements of a page, whose text is always escaped: HTML that is XML too, so that any parser reads it."""

from collections.abc import Iterable
from html import escape

__all__ = ["Markup", "element", "joined"]

EMPTY = {"br", "circle", "link", "line", "meta", "path", "rect"}
KEPT = " \n\t\N{NO-BREAK SPACE}"


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(tag: str, /, *inside: str | None, **attributes: str | float | None) -> Markup:
    """Return an element; what is inside is escaped unless it is markup, and what is None is left out.

    Args:
        tag: Its name.
        inside: Text and elements.
        attributes: By name; ``class_`` is class, and other underscores are hyphens.

    Example:
        >>> print(element("td", "<script>", class_="number", aria_label='"x"'))
        <td class="number" aria-label="&quot;x&quot;">&lt;script&gt;</td>
    """
    named = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None)
    head = " ".join([tag, *(f'{key}="{escape(_shown(_written(value)))}"' for key, value in named)])
    if tag in EMPTY:
        return Markup(f"<{head}/>")
    return Markup(f"<{head}>{joined(inside)}</{tag}>")


def joined(parts: Iterable[str | None]) -> Markup:
    """Put text and elements together."""
    return Markup("".join(one if isinstance(one, Markup) else escape(_shown(one)) for one in parts if one is not None))


def _written(value: str | float) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def _shown(text: str) -> str:
    """Escape what no page may hold: control characters, halves of characters."""
    return "".join(one if one.isprintable() or one in KEPT else one.encode("unicode_escape").decode() for one in text)
